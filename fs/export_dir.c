#define _GNU_SOURCE
#include "fs/export_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/export_journal.h"

struct below {
	int dirfd;
	struct mfs_error *err;
};

static int make_dir(void *arg, const char *dir)
{
	const struct below *b = arg;

	if (!mkdirat(b->dirfd, dir, 0755) || errno == EEXIST)
		return 0;
	return mfs_fail(b->err, -errno, "cannot create directory '%s': %s", dir, strerror(errno));
}

int mfs_export_make_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err)
{
	struct below b = {dirfd, err};

	return mfs_view_each_dir(view, make_dir, &b);
}

static int sync_dir(void *arg, const char *dir)
{
	const struct below *b = arg;
	int fd = openat(b->dirfd, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc = fd < 0 || fsync(fd) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return rc ? mfs_fail(b->err, rc, "cannot make directory '%s' durable: %s", dir,
			     strerror(-rc))
		  : 0;
}

int mfs_export_sync_dirs(int dirfd, const struct mfs_view *view, struct mfs_error *err)
{
	struct below b = {dirfd, err};

	return mfs_view_each_dir(view, sync_dir, &b);
}

static bool has_dir(const struct mfs_view *view, const char *dir)
{
	size_t len = strlen(dir);

	for (uint32_t i = 0; i < view->count; i++)
		if (!strncmp(view->files[i].name, dir, len) && view->files[i].name[len] == '/')
			return true;
	return false;
}

static bool has_file(const struct mfs_view *view, const char *name)
{
	for (uint32_t i = 0; i < view->count; i++)
		if (!strcmp(view->files[i].name, name))
			return true;
	return !strcmp(name, MFS_EXPORT_JOURNAL);
}

/* ---- walking ---- */

struct walk {
	const struct mfs_view *view;
	/* Of an entry, as its path from the start of the walk and as a name in an open directory. */
	int (*enter)(const struct walk *w,
		     const char *path); /* a directory: may it be looked into? */
	int (*leave)(const struct walk *w, int dirfd, const char *name, const char *path);
	int (*file)(const struct walk *w, int dirfd, const char *name, const char *path);
	enum mfs_sweep what;
};

static int walk(const struct walk *w, int fd, const char *above);

static int visit(const struct walk *w, int dirfd, const char *name, const char *path)
{
	struct stat st;
	int fd, rc;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return w->file ? w->file(w, dirfd, name, path) : 0;
	rc = w->enter(w, path);
	if (rc)
		return rc;
	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	rc = walk(w, fd, path);
	return rc || !w->leave ? rc : w->leave(w, dirfd, name, path);
}

/* Takes fd over. above: the directory's path, "" at the start. */
static int walk(const struct walk *w, int fd, const char *above)
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

static int start_walk(const struct walk *w, const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : walk(w, fd, "");
}

static int enter_known(const struct walk *w, const char *path)
{
	return has_dir(w->view, path) ? 0 : -EEXIST;
}

int mfs_export_check_dirs(const char *path, const struct mfs_view *view, struct mfs_error *err)
{
	const struct walk w = {.view = view, .enter = enter_known};
	int rc = start_walk(&w, path);

	if (rc == -EEXIST)
		return mfs_fail(err, rc,
				"'%s' holds directories that are none of this view: remove it "
				"yourself",
				path);
	return rc ? mfs_fail(err, rc, "cannot read '%s': %s", path, strerror(-rc)) : 0;
}

static int enter_swept(const struct walk *w, const char *path)
{
	return w->what == MFS_SWEEP_KNOWN ? enter_known(w, path) : 0;
}

static int leave_swept(const struct walk *w, int dirfd, const char *name, const char *path)
{
	if (w->what == MFS_SWEEP_FOREIGN && has_dir(w->view, path))
		return 0;
	return unlinkat(dirfd, name, AT_REMOVEDIR) ? -errno : 0;
}

static int sweep_file(const struct walk *w, int dirfd, const char *name, const char *path)
{
	if (w->what == MFS_SWEEP_FOREIGN && has_file(w->view, path))
		return 0;
	return unlinkat(dirfd, name, 0) ? -errno : 0;
}

int mfs_export_sweep(const char *path, const struct mfs_view *view, enum mfs_sweep what)
{
	const struct walk w = {
		.view = view,
		.enter = enter_swept,
		.leave = leave_swept,
		.file = sweep_file,
		.what = what,
	};

	return start_walk(&w, path);
}
