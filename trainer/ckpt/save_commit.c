/*
 * A whole save: a directory that appears whole or not at all.
 *
 *   iter_N.tmp/            all processes write and sync their files
 *                          they agree that all have; the rest is the first process's
 *                          common.pt and others, .metadata last
 *                          --ckpt-format torch: made of these, which go (save_torch.c)
 *   iter_N.tmp -> iter_N   by rename; an older iter_N changes places with it
 *   the tracker            by rename
 *
 * What a save leaves that does not end is a directory iter_N.tmp, which nobody reads; the next run
 * removes it. Old iterations are removed when the new tracker is durable.
 *
 * Sources: megatron/training/checkpointing.py: save_checkpoint; dist_checkpointing/validation.py:
 * save_integrity_manifest.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/megatron/tracker.h"
#include "trainer/ckpt/save_i.h"

#define UNFINISHED ".tmp"

struct commit {
	struct mft_saver *s;
	const struct mft_save_system_ops *sys;
	struct mfs_io_engine *engine;
	char final[64], tmp[64];	  /* names in the saver's directory */
	struct mft_save_place at;	  /* that of tmp, while files are written */
	char (*digests)[MFT_SAVE_DIGEST]; /* of the large files */
	struct mfs_buf manifest;
	bool replaced; /* tmp is an older iteration */
	struct mfs_error *err;
};

/* ---- names ---- */

static void name_of(char name[64], uint64_t iteration)
{
	snprintf(name, 64, "iter_%07llu", (unsigned long long)iteration);
}

static void add_ending(char ret[64], const char *name, const char *ending)
{
	snprintf(ret, 64, "%.50s%s", name, ending);
}

static bool is_there(const struct mft_saver *s, const char *name)
{
	struct stat st;

	return !fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW);
}

/* "iter_0000040.tmp": the iteration's name without the ending. */
static bool has_ending(const char *name, const char *ending, char ret[64])
{
	int64_t number;

	if (!mfs_str_ends(name, ending) || strlen(name) >= 64)
		return false;
	snprintf(ret, 64, "%.*s", (int)(strlen(name) - strlen(ending)), name);
	return mfs_iteration_number(ret, &number) && number >= 0;
}

/* ---- removing ---- */

/* A name in the saver's directory, and what is in it. A link is removed itself. What cannot be
 * removed stays. */
static void remove_tree(const struct mft_saver *s, const char *name)
{
	mfs_beneath_remove(s->dirfd, name, s->system.remove, s->system.arg);
}

/* An iteration that made room comes back, if the new one did not come. */
static void bring_back(struct mft_saver *s, const char *aside, const char *name)
{
	if (is_there(s, name))
		remove_tree(s, aside);
	else
		s->system.rename(s->system.arg, s->dirfd, aside, name);
}

/* The saver's directory, to be listed. */
static DIR *list_names(const struct mft_saver *s)
{
	const int fd = mfs_beneath_open(s->dirfd, ".", O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir && fd >= 0)
		close(fd);
	return dir;
}

void mft_save_clean(struct mft_saver *s)
{
	DIR *dir = list_names(s);
	struct dirent *d;
	char name[64];

	while (dir && (d = readdir(dir))) {
		if (!strcmp(d->d_name, MFS_TRACKER_FILE UNFINISHED) ||
		    has_ending(d->d_name, UNFINISHED, name))
			remove_tree(s, d->d_name);
		else if (has_ending(d->d_name, MFT_SAVE_ASIDE, name))
			bring_back(s, d->d_name, name);
	}
	if (dir)
		closedir(dir);
}

/* ---- writing ---- */

static bool is_alone(const struct mft_saver *s)
{
	return s->parallel->launch.size == 1;
}

static bool is_first(const struct mft_saver *s)
{
	return !s->parallel->launch.rank;
}

static int enter_tmp(struct commit *c)
{
	int rc = c->sys->mkdir(c->sys->arg, c->s->dirfd, c->tmp);

	if (!rc || (rc == -EEXIST && !is_alone(c->s)))
		rc = c->sys->open_dir(c->sys->arg, c->s->dirfd, c->tmp, &c->at.fd);
	if (rc)
		c->at.fd = -1;
	return rc;
}

/* Of many processes the first one to come makes it, and nobody knows whether others have begun. So
 * only what is no directory makes way. */
static int make_tmp(struct commit *c)
{
	int rc;

	if (is_alone(c->s))
		remove_tree(c->s, c->tmp);
	rc = enter_tmp(c);
	if (rc == -ENOTDIR || rc == -ELOOP) {
		c->sys->remove(c->sys->arg, c->s->dirfd, c->tmp, 0);
		rc = enter_tmp(c);
	}
	return rc ? mfs_fail(c->err, rc, "cannot create directory '%s': %s", c->at.path,
			     strerror(-rc))
		  : 0;
}

static void note(struct commit *c, const char *name, const char *digest)
{
	mfs_buf_adds(&c->manifest, c->manifest.len ? ",\n    " : "\n    ");
	mfs_buf_add_json(&c->manifest, name);
	mfs_buf_printf(&c->manifest, ": \"%s\"", digest);
}

static int write_small(struct commit *c, const char *name, const void *bytes, uint64_t length)
{
	char digest[MFT_SAVE_DIGEST];
	int rc = mft_save_write_small(c->s, &c->at, name, bytes, length, c->engine, c->err);

	if (rc)
		return rc;
	c->s->result.bytes += length;
	if (strchr(name, '/')) /* the manifest has the files of the directory itself */
		return 0;
	rc = mft_save_sum(c->sys, name, bytes, length, digest, c->err);
	if (!rc)
		note(c, name, digest);
	return rc;
}

static int write_common(struct commit *c)
{
	struct mfs_buf bytes = {0};
	int rc = mft_save_common(c->s->config, c->s->params, &c->s->progress, &bytes, c->err);

	if (!rc && bytes.failed)
		rc = mfs_fail_nomem(c->err);
	if (!rc)
		rc = write_small(c, "common.pt", bytes.data, bytes.len);
	mfs_buf_release(&bytes);
	return rc;
}

static int write_manifest(struct commit *c)
{
	struct mfs_buf text = {0};
	int rc;

	mfs_buf_adds(&text, "{\n  \"algorithm\": \"sha256\",\n  \"files\": {");
	mfs_buf_add(&text, c->manifest.data, c->manifest.len);
	mfs_buf_adds(&text, "\n  }\n}");
	rc = text.failed || c->manifest.failed
		     ? mfs_fail_nomem(c->err)
		     : mft_save_write_small(c->s, &c->at, "integrity.json", text.data, text.len,
					    c->engine, c->err);
	c->s->result.bytes += text.len;
	mfs_buf_release(&text);
	return rc;
}

static int write_tokenizer(struct commit *c)
{
	int rc = 0;

	if (!c->s->tokenizer_count)
		return 0;
	rc = c->sys->mkdir(c->sys->arg, c->at.fd, "tokenizer");
	if (rc == -EEXIST && !is_alone(c->s))
		rc = 0;
	if (rc)
		return mfs_fail(c->err, rc, "cannot create directory '%s/tokenizer': %s",
				c->at.path, strerror(-rc));
	for (uint32_t i = 0; i < c->s->tokenizer_count && !rc; i++)
		rc = write_small(c, c->s->tokenizer[i].name, c->s->tokenizer[i].bytes.data,
				 c->s->tokenizer[i].bytes.len);
	return rc;
}

static int write_mark(struct commit *c)
{
	static const char text[] = "a later run that saves here removes this iteration\n";

	return c->s->owns ? write_small(c, MFT_SAVE_OWN, text, strlen(text)) : 0;
}

/* .metadata makes the directory a checkpoint, so it comes last; the manifest has its sum. */
static int write_index(struct commit *c)
{
	const struct mfs_buf *metadata = &c->s->plan.metadata;
	char digest[MFT_SAVE_DIGEST];
	int rc = write_small(c, "metadata.json", mfs_megatron_dist_json,
			     strlen(mfs_megatron_dist_json));

	if (!rc)
		rc = mft_save_sum(c->sys, ".metadata", metadata->data, metadata->len, digest,
				  c->err);
	if (rc)
		return rc;
	note(c, ".metadata", digest);
	if (!c->s->config->saves_torch)
		rc = write_manifest(c);
	if (rc)
		return rc;
	c->s->result.bytes += metadata->len;
	return mft_save_write_small(c->s, &c->at, ".metadata", metadata->data, metadata->len,
				    c->engine, c->err);
}

/* path: for the message. */
static int sync_dir(const struct commit *c, int fd, const char *path)
{
	const int rc = c->sys->sync_dir(c->sys->arg, fd);

	return rc ? mfs_fail(c->err, rc, "cannot make '%s' durable: %s", path, strerror(-rc)) : 0;
}

static int sync_below(const struct commit *c, const char *name)
{
	int fd, rc = c->sys->open_dir(c->sys->arg, c->at.fd, name, &fd);

	if (rc)
		return mfs_fail(c->err, rc, "cannot open '%s/%s': %s", c->at.path, name,
				strerror(-rc));
	rc = sync_dir(c, fd, name);
	close(fd);
	return rc;
}

static int sync_dirs(struct commit *c)
{
	const int rc = c->s->tokenizer_count ? sync_below(c, "tokenizer") : 0;

	return rc ? rc : sync_dir(c, c->at.fd, c->at.path);
}

/* The item of random states, which a large file has among others. */
static int update_rng(const struct commit *c)
{
	struct mfs_buf *item = &c->s->plan.rng, bytes = {0};
	int rc;

	if (!item->len)
		return 0;
	rc = mft_save_rng(c->s->config, c->s->parallel, c->s->progress.iteration, &bytes, c->err);
	if (!rc && bytes.failed)
		rc = mfs_fail_nomem(c->err);
	if (!rc && bytes.len != item->len)
		rc = mfs_fail(c->err, -EINVAL, "random states have %zu bytes: expected %zu",
			      bytes.len, item->len);
	if (!rc)
		memcpy(item->data, bytes.data, bytes.len);
	mfs_buf_release(&bytes);
	return rc;
}

/* The files of this process. */
static int write_own(struct commit *c)
{
	int rc = make_tmp(c);

	if (!rc)
		rc = update_rng(c);
	if (!rc)
		rc = mft_save_write(c->s, &c->at, c->digests, c->engine, c->err);
	if (!rc)
		c->s->result.bytes += c->s->plan.bytes;
	return rc;
}

/* A file that another process has written. Where processes do not see the same directory it is not
 * there. */
static int note_other(struct commit *c, const struct mft_save_other *o)
{
	char name[MFS_DIST_FILE_NAME_SIZE];
	struct stat st;

	mfs_dist_file_name(name, o->process, o->number);
	if (fstatat(c->at.fd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size != o->size)
		return mfs_fail(c->err, -ENOENT,
				"'%s/%s' is not as rank %u has written it; --save: expected a "
				"directory that all processes share",
				c->at.path, name, o->process);
	c->s->result.bytes += o->size;
	note(c, name, c->s->reports[o->process].digests[o->number]);
	return 0;
}

static int note_large(struct commit *c)
{
	const struct mft_save_plan *p = &c->s->plan;
	int rc = 0;

	for (uint32_t i = 0; i < p->file_count; i++)
		note(c, p->files[i].name, c->digests[i]);
	for (uint32_t i = 0; i < p->other_count && !rc; i++)
		rc = note_other(c, &p->others[i]);
	return rc;
}

/* What is no process's own, when all have written theirs. */
static int write_rest(struct commit *c)
{
	int rc = note_large(c);

	if (!rc)
		rc = write_common(c);
	if (!rc)
		rc = write_tokenizer(c);
	if (!rc)
		rc = write_mark(c);
	if (!rc)
		rc = write_index(c);
	if (!rc && c->s->config->saves_torch)
		rc = mft_save_torch(c->s, &c->at, c->engine, &c->s->result.bytes, c->err);
	return rc ? rc : sync_dirs(c);
}

/* ---- the names ---- */

/* Without renameat2() the older one makes room. A crash in between leaves it aside, and the next
 * run brings it back. */
static int make_room(struct commit *c)
{
	const struct mft_save_system_ops *sys = c->sys;
	const int dir = c->s->dirfd;
	char aside[64];
	int rc;

	add_ending(aside, c->final, MFT_SAVE_ASIDE);
	rc = sys->rename(sys->arg, dir, c->final, aside);
	if (rc)
		return rc;
	rc = sys->rename(sys->arg, dir, c->tmp, c->final);
	if (rc) {
		sys->rename(sys->arg, dir, aside, c->final);
		return rc;
	}
	return sys->rename(sys->arg, dir, aside, c->tmp);
}

/* What others have copied to a saver's own directory stays. */
static bool may_remove(const struct mft_saver *s, uint64_t iteration)
{
	return !s->owns || mft_save_is_own(s, iteration);
}

static int show(struct commit *c)
{
	const int dir = c->s->dirfd;
	int rc;

	c->replaced = is_there(c->s, c->final);
	if (c->replaced && !may_remove(c->s, c->s->progress.iteration))
		return mfs_fail(c->err, -EEXIST, "'%s/%s' is of another run", c->s->dir, c->final);
	if (c->replaced) {
		rc = c->sys->exchange(c->sys->arg, dir, c->tmp, c->final);
		if (rc == -EINVAL || rc == -ENOSYS)
			rc = make_room(c);
	} else {
		rc = c->sys->rename(c->sys->arg, dir, c->tmp, c->final);
	}
	return rc ? mfs_fail(c->err, rc, "cannot rename '%s' to '%s': %s", c->at.path, c->final,
			     strerror(-rc))
		  : 0;
}

/* Who may write in the directory may have put something else in its place before it was renamed. */
static int check_shown(const struct commit *c)
{
	struct stat held, shown;

	if (!fstat(c->at.fd, &held) &&
	    !fstatat(c->s->dirfd, c->final, &shown, AT_SYMLINK_NOFOLLOW) &&
	    held.st_dev == shown.st_dev && held.st_ino == shown.st_ino)
		return 0;
	return mfs_fail(c->err, -ESTALE, "'%s' was replaced while it was written", c->at.path);
}

/* The names as they were before show(). */
static void hide(struct commit *c)
{
	const int dir = c->s->dirfd;

	if (!c->replaced)
		c->sys->rename(c->sys->arg, dir, c->final, c->tmp);
	else if (c->sys->exchange(c->sys->arg, dir, c->tmp, c->final))
		make_room(c);
}

static int write_tracker(struct commit *c)
{
	static const char name[] = MFS_TRACKER_FILE UNFINISHED;
	struct mft_save_place home = {.fd = c->s->dirfd};
	char text[32];
	const int length =
		snprintf(text, sizeof(text), "%llu", (unsigned long long)c->s->progress.iteration);
	int rc;

	snprintf(home.path, sizeof(home.path), "%s", c->s->dir);
	rc = mft_save_write_small(c->s, &home, name, text, (uint64_t)length, c->engine, c->err);
	if (!rc) {
		rc = c->sys->rename(c->sys->arg, home.fd, name, MFS_TRACKER_FILE);
		if (rc)
			mfs_fail(c->err, rc, "cannot write '%s/" MFS_TRACKER_FILE "': %s",
				 c->s->dir, strerror(-rc));
	}
	if (rc)
		remove_tree(c->s, name);
	return rc;
}

static int commit(struct commit *c)
{
	int rc = write_rest(c);

	if (!rc)
		rc = show(c);
	if (rc) {
		remove_tree(c->s, c->tmp);
		return rc;
	}
	rc = check_shown(c);
	if (!rc)
		rc = sync_dir(c, c->s->dirfd, c->s->dir);
	if (!rc)
		rc = write_tracker(c);
	if (rc) {
		hide(c);
		remove_tree(c->s, c->tmp);
		return rc;
	}
	/* The tracker names the new one already: it stays, whatever the disk says. */
	rc = sync_dir(c, c->s->dirfd, c->s->dir);
	if (!rc && c->replaced)
		remove_tree(c->s, c->tmp);
	return rc;
}

/* ---- retention ---- */

void mft_save_remove_iteration(struct mft_saver *s, uint64_t iteration)
{
	char name[64], tmp[64];
	struct stat st;

	name_of(name, iteration);
	add_ending(tmp, name, UNFINISHED);
	/* Megatron leaves links alone, too. */
	if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISDIR(st.st_mode))
		return;
	if (!s->system.rename(s->system.arg, s->dirfd, name, tmp))
		remove_tree(s, tmp);
}

static bool is_retained(const struct mft_saver *s, uint64_t iteration)
{
	const int64_t interval = s->config->save_retain_interval;

	return interval > 0 && iteration % (uint64_t)interval == 0;
}

static int descending(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x < y) - (x > y);
}

uint64_t *mft_save_iterations(const struct mft_saver *s, uint64_t most, size_t *ret_count)
{
	DIR *dir = list_names(s);
	uint64_t *list = NULL;
	struct dirent *d;
	int64_t number;

	*ret_count = 0;
	while (dir && (d = readdir(dir))) {
		if (!mfs_iteration_number(d->d_name, &number) || number < 0 ||
		    (uint64_t)number > most)
			continue;
		if (mfs_grow(&list, *ret_count))
			break;
		list[(*ret_count)++] = (uint64_t)number;
	}
	if (dir)
		closedir(dir);
	if (*ret_count)
		qsort(list, *ret_count, sizeof(*list), descending);
	return list;
}

/* All but the last ones; and those that --save-retain-interval keeps, if anything does. */
static void keep_last(struct mft_saver *s, size_t last, bool retains)
{
	size_t count, seen = 0;
	uint64_t *list = mft_save_iterations(s, s->progress.iteration, &count);

	for (size_t i = 0; i < count; i++)
		if (may_remove(s, list[i]) && seen++ >= last &&
		    (!retains || !is_retained(s, list[i])))
			mft_save_remove_iteration(s, list[i]);
	free(list);
}

/* --save-retain-interval: the iteration that was the latest goes, unless its number is a multiple.
 * --save-keep-last: so go all but the last ones. Of saves that are not persistent one stays. */
static void remove_old(struct mft_saver *s, const struct mfs_tracker *before)
{
	if (s->kind == MFT_SAVE_NON_PERSISTENT) {
		keep_last(s, 1, false);
		return;
	}
	if (s->config->save_retain_interval > 0 && before->kind == MFS_TRACKER_NUMBER &&
	    before->number > 0 && (uint64_t)before->number != s->progress.iteration &&
	    !is_retained(s, (uint64_t)before->number))
		mft_save_remove_iteration(s, (uint64_t)before->number);
	if (s->config->save_keep_last > 0)
		keep_last(s, (size_t)s->config->save_keep_last, true);
}

/* ---- the whole ---- */

static int begin(struct commit *c)
{
	struct mft_saver *s = c->s;
	int rc = mft_save_home(s, c->err);

	if (rc)
		return rc;
	name_of(c->final, s->progress.iteration);
	add_ending(c->tmp, c->final, UNFINISHED);
	if ((size_t)snprintf(c->at.path, sizeof(c->at.path), "%s/%s", s->dir, c->tmp) >=
	    sizeof(c->at.path))
		rc = mfs_fail(c->err, -ENAMETOOLONG, "path '%.200s/%s' is too long", s->dir,
			      c->tmp);
	if (!rc)
		rc = s->system.engine(s->system.arg, MFT_SAVE_DEPTH, &c->engine, c->err);
	if (rc)
		return rc;
	snprintf(s->engine, sizeof(s->engine), "%s", mfs_io_engine_name(c->engine));
	s->result.engine = s->engine;
	c->digests = c->sys->alloc(c->sys->arg, MFT_SAVE_LANES * sizeof(*c->digests));
	return c->digests ? write_own(c) : mfs_fail_nomem(c->err);
}

/* rc: of what all processes have written. */
static int end(struct commit *c, int rc)
{
	struct mfs_tracker before = {0};

	if (!is_first(c->s))
		return rc;
	if (rc) {
		if (c->tmp[0])
			remove_tree(c->s, c->tmp);
		return rc;
	}
	mfs_tracker_read(c->s->dir, &before);
	rc = commit(c);
	if (!rc)
		remove_old(c->s, &before);
	return rc;
}

int mft_save_iteration(struct mft_saver *s, struct mfs_error *err)
{
	struct commit c = {.s = s, .sys = &s->system, .at = {.fd = -1}, .err = err};
	int rc = begin(&c);

	rc = end(&c, mft_save_await_others(s, rc, c.digests, err));
	if (c.at.fd >= 0)
		close(c.at.fd);
	mfs_io_engine_free(c.engine);
	mfs_buf_release(&c.manifest);
	free(c.digests);
	return rc;
}
