/*
 * The directories that saves go to.
 *
 * --save may be a link, or have links on its way: it is a person's path, and is followed once, when
 * the run first comes there. Everything after that happens in the directory that was found: a user
 * who may write in it or in its parent cannot lead a save elsewhere. A path that later leads to
 * another directory is an error, not another place.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/lock.h"
#include "trainer/ckpt/save_i.h"

/* Saves that do not stay lie below --save, unless they have a directory of their own. */
static bool lies_below(const struct mft_saver *s, enum mft_save_kind kind)
{
	return kind == MFT_SAVE_NON_PERSISTENT && !s->config->non_persistent_global_ckpt_dir;
}

static int open_below(struct mft_saver *s, struct mft_save_home *h, struct mfs_error *err)
{
	const int above = s->homes[MFT_SAVE_PERSISTENT].fd;
	struct stat st;

	/* Nobody has made it in a person's name but that person. */
	if (!fstatat(above, MFT_NON_PERSISTENT_DIR, &st, AT_SYMLINK_NOFOLLOW) &&
	    S_ISLNK(st.st_mode))
		return mfs_fail(err, -ELOOP,
				"'%s' is a link, and links below --save are not followed: name "
				"what it leads to with --non-persistent-global-ckpt-dir",
				h->dir);
	h->fd = mfs_beneath_make_dirs(above, MFT_NON_PERSISTENT_DIR, 0777);
	return h->fd < 0 ? h->fd : 0;
}

static int open_home(struct mft_saver *s, enum mft_save_kind kind, struct mfs_error *err)
{
	struct mft_save_home *h = &s->homes[kind];
	int rc = 0;

	if (h->fd >= 0)
		return 0;
	if (lies_below(s, kind)) {
		rc = open_home(s, MFT_SAVE_PERSISTENT, err);
		if (!rc)
			rc = open_below(s, h, err);
		if (rc == -ELOOP)
			return rc;
	} else {
		h->fd = s->parallel->launch.rank ? open(h->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
						 : mfs_open_path(h->dir, 0777, 0777);
		if (h->fd < 0)
			rc = s->parallel->launch.rank ? -errno : h->fd;
	}
	if (!rc)
		return 0;
	h->fd = -1;
	return mfs_fail(err, rc, "--save: cannot create directory '%s': %s", h->dir, strerror(-rc));
}

static int lock_home(struct mft_save_home *h, struct mfs_error *err)
{
	bool none;
	int rc;

	h->lock_fd = mfs_beneath_open(h->fd, MFT_SAVE_LOCK, O_RDWR | O_CREAT, 0666);
	if (h->lock_fd < 0) {
		rc = h->lock_fd;
		return mfs_fail(err, rc, "--save: cannot open '%s/" MFT_SAVE_LOCK "': %s", h->dir,
				strerror(-rc));
	}
	rc = mfs_lock_try(h->lock_fd, &none);
	h->locked = !none;
	if (rc == -EBUSY)
		return mfs_fail(err, rc, "--save: another process saves into '%s'", h->dir);
	return rc ? mfs_fail(err, rc, "--save: cannot lock '%s/" MFT_SAVE_LOCK "': %s", h->dir,
			     strerror(-rc))
		  : 0;
}

/* Saves that do not stay remove everything else in their directory. */
static int check_apart(const struct mft_saver *s, struct mfs_error *err)
{
	const struct mft_save_home *a = &s->homes[MFT_SAVE_PERSISTENT];
	const struct mft_save_home *b = &s->homes[MFT_SAVE_NON_PERSISTENT];
	struct stat x, y;

	if (b->fd < 0 || fstat(a->fd, &x) || fstat(b->fd, &y) || x.st_dev != y.st_dev ||
	    x.st_ino != y.st_ino)
		return 0;
	return mfs_fail(err, -EINVAL,
			"--non-persistent-global-ckpt-dir: expected another directory than that "
			"of --save, found '%s'",
			b->dir);
}

/* checkpointing.py: save_checkpoint. */
static int name_homes(struct mft_saver *s, struct mfs_error *err)
{
	const struct mft_train_config *c = s->config;
	struct mft_save_home *passing = &s->homes[MFT_SAVE_NON_PERSISTENT];

	s->homes[MFT_SAVE_PERSISTENT].dir = strdup(c->save);
	if (c->non_persistent_save_interval > 0 && !c->non_persistent_global_ckpt_dir) {
		if (asprintf(&passing->dir, "%s/" MFT_NON_PERSISTENT_DIR, c->save) < 0)
			passing->dir = NULL;
	} else if (c->non_persistent_save_interval > 0) {
		passing->dir = strdup(c->non_persistent_global_ckpt_dir);
	}
	if (!s->homes[MFT_SAVE_PERSISTENT].dir ||
	    (c->non_persistent_save_interval > 0 && !passing->dir))
		return mfs_fail_nomem(err);
	return 0;
}

int mft_save_homes(struct mft_saver *s, struct mfs_error *err)
{
	int rc = name_homes(s, err);

	/* The first process has the directory to itself, for all of them. */
	for (int i = 0; i < MFT_SAVE_KINDS && !rc && !s->parallel->launch.rank; i++) {
		if (!s->homes[i].dir)
			continue;
		rc = open_home(s, i, err);
		if (!rc)
			rc = check_apart(s, err);
		if (!rc)
			rc = lock_home(&s->homes[i], err);
		s->dirfd = s->homes[i].fd;
		if (!rc)
			mft_save_clean(s);
	}
	return rc;
}

/* Whether the path still leads to the open directory. */
static int check_same(const struct mft_saver *s, enum mft_save_kind kind, struct mfs_error *err)
{
	const struct mft_save_home *h = &s->homes[kind];
	struct stat held, named = {0};
	int rc;

	if (lies_below(s, kind))
		rc = fstatat(s->homes[MFT_SAVE_PERSISTENT].fd, MFT_NON_PERSISTENT_DIR, &named,
			     AT_SYMLINK_NOFOLLOW);
	else
		rc = stat(h->dir, &named);
	if ((rc && errno != ENOENT && errno != ENOTDIR) || fstat(h->fd, &held))
		return mfs_fail_errno(err, "--save: '%s'", h->dir);
	if (!rc && held.st_dev == named.st_dev && held.st_ino == named.st_ino)
		return 0;
	return mfs_fail(err, -ESTALE,
			"--save: '%s' is not the directory that it was when the run began: move it "
			"back, or start the run again to save into the new one",
			h->dir);
}

int mft_save_home(struct mft_saver *s, struct mfs_error *err)
{
	const struct mft_save_home *h = &s->homes[s->kind];
	int rc = open_home(s, s->kind, err);

	if (rc)
		return rc;
	s->dirfd = h->fd;
	rc = check_same(s, s->kind, err);
	return rc || !lies_below(s, s->kind) ? rc : check_same(s, MFT_SAVE_PERSISTENT, err);
}

void mft_save_homes_release(struct mft_saver *s)
{
	for (int i = 0; i < MFT_SAVE_KINDS; i++) {
		struct mft_save_home *h = &s->homes[i];

		free(h->dir);
		if (h->fd >= 0)
			close(h->fd);
		if (h->lock_fd >= 0)
			close(h->lock_fd);
	}
}
