#define _GNU_SOURCE
#include "fs/export/dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "formats/io/beneath.h"
#include "fs/export/journal.h"

struct below {
	int dirfd;
	mode_t mode; /* of directories that are made */
	struct mfs_error *err;
};

void mfs_export_mark(int fd)
{
	(void)fsetxattr(fd, MFS_EXPORT_MARK, "1", 1, 0);
}

static int make_dir(void *arg, const char *dir)
{
	const struct below *b = arg;
	const int fd = mfs_beneath_make_dirs(b->dirfd, dir, b->mode);

	if (fd < 0)
		return mfs_fail(b->err, fd, "cannot create directory '%s': %s", dir, strerror(-fd));
	close(fd);
	return 0;
}

mode_t mfs_export_dir_mode(const struct mfs_view *view)
{
	return 0700 | mfs_access_dir_mode(mfs_view_copy_mode(view));
}

int mfs_export_make_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err)
{
	struct below b = {dirfd, mfs_export_dir_mode(view), err};

	return mfs_view_each_dir(view, make_dir, &b);
}

static int sync_dir(void *arg, const char *dir)
{
	const struct below *b = arg;
	const int fd = mfs_beneath_open(b->dirfd, dir, O_RDONLY | O_DIRECTORY, 0);
	int rc = fd < 0 ? fd : 0;

	if (!rc) {
		mfs_export_mark(fd);
		rc = fsync(fd) ? -errno : 0;
		close(fd);
	}
	return rc ? mfs_fail(b->err, rc, "cannot make directory '%s' durable: %s", dir,
			     strerror(-rc))
		  : 0;
}

int mfs_export_sync_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err)
{
	struct below b = {dirfd, 0, err};

	return mfs_view_each_dir(view, sync_dir, &b);
}

/* ---- what an export has left ---- */

static int compare_name(const void *name, const void *file)
{
	return strcmp(name, ((const struct mfs_view_file *)file)->name);
}

static bool has_file(const struct mfs_view *view, const char *name)
{
	return !strcmp(name, MFS_EXPORT_JOURNAL) ||
	       bsearch(name, view->files, view->count, sizeof(*view->files), compare_name);
}

struct below_dir {
	const char *dir;
	size_t len;
};

/* For bsearch(): a file below the directory counts as equal to it. */
static int compare_dir(const void *dir, const void *file)
{
	const struct below_dir *d = dir;
	const char *name = ((const struct mfs_view_file *)file)->name;
	int rc = strncmp(d->dir, name, d->len);

	return rc ? rc : '/' - (int)(unsigned char)name[d->len];
}

static bool has_dir(const struct mfs_view *view, const char *dir)
{
	const struct below_dir d = {dir, strlen(dir)};

	return bsearch(&d, view->files, view->count, sizeof(*view->files), compare_dir);
}

/* Whether an export has made it. The mark tells, or its name where the file system cannot keep a
 * mark. */
static bool is_ours(int dirfd, const char *name, bool has_name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	bool ours;

	if (fd < 0)
		return false;
	ours = fgetxattr(fd, MFS_EXPORT_MARK, NULL, 0) >= 0 ||
	       (has_name && (errno == EOPNOTSUPP || errno == ENOSYS));
	close(fd);
	return ours;
}

/* ---- walking ---- */

struct walk {
	const struct mfs_view *view;
	dev_t dev; /* of the start: what is mounted in it is none of an export */
	bool known, removing, keeping; /* keeping: what the view has */
	char *foreign;		       /* path of what is not known */
	bool foreign_dir;
};

static bool is_known(const struct walk *w, const struct stat *st, int dirfd, const char *name,
		     const char *path)
{
	if (st->st_dev != w->dev)
		return false;
	if (S_ISDIR(st->st_mode))
		return is_ours(dirfd, name, has_dir(w->view, path));
	return S_ISREG(st->st_mode) &&
	       (is_ours(dirfd, name, has_file(w->view, path)) ||
		!strcmp(path, MFS_EXPORT_JOURNAL) || !strcmp(path, MFS_EXPORT_JOURNAL ".tmp"));
}

static int walk(struct walk *w, int fd, const char *above);

static int visit_dir(struct walk *w, int dirfd, const char *name, const char *path)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc = fd < 0 ? -errno : walk(w, fd, path);

	if (rc || !w->removing || (w->keeping && has_dir(w->view, path)))
		return rc;
	return unlinkat(dirfd, name, AT_REMOVEDIR) ? -errno : 0;
}

static int visit(struct walk *w, int dirfd, const char *name, const char *path)
{
	struct stat st;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (w->known && !is_known(w, &st, dirfd, name, path)) {
		w->foreign_dir = S_ISDIR(st.st_mode);
		w->foreign = strdup(path);
		return w->foreign ? -EEXIST : -ENOMEM;
	}
	if (S_ISDIR(st.st_mode))
		return visit_dir(w, dirfd, name, path);
	if (!w->removing || (w->keeping && has_file(w->view, path)))
		return 0;
	return unlinkat(dirfd, name, 0) ? -errno : 0;
}

/* Takes fd over. above: the directory's path, "" at the start. */
static int walk(struct walk *w, int fd, const char *above)
{
	DIR *dir = fdopendir(fd);
	struct dirent *d;
	int rc = 0;

	if (!dir) {
		rc = -errno;
		close(fd);
		return rc;
	}
	while (!rc && (d = readdir(dir))) {
		char *path;

		if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, ".."))
			continue;
		if (asprintf(&path, "%s%s%s", above, *above ? "/" : "", d->d_name) < 0) {
			rc = -ENOMEM;
			break;
		}
		rc = visit(w, dirfd(dir), d->d_name, path);
		free(path);
	}
	closedir(dir);
	return rc;
}

static int start_walk(struct walk *w, int dirfd, const char *path, struct mfs_error *err)
{
	int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	int rc = fd < 0 || fstat(fd, &st) ? -errno : 0;

	if (rc) {
		if (fd >= 0)
			close(fd);
		return mfs_fail(err, rc, "cannot read '%s': %s", path, strerror(-rc));
	}
	w->dev = st.st_dev;
	rc = walk(w, fd, "");
	if (rc && w->foreign)
		mfs_error_set(err, rc,
			      "'%s' holds %s that are not from an export, such as '%s': move them "
			      "elsewhere; nothing was changed",
			      path, w->foreign_dir ? "directories" : "files", w->foreign);
	else if (rc)
		mfs_error_set(err, rc, "cannot %s '%s': %s", w->removing ? "clear" : "read", path,
			      strerror(-rc));
	free(w->foreign);
	w->foreign = NULL;
	return rc;
}

int mfs_export_check_known(int dirfd, const char *path, const struct mfs_view *view,
			   struct mfs_error *err)
{
	struct walk w = {.view = view, .known = true};

	return start_walk(&w, dirfd, path, err);
}

int mfs_export_sweep(int dirfd, const char *path, const struct mfs_view *view,
		     enum mfs_sweep_kind what, struct mfs_error *err)
{
	struct walk w = {
		.view = view,
		.known = what == MFS_SWEEP_KNOWN,
		.removing = true,
		.keeping = what == MFS_SWEEP_FOREIGN,
	};
	int rc = w.known ? mfs_export_check_known(dirfd, path, view, err) : 0;

	return rc ? rc : start_walk(&w, dirfd, path, err);
}
