#define _GNU_SOURCE
#include "formats/io/beneath.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/path.h"

#define NO_LINK (O_NOFOLLOW | O_CLOEXEC)
#define STEP	(O_PATH | O_DIRECTORY | NO_LINK)

/* ---- the way ---- */

/* Copies the first name of *path, and moves *path past it. */
static int take_name(const char **path, char name[NAME_MAX + 1])
{
	const size_t len = strcspn(*path, "/");

	if (!len || len > NAME_MAX)
		return len ? -ENAMETOOLONG : -EINVAL;
	memcpy(name, *path, len);
	name[len] = '\0';
	*path += len + ((*path)[len] == '/');
	return strcmp(name, ".") && strcmp(name, "..") ? 0 : -EINVAL;
}

/* Into a directory; *at, which it replaces, is closed unless it is the start. */
static int step(int *at, int start, const char *name, int flags)
{
	const int fd = openat(*at, name, flags), rc = fd < 0 ? -errno : 0;

	if (rc)
		return rc;
	if (*at != start)
		close(*at);
	*at = fd;
	return 0;
}

static int end_walk(int at, int start, int rc)
{
	if (rc && at != start)
		close(at);
	return rc ? rc : at;
}

int mfs_beneath_parent(int dirfd, const char *path, const char **ret_name)
{
	char name[NAME_MAX + 1];
	int at = dirfd, rc = 0;

	while (!rc && strchr(path, '/')) {
		rc = take_name(&path, name);
		if (!rc)
			rc = step(&at, dirfd, name, STEP);
	}
	if (!rc && at == dirfd) /* the caller closes it */
		rc = step(&at, dirfd, ".", STEP);
	*ret_name = path;
	return end_walk(at, dirfd, rc);
}

static int make_dir(int dirfd, const char *name, mode_t mode)
{
	return mkdirat(dirfd, name, mode) && errno != EEXIST ? -errno : 0;
}

int mfs_beneath_make_dirs(int dirfd, const char *path, mode_t mode)
{
	char name[NAME_MAX + 1];
	int at = dirfd, rc = 0;

	if (!*path)
		return -EINVAL;
	while (!rc && *path) {
		rc = take_name(&path, name);
		if (!rc)
			rc = make_dir(at, name, mode);
		if (!rc)
			rc = step(&at, dirfd, name, O_RDONLY | O_DIRECTORY | NO_LINK);
	}
	return end_walk(at, dirfd, rc);
}

/* ---- files ---- */

static int open_at(int dirfd, const char *name, int flags, mode_t mode)
{
	const int fd = openat(dirfd, name, flags | NO_LINK, mode);

	return fd < 0 ? -errno : fd;
}

int mfs_beneath_open(int dirfd, const char *path, int flags, mode_t mode)
{
	const char *name;
	int at, fd;

	if (!strchr(path, '/'))
		return open_at(dirfd, path, flags, mode);
	at = mfs_beneath_parent(dirfd, path, &name);
	if (at < 0)
		return at;
	fd = open_at(at, name, flags, mode);
	close(at);
	return fd;
}

static int create_at(int dirfd, const char *name, int flags, mode_t mode)
{
	const int make = flags | O_CREAT | O_EXCL;
	const int fd = open_at(dirfd, name, make, mode);

	if (fd != -EEXIST)
		return fd;
	if (unlinkat(dirfd, name, 0) && errno != ENOENT)
		return -errno;
	return open_at(dirfd, name, make, mode);
}

int mfs_beneath_create(int dirfd, const char *path, int flags, mode_t mode)
{
	const char *name;
	const int at = mfs_beneath_parent(dirfd, path, &name);
	int fd;

	if (at < 0)
		return at;
	fd = create_at(at, name, flags, mode);
	close(at);
	return fd;
}

/* Of a file with two names nobody knows whose the other one is. */
static bool is_plain(int fd)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_nlink == 1;
}

int mfs_beneath_continue(int dirfd, const char *path, int flags, mode_t mode, bool *ret_new)
{
	const int fd = mfs_beneath_open(dirfd, path, flags | O_NONBLOCK | O_NOCTTY, 0);

	*ret_new = fd < 0 || !is_plain(fd);
	if (!*ret_new)
		return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) ? -errno : fd;
	if (fd >= 0)
		close(fd);
	return mfs_beneath_create(dirfd, path, flags, mode);
}

/* ---- removing ---- */

struct removal {
	mfs_unlink_at *unlink;
	void *arg;
	struct statx top; /* the directory that has the name */
};

/* Whether both are of one mount. A subvolume of btrfs has a device of its own and is no mount; a
 * directory that is mounted again has the same device. Kernels before 5.8 know devices alone. */
static bool is_mounted_with(const struct statx *a, const struct statx *b)
{
	if (a->stx_mask & b->stx_mask & STATX_MNT_ID)
		return a->stx_mnt_id == b->stx_mnt_id;
	return a->stx_dev_major == b->stx_dev_major && a->stx_dev_minor == b->stx_dev_minor;
}

static bool look(int fd, struct statx *ret)
{
	return !statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, ret);
}

static int unlink_at(void *arg, int dirfd, const char *name, int flags)
{
	(void)arg;
	return unlinkat(dirfd, name, flags) ? -errno : 0;
}

static int remove_name(const struct removal *r, int dirfd, const char *name, unsigned depth);

/* Takes fd over. What cannot be removed stays, and all else goes. */
static int empty(const struct removal *r, int fd, unsigned depth)
{
	struct statx st;
	DIR *dir = look(fd, &st) && is_mounted_with(&st, &r->top) ? fdopendir(fd) : NULL;
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		close(fd);
		return -EBUSY;
	}
	while ((d = readdir(dir)))
		if (strcmp(d->d_name, ".") && strcmp(d->d_name, ".."))
			rc = remove_name(r, dirfd(dir), d->d_name, depth) ?: rc;
	closedir(dir);
	return rc;
}

/* unlink(2) of a directory is EISDIR here and EPERM in POSIX. */
static int remove_name(const struct removal *r, int dirfd, const char *name, unsigned depth)
{
	int fd, last, rc = r->unlink(r->arg, dirfd, name, 0);

	if (rc != -EISDIR && rc != -EPERM)
		return rc == -ENOENT ? 0 : rc;
	if (depth == MFS_BENEATH_DEPTH)
		return -E2BIG;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | NO_LINK);
	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? rc : -errno;
	rc = empty(r, fd, depth + 1);
	last = r->unlink(r->arg, dirfd, name, AT_REMOVEDIR);
	return rc ? rc : last; /* why it is not empty says more */
}

int mfs_beneath_remove(int dirfd, const char *name, mfs_unlink_at *unlink, void *arg)
{
	struct removal r = {.unlink = unlink ? unlink : unlink_at, .arg = arg};

	return look(dirfd, &r.top) ? remove_name(&r, dirfd, name, 0) : -errno;
}

/* ---- a person's path ---- */

/* The last name first: of those above it some may be there and yet be nobody's to make. */
int mfs_make_path(const char *path, mode_t above, mode_t mode)
{
	char *parent;
	int rc;

	if (!mkdir(path, mode) || errno == EEXIST)
		return 0;
	if (errno != ENOENT)
		return -errno;
	parent = mfs_path_parent(path);
	if (!parent)
		return -ENOMEM;
	rc = !strcmp(parent, path) || !strcmp(parent, ".") ? -ENOENT
							   : mfs_make_path(parent, above, above);
	free(parent);
	if (rc)
		return rc;
	return mkdir(path, mode) && errno != EEXIST ? -errno : 0;
}

int mfs_open_path(const char *path, mode_t above, mode_t mode)
{
	const int rc = mfs_make_path(path, above, mode);
	int fd;

	if (rc)
		return rc;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}
