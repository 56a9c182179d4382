#define _GNU_SOURCE
#include "formats/io/walk.h"
#include "formats/io/fence.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ACL_NAME "system.posix_acl_access"
#define ACL_MAX	 4096 /* bytes: more than 500 entries */

#define STEP (O_NOFOLLOW | O_CLOEXEC)

struct walk {
	int at; /* the directory that has been reached */
	struct stat st;
	unsigned links;
	char rest[PATH_MAX]; /* of the path, from there */
	struct mfs_access_fold *fold;
};

/* ---- counting ---- */

/* The mode lets neither the group nor others pass. An ACL's mask is among these bits and can only
 * take more away. */
static bool is_owners_alone(const struct stat *st, unsigned want)
{
	return (st->st_mode >> 3 & want) != want && (st->st_mode & want) != want;
}

void mfs_walk_count(int fd, const struct stat *st, unsigned want, struct mfs_access_fold *fold)
{
	struct mfs_access_rule rule;
	uint8_t acl[ACL_MAX];
	char self[40];
	ssize_t len = -1;
	bool has_acl = false;

	if (!is_owners_alone(st, want)) {
		/* An O_PATH descriptor has no form of fgetxattr(2). */
		snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
		len = getxattr(self, ACL_NAME, acl, sizeof(acl));
		has_acl = len >= 0 || (errno != ENODATA && errno != EOPNOTSUPP);
	}
	rule = mfs_access_rule(st, want, has_acl ? acl : NULL, len < 0 ? 0 : (size_t)len);
	mfs_access_add(fold, &rule);
}

/* ---- walking ---- */

static int arrive(struct walk *w, int fd)
{
	if (fd < 0)
		return -errno;
	if (w->at >= 0)
		close(w->at);
	w->at = fd;
	return fstat(fd, &w->st) ? -errno : 0;
}

/* Takes the first name off the rest. *ret_more: something follows it, be it a slash. */
static int next_name(struct walk *w, char name[NAME_MAX + 1], bool *ret_more)
{
	const char *from = w->rest + strspn(w->rest, "/");
	size_t len = strcspn(from, "/");

	if (len > NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(name, from, len);
	name[len] = '\0';
	from += len;
	*ret_more = *from == '/';
	from += strspn(from, "/");
	memmove(w->rest, from, strlen(from) + 1);
	return 0;
}

/* Asked for as a directory first: so the kernel mounts what an automounter has there. */
static int open_name(const struct walk *w, const char *name, bool directory)
{
	int fd = -1;

	if (directory)
		fd = openat(w->at, name, O_PATH | O_DIRECTORY | STEP);
	if (!directory || (fd < 0 && errno == ENOTDIR))
		fd = openat(w->at, name, O_PATH | STEP);
	return fd;
}

static int follow(struct walk *w, int link, bool more)
{
	char target[PATH_MAX];
	ssize_t len = readlinkat(link, "", target, sizeof(target));
	size_t rest = strlen(w->rest);

	if (len < 0)
		return -errno;
	if (!len)
		return -ENOENT;
	if (++w->links > MFS_WALK_LINKS)
		return -ELOOP;
	if ((size_t)len + 1 + rest >= sizeof(w->rest))
		return -ENAMETOOLONG;
	memmove(w->rest + len + more, w->rest, rest + 1);
	memcpy(w->rest, target, (size_t)len);
	if (more)
		w->rest[len] = '/';
	return target[0] == '/' ? arrive(w, open("/", O_PATH | O_DIRECTORY | STEP)) : 0;
}

/* Into what the first name of the rest is. */
static int step(struct walk *w)
{
	char name[NAME_MAX + 1];
	struct stat st;
	bool more;
	int fd, rc = next_name(w, name, &more);

	if (rc || !*name)
		return rc;
	if (!S_ISDIR(w->st.st_mode))
		return -ENOTDIR;
	mfs_walk_count(w->at, &w->st, MFS_ACCESS_SEARCH, w->fold);
	fd = open_name(w, name, more);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		rc = -errno;
	} else if (S_ISLNK(st.st_mode)) {
		rc = follow(w, fd, more);
	} else if (more && !S_ISDIR(st.st_mode)) {
		rc = -ENOTDIR;
	} else {
		close(w->at);
		w->at = fd;
		w->st = st;
		return 0;
	}
	close(fd);
	return rc;
}

int mfs_walk(int dirfd, const char *path, struct mfs_access_fold *fold, int *ret_fd,
	     struct stat *st)
{
	struct walk w = {.at = -1, .fold = fold};
	int rc;

	if (!*path)
		return -ENOENT;
	if ((size_t)snprintf(w.rest, sizeof(w.rest), "%s", path) >= sizeof(w.rest))
		return -ENAMETOOLONG;
	rc = arrive(&w, openat(dirfd, *path == '/' ? "/" : ".", O_PATH | O_DIRECTORY | STEP));
	while (!rc && w.rest[0])
		rc = step(&w);
	if (!rc)
		rc = mfs_fence_check(dirfd, path, w.at);
	if (rc) {
		if (w.at >= 0)
			close(w.at);
		return rc;
	}
	*ret_fd = w.at;
	*st = w.st;
	return 0;
}
