#define _GNU_SOURCE
#include "fs/overlay/overlay.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/io/walk.h"
#include "fs/overlay/overlay_i.h"
#include "fs/source/readers.h"

/* ---- DIR ---- */

static int open_dir(const char *dir, bool read_only, struct mfs_error *err)
{
	int fd;

	if (!read_only && mkdir(dir, 0700) && errno != EEXIST)
		return mfs_fail_errno(err, "%s", dir);
	fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return mfs_fail_errno(err, "%s", dir);
	if (faccessat(fd, ".", read_only ? R_OK | X_OK : R_OK | W_OK | X_OK, AT_EACCESS)) {
		int rc = mfs_fail_errno(err, "%s", dir);

		close(fd);
		return rc;
	}
	return fd;
}

int mfs_overlay_open(const char *dir, bool read_only, struct mfs_overlay **ret,
		     struct mfs_error *err)
{
	struct mfs_overlay *o = calloc(1, sizeof(*o));
	char *name = strdup(dir);
	int fd = open_dir(dir, read_only, err);

	if (!o || !name || fd < 0) {
		free(o);
		free(name);
		if (fd < 0)
			return fd;
		close(fd);
		return mfs_fail_nomem(err);
	}
	o->name = name;
	o->dir = fd;
	o->is_root = geteuid() == 0;
	if (getrandom(&o->generation, sizeof(o->generation), 0) < 0)
		o->generation = (uint32_t)mfs_now_ns();
	pthread_mutex_init(&o->lock, NULL);
	*ret = o;
	return 0;
}

static void free_files(struct mfs_overlay_file *f)
{
	while (f) {
		struct mfs_overlay_file *next = f->next;

		close(f->fd);
		free(f);
		f = next;
	}
}

void mfs_overlay_free(struct mfs_overlay *o)
{
	if (!o)
		return;
	for (unsigned i = 0; i < MFS_OVERLAY_BUCKETS; i++)
		free_files(o->buckets[i]);
	pthread_mutex_destroy(&o->lock);
	close(o->dir);
	free(o->name);
	free(o);
}

int mfs_overlay_rights(struct mfs_overlay *o, bool gives_files, struct mfs_error *err)
{
	o->is_root = o->is_root && gives_files;
	if (faccessat(o->dir, ".", R_OK | W_OK | X_OK, AT_EACCESS))
		return mfs_fail_errno(err, "dataset_cache: %s", o->name);
	return 0;
}

/* ---- directories below it ---- */

static bool is_plain(const char *name, size_t len)
{
	if (len == 0 || len > NAME_MAX)
		return false;
	return name[0] != '.' || (len > 1 && (len > 2 || name[1] != '.'));
}

static int open_below(int fd, const char *name)
{
	int next = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return next < 0 ? -errno : next;
}

/* Gives a new directory DIR's owner and mode, without rights for users who may not read the
 * sources. */
static int make_like_dir(const struct mfs_overlay *o, int fd, struct mfs_readers *readers)
{
	struct stat own;

	if (fstat(o->dir, &own) || (o->is_root && fchown(fd, own.st_uid, own.st_gid)) ||
	    fchmod(fd, mfs_overlay_narrow(readers, own.st_mode & 01777, own.st_uid, own.st_gid)))
		return -errno;
	return fd;
}

static int make_below(const struct mfs_overlay *o, int fd, const char *name,
		      struct mfs_readers *readers)
{
	int next, rc;

	if (mkdirat(fd, name, 0700))
		return errno == EEXIST ? open_below(fd, name) : -errno;
	next = open_below(fd, name);
	rc = next < 0 ? next : make_like_dir(o, next, readers);
	if (rc < 0 && next >= 0)
		close(next);
	return rc;
}

/* Replaces *fd by the directory name in it. */
static int step(const struct mfs_overlay *o, int *fd, const char *name, bool make,
		struct mfs_readers *readers)
{
	int next = open_below(*fd, name);

	if (next == -ENOENT && make)
		next = make_below(o, *fd, name, readers);
	if (next < 0)
		return next;
	close(*fd);
	*fd = next;
	return 0;
}

/* Opens DIR/path; -errno. make: missing directories are made, for readers. */
static int walk_for(const struct mfs_overlay *o, const char *path, bool make,
		    struct mfs_readers *readers)
{
	int fd = fcntl(o->dir, F_DUPFD_CLOEXEC, 3), rc = fd < 0 ? -errno : 0;
	char name[NAME_MAX + 1];

	while (!rc && *path) {
		size_t len = strcspn(path, "/");

		if (is_plain(path, len)) {
			memcpy(name, path, len);
			name[len] = '\0';
			rc = step(o, &fd, name, make, readers);
		} else {
			rc = -EINVAL;
		}
		path += len + (path[len] == '/');
	}
	if (!rc)
		return fd;
	if (fd >= 0)
		close(fd);
	return rc;
}

static int walk(const struct mfs_overlay *o, const char *path)
{
	return walk_for(o, path, false, NULL);
}

static int fail_at(const struct mfs_overlay *o, const char *path, const char *name, int code,
		   struct mfs_error *err)
{
	const char *why = code == -ELOOP	     ? "a symbolic link, which is not followed"
			  : code == -EACCES && *name ? "cannot be used as a file of the cache"
						     : strerror(-code);

	return mfs_fail(err, code, "%s/%s%s%s: %s", o->name, path, *name ? "/" : "", name, why);
}

bool mfs_overlay_takes(const char *name)
{
	return !strncmp(name, "cache-", 6) || (!strncmp(name, "tmp", 3) && name[3]);
}

/* ---- files in them ---- */

/* Opens a name with O_PATH if it is a regular file. */
static int open_path(int dir, const char *name, struct stat *st)
{
	int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return -errno;
	if (fstat(fd, st))
		rc = -errno;
	else if (!S_ISREG(st->st_mode))
		rc = S_ISLNK(st->st_mode) ? -ELOOP : -EACCES;
	if (!rc)
		return fd;
	close(fd);
	return rc;
}

static int find_at(struct mfs_overlay *o, int dir, const char *name, struct mfs_overlay_file **ret)
{
	struct stat st;
	int fd = open_path(dir, name, &st);

	return fd < 0 ? fd : mfs_overlay_adopt(o, fd, &st, ret);
}

int mfs_overlay_lookup(struct mfs_overlay *o, const char *path, const char *name,
		       struct mfs_overlay_file **ret, struct mfs_error *err)
{
	int dir, rc;

	if (!mfs_overlay_takes(name))
		return fail_at(o, path, name, -ENOENT, err);
	dir = walk(o, path);
	if (dir < 0)
		return fail_at(o, path, "", dir, err);
	rc = find_at(o, dir, name, ret);
	close(dir);
	return rc ? fail_at(o, path, name, rc, err) : 0;
}

/* The owner is set first, since only an owner may set some modes. */
static int own(const struct mfs_overlay *o, int fd, const struct mfs_overlay_new *how)
{
	struct stat st;

	if ((o->is_root && fchown(fd, how->uid, how->gid)) || fstat(fd, &st) ||
	    fchmod(fd, mfs_overlay_narrow(how->readers, how->mode & 0777, st.st_uid, st.st_gid)))
		return -errno;
	return 0;
}

/* Counts a lookup of an open file. */
static int adopt_open(struct mfs_overlay *o, int fd, struct mfs_overlay_file **ret)
{
	struct stat st;
	char self[40];
	int path;

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	path = open(self, O_PATH | O_CLOEXEC);
	if (path < 0)
		return -errno;
	if (fstat(path, &st)) {
		int rc = -errno;

		close(path);
		return rc;
	}
	return mfs_overlay_adopt(o, path, &st, ret);
}

static int make_at(struct mfs_overlay *o, int dir, const char *name,
		   const struct mfs_overlay_new *how, struct mfs_overlay_file **ret, int *ret_fd)
{
	const int flags = O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(dir, name, flags | (how->flags & O_ACCMODE), 0600), rc;

	if (fd < 0)
		return -errno;
	rc = own(o, fd, how);
	if (!rc)
		rc = adopt_open(o, fd, ret);
	if (rc) {
		unlinkat(dir, name, 0);
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

static int open_at(struct mfs_overlay *o, int dir, const char *name,
		   const struct mfs_overlay_new *how, struct mfs_overlay_file **ret, int *ret_fd)
{
	struct mfs_overlay_file *f;
	int rc = find_at(o, dir, name, &f);
	bool same;

	if (rc)
		return rc;
	rc = mfs_overlay_file_open(o, f, how->flags, ret_fd, &same);
	if (rc)
		mfs_overlay_forget(o, f, 1);
	else
		*ret = f;
	return rc;
}

int mfs_overlay_create(struct mfs_overlay *o, const char *path, const char *name,
		       const struct mfs_overlay_new *how, struct mfs_overlay_file **ret,
		       int *ret_fd, struct mfs_error *err)
{
	int dir, rc;

	if (!mfs_overlay_takes(name))
		return fail_at(o, path, name, -EROFS, err);
	dir = walk_for(o, path, true, how->readers);
	if (dir < 0)
		return fail_at(o, path, "", dir, err);
	rc = make_at(o, dir, name, how, ret, ret_fd);
	if (rc == -EEXIST && !(how->flags & O_EXCL))
		rc = open_at(o, dir, name, how, ret, ret_fd);
	close(dir);
	return rc ? fail_at(o, path, name, rc, err) : 0;
}

int mfs_overlay_unlink(struct mfs_overlay *o, const char *path, const char *name)
{
	int dir, rc;

	if (!mfs_overlay_takes(name))
		return -EROFS;
	dir = walk(o, path);
	if (dir < 0)
		return dir;
	rc = unlinkat(dir, name, 0) ? -errno : 0;
	close(dir);
	return rc;
}

int mfs_overlay_rename(struct mfs_overlay *o, const char *path, const char *name,
		       const char *new_path, const char *new_name, struct mfs_readers *new_readers,
		       unsigned flags)
{
	int from, to, rc;

	if (!mfs_overlay_takes(name) || !mfs_overlay_takes(new_name))
		return -EROFS;
	/* RENAME_WHITEOUT would leave a device in the old place. */
	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE))
		return -EINVAL;
	from = walk(o, path);
	if (from < 0)
		return from;
	to = walk_for(o, new_path, true, new_readers);
	if (to < 0)
		rc = to;
	else
		rc = renameat2(from, name, to, new_name, flags) ? -errno : 0;
	if (to >= 0)
		close(to);
	close(from);
	return rc;
}

/* ---- listing ---- */

static int name_order(const void *a, const void *b)
{
	const struct mfs_overlay_entry *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static bool is_regular(DIR *dir, const struct dirent *d)
{
	struct stat st;

	if (d->d_type != DT_UNKNOWN)
		return d->d_type == DT_REG;
	return !fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode);
}

static int add_name(struct mfs_overlay_names *names, const struct dirent *d)
{
	char *copy = mfs_grow(&names->entries, names->count) ? NULL : strdup(d->d_name);

	if (!copy)
		return -ENOMEM;
	names->entries[names->count++] = (struct mfs_overlay_entry){copy, d->d_ino};
	return 0;
}

static int read_names(DIR *dir, struct mfs_overlay_names *names)
{
	struct dirent *d;
	int rc = 0;

	while (!rc && (errno = 0, d = readdir(dir))) {
		if (mfs_overlay_takes(d->d_name) && is_regular(dir, d))
			rc = add_name(names, d);
	}
	return rc ? rc : -errno;
}

int mfs_overlay_list(struct mfs_overlay *o, const char *path, struct mfs_overlay_names *ret,
		     struct mfs_error *err)
{
	struct mfs_overlay_names names = {0};
	int fd = walk(o, path), rc;
	DIR *dir;

	if (fd < 0 && fd != -ENOENT)
		return fail_at(o, path, "", fd, err);
	if (fd >= 0) {
		dir = fdopendir(fd);
		rc = dir ? read_names(dir, &names) : -ENOMEM;
		if (dir)
			closedir(dir);
		else
			close(fd);
		if (rc) {
			mfs_overlay_names_release(&names);
			return fail_at(o, path, "", rc, err);
		}
	}
	if (names.count)
		qsort(names.entries, names.count, sizeof(*names.entries), name_order);
	*ret = names;
	return 0;
}

void mfs_overlay_names_release(struct mfs_overlay_names *names)
{
	for (uint32_t i = 0; i < names->count; i++)
		free((char *)names->entries[i].name);
	free(names->entries);
	*names = (struct mfs_overlay_names){0};
}

/* ---- attributes ---- */

static bool is_later(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

static void take_time(const struct mfs_overlay *o, const char *path, struct stat *st)
{
	int dir = walk(o, path);
	struct stat own;

	if (dir < 0)
		return;
	if (!fstat(dir, &own) && is_later(&own.st_mtim, &st->st_mtim))
		st->st_mtim = st->st_ctim = own.st_mtim;
	close(dir);
}

/* For a mount by root. One owner and group can be shown: those that let the most users write who
 * may write in DIR and read the sources. If there are none, those that let the most users read. */
static void show_roots(const struct mfs_overlay *o, const struct stat *own,
		       const struct mfs_access_fold *sources, struct stat *st)
{
	struct mfs_access_fold both = {0};
	struct mfs_access write, told;
	mode_t read;

	mfs_access_name(&both, own);
	mfs_walk_count(o->dir, own, MFS_ACCESS_WRITE | MFS_ACCESS_SEARCH, &both);
	mfs_access_merge(&both, sources);
	write = mfs_access_told(&both);
	told = write.mode ? write : mfs_access_told(sources);
	read = mfs_access_mode(mfs_access_classes(sources, told.uid, told.gid));
	st->st_uid = told.uid;
	st->st_gid = told.gid;
	st->st_mode =
		S_IFDIR | mfs_access_dir_mode(read) | write.mode >> 1 | (own->st_mode & S_ISVTX);
}

static void show_own(const struct stat *own, const struct mfs_access_fold *sources, struct stat *st)
{
	const unsigned classes = mfs_access_classes(sources, geteuid(), own->st_gid);

	st->st_uid = geteuid();
	st->st_gid = own->st_gid;
	st->st_mode = S_IFDIR | 0700 | mfs_access_dir_mode(mfs_access_mode(classes));
}

void mfs_overlay_dir_stat(struct mfs_overlay *o, const char *path, struct mfs_readers *readers,
			  struct stat *st)
{
	struct mfs_access_fold sources = {0};
	struct stat own;

	if (fstat(o->dir, &own))
		return;
	if (readers)
		sources = mfs_readers_fold(readers);
	if (o->is_root)
		show_roots(o, &own, &sources, st);
	else
		show_own(&own, &sources, st);
	take_time(o, path, st);
}

int mfs_overlay_statvfs(struct mfs_overlay *o, struct statvfs *ret)
{
	return fstatvfs(o->dir, ret) ? -errno : 0;
}
