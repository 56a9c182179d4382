#define _GNU_SOURCE
#include "fs/source/iteration.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/read/marks.h"
#include "fs/source/root.h"
#include "formats/megatron/tracker.h"
#include "formats/model/hf_ckpt.h"

/* FNV-1a tells states of a directory apart. It need not resist attacks. */
#define STAMP_START 0xcbf29ce484222325ull

static uint64_t stamp_add(uint64_t stamp, const void *bytes, size_t len)
{
	const uint8_t *p = bytes;

	while (len--)
		stamp = (stamp ^ *p++) * 0x100000001b3ull;
	return stamp;
}

static uint64_t stamp_stat(uint64_t stamp, const struct stat *st)
{
	const uint64_t v[] = {
		(uint64_t)st->st_dev,	      (uint64_t)st->st_ino,	     (uint64_t)st->st_size,
		(uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec,
	};

	return stamp_add(stamp, v, sizeof(v));
}

static int stat_in(const char *path, const char *name, struct stat *st)
{
	char *full;
	int rc;

	if (asprintf(&full, "%s/%s", path, name) < 0)
		return -ENOMEM;
	rc = stat(full, st) ? -errno : 0;
	free(full);
	return rc;
}

bool mfs_iteration_looks_like_one(const char *path)
{
	struct mfs_marks marks;
	bool found;

	if (mfs_marks_list(path, &marks))
		return false;
	found = marks.count > 0;
	mfs_marks_release(&marks);
	return found;
}

/* The stamp of an incomplete iteration covers every file, since any of them may still be
 * written. */
static int stamp_all(const char *path, uint64_t *ret)
{
	uint64_t stamp = STAMP_START;
	struct mfs_marks marks;
	struct stat st;
	int rc = mfs_marks_list(path, &marks);

	if (rc)
		return rc;
	for (size_t i = 0; i < marks.count; i++) {
		stamp = stamp_add(stamp, marks.list[i], strlen(marks.list[i]));
		if (!stat_in(path, marks.list[i], &st))
			stamp = stamp_stat(stamp, &st);
	}
	mfs_marks_release(&marks);
	*ret = stamp;
	return 0;
}

/* The stamp of a complete iteration costs two stats a look, for any number of files. */
static int stamp_marker(const char *path, const char *marker, uint64_t *ret)
{
	struct stat dir, file;
	int rc;

	if (stat(path, &dir))
		return -errno;
	rc = stat_in(path, marker, &file);
	if (rc)
		return rc;
	*ret = stamp_stat(stamp_stat(STAMP_START, &dir), &file);
	return 0;
}

/* NULL: no save has come to its end there. */
static char *choose_marker(const char *path)
{
	char name[PATH_MAX];

	return mfs_marks_last(path, name, sizeof(name)) ? NULL : strdup(name);
}

static const char *guess_format(const char *path)
{
	const char *format = "unknown";
	struct mfs_marks marks;

	if (mfs_marks_list(path, &marks))
		return format;
	if (marks.format)
		format = marks.format->name;
	mfs_marks_release(&marks);
	return format;
}

uint64_t mfs_iteration_content(const struct mfs_fileset *files, int64_t *ret_newest)
{
	int64_t newest = 0;

	for (uint32_t i = 0; i < mfs_fileset_count(files); i++)
		if (mfs_fileset_mtime(files, i) > newest)
			newest = mfs_fileset_mtime(files, i);
	*ret_newest = newest;
	return mfs_fileset_stamp(files);
}

void mfs_iteration_free(struct mfs_iteration *it)
{
	if (!it)
		return;
	mfs_iteration_release_open(it);
	free(it->name);
	free(it->path);
	free(it->reason);
	free(it->marker);
	mfs_save_release(&it->save);
	free(it);
}

static struct mfs_iteration *iteration_new(const char *path, const char *name, int64_t number,
					   const struct mfs_view_options *options,
					   struct mfs_keeper *keeper)
{
	struct mfs_iteration *it = calloc(1, sizeof(*it));

	if (!it)
		return NULL;
	mfs_iteration_init_open(it, keeper);
	it->name = strdup(name);
	it->path = strdup(path);
	it->number = number;
	it->options = options;
	it->format = "unknown";
	if (!it->name || !it->path) {
		mfs_iteration_free(it);
		return NULL;
	}
	return it;
}

static int fill_incomplete(struct mfs_iteration *it, const char *reason)
{
	struct stat st;

	if (stat(it->path, &st))
		return -errno;
	it->mtime_ns = mfs_ns(st.st_mtim);
	it->format = it->hf ? mfs_ckpt_format_hf.name : guess_format(it->path);
	it->reason = strdup(reason);
	return it->reason ? 0 : -ENOMEM;
}

static int fill_complete(struct mfs_iteration *it, struct mfs_ckpt *ckpt)
{
	const struct mfs_view_origin origin = {
		.options = it->options, .ckpt = ckpt, .number = it->number};

	it->checked = ckpt;
	it->format = mfs_ckpt_format(ckpt)->name;
	it->content = mfs_iteration_content(mfs_ckpt_files(ckpt), &it->mtime_ns);
	it->identity = mfs_fileset_identity(mfs_ckpt_files(ckpt));
	return mfs_views_look(&it->views, &origin, mfs_fileset_access(mfs_ckpt_files(ckpt)),
			      it->mtime_ns);
}

/* A reader's message begins with the path, which is dropped: the iteration's name is printed with
 * it. */
static const char *without_path(const char *msg, const char *path)
{
	size_t len = strlen(path);

	if (strncmp(msg, path, len))
		return msg;
	if (msg[len] == '/')
		return msg + len + 1;
	return strncmp(msg + len, ": ", 2) ? msg : msg + len + 2;
}

/* Stamps are taken before files are opened, so that the next look sees a change in between. all:
 * the stamp of all files; 0: not taken. */
static int examine(struct mfs_iteration *it, uint64_t all)
{
	struct mfs_ckpt *ckpt = NULL;
	struct mfs_error why;

	it->marker = choose_marker(it->path);
	if (it->marker && stamp_marker(it->path, it->marker, &it->stamp))
		it->stamp = 0;
	if (!mfs_iteration_read_model(it, &ckpt, &why)) {
		const int rc = fill_complete(it, ckpt);

		return rc ? rc : mfs_save_note(mfs_ckpt_files(ckpt), &it->save);
	}
	free(it->marker);
	it->marker = NULL;
	it->stamp = all;
	return fill_incomplete(it, without_path(why.msg, it->path));
}

/* True if the files have not changed since the look at before. *ret_all: the stamp of all files, if
 * it was taken. */
static bool unchanged(const struct mfs_iteration *before, uint64_t *ret_all)
{
	uint64_t stamp = 0;

	if (before->reason || before->tried) {
		if (stamp_all(before->path, &stamp))
			return false;
		*ret_all = stamp;
		return stamp == (before->reason ? before->stamp : before->tried);
	}
	return before->marker && !stamp_marker(before->path, before->marker, &stamp) &&
	       stamp == before->stamp;
}

/* True if a new look has the same result. before then stays and gets the new stamp. */
static bool same_result(struct mfs_iteration *before, struct mfs_iteration *now)
{
	if (!before || !before->reason != !now->reason)
		return false;
	if (now->reason ? strcmp(before->reason, now->reason) : before->content != now->content)
		return false;
	before->stamp = now->stamp;
	free(before->marker);
	before->marker = now->marker;
	now->marker = NULL;
	return true;
}

void mfs_iteration_suspect(struct mfs_iteration *it)
{
	atomic_store(&it->suspect, true);
}

/* ---- saved again ---- */

static bool is_mixture(const struct mfs_save *last, const struct mfs_save *now, uint32_t *ret_same)
{
	uint32_t other;

	mfs_save_compare(last, now, ret_same, &other);
	return *ret_same && other;
}

/* True if a complete iteration is now incomplete because its files are being replaced one by
 * one. It stays: a file that was replaced is an error for its reader, and the others are as they
 * were. */
static bool stays(struct mfs_iteration *before, const struct mfs_iteration *now)
{
	uint64_t stamp;
	uint32_t same;

	if (!now->reason)
		return is_mixture(&before->save, &now->save, &same);
	return before->marker && !stamp_marker(before->path, before->marker, &stamp) &&
	       stamp == before->stamp;
}

/* A complete iteration may be a mixture of two saves, which is refused. */
static int refuse_mixture(struct mfs_iteration *it, const struct mfs_save *last, uint64_t all)
{
	char reason[128];
	uint32_t same;

	if (it->reason || !last || !is_mixture(last, &it->save, &same))
		return 0;
	snprintf(reason, sizeof(reason),
		 "it is being saved again: %u of %u files are still of the save before", same,
		 it->save.count);
	mfs_iteration_end_check(it, false);
	mfs_save_release(&it->save);
	free(it->marker);
	it->marker = NULL;
	it->stamp = all;
	return fill_incomplete(it, reason);
}

static const struct mfs_save *last_save(const struct mfs_iteration *before)
{
	if (!before || before->hf)
		return NULL;
	return before->reason ? before->last : &before->save;
}

int mfs_iteration_look(const char *path, const char *name, int64_t number,
		       const struct mfs_view_options *options, struct mfs_keeper *keeper,
		       const char *hold, struct mfs_iteration *before, struct mfs_iteration **ret,
		       struct mfs_error *err)
{
	const bool complete = before && !before->reason;
	const bool suspect = complete && atomic_exchange(&before->suspect, false);
	struct mfs_iteration *it;
	uint64_t all = 0;
	int rc;

	if (before && before->held && hold && !strcmp(before->reason, hold))
		goto keep;
	if (before && !before->held && !hold && unchanged(before, &all) &&
	    (!suspect || before->tried))
		goto keep;
	if (complete && stamp_all(path, &all))
		all = 0;
	it = iteration_new(path, name, number, options, keeper);
	if (!it)
		return mfs_fail_nomem(err);
	it->held = hold;
	rc = hold ? fill_incomplete(it, hold) : examine(it, all);
	if (!rc && !complete)
		rc = refuse_mixture(it, last_save(before), all);
	if (rc) {
		mfs_iteration_free(it);
		return mfs_fail(err, rc, "%s: %s", path, mfs_errno_text(-rc));
	}
	if (complete && !hold && stays(before, it)) {
		before->tried = all;
	} else if (same_result(before, it)) {
		before->tried = suspect ? all : 0;
	} else {
		it->last = it->reason ? last_save(before) : NULL;
		*ret = it;
		return 0;
	}
	mfs_iteration_free(it);
keep:
	*ret = before;
	return 0;
}

/* An HF directory is not written while it is shown, so it is looked at once. */
int mfs_iteration_look_hf(const char *path, const char *name,
			  const struct mfs_view_options *options, struct mfs_keeper *keeper,
			  struct mfs_iteration **ret, struct mfs_error *err)
{
	struct mfs_iteration *it = iteration_new(path, name, MFS_RELEASE, options, keeper);
	struct mfs_ckpt *ckpt = NULL;
	struct mfs_error why;
	int rc = 0;

	if (!it)
		return mfs_fail_nomem(err);
	it->hf = true;
	if (mfs_iteration_read_model(it, &ckpt, &why))
		rc = fill_incomplete(it, without_path(why.msg, path));
	else
		rc = fill_complete(it, ckpt);
	if (rc) {
		mfs_iteration_free(it);
		return mfs_fail(err, rc, "%s: %s", path, mfs_errno_text(-rc));
	}
	*ret = it;
	return 0;
}

int mfs_iteration_refuse(const char *path, const char *name, const struct mfs_view_options *options,
			 struct mfs_keeper *keeper, const char *why, struct mfs_iteration **ret,
			 struct mfs_error *err)
{
	struct mfs_iteration *it = iteration_new(path, name, MFS_RELEASE, options, keeper);
	int rc;

	if (!it)
		return mfs_fail_nomem(err);
	it->hf = true;
	rc = fill_incomplete(it, without_path(why, path));
	if (rc) {
		mfs_iteration_free(it);
		return mfs_fail(err, rc, "%s: %s", path, mfs_errno_text(-rc));
	}
	*ret = it;
	return 0;
}

const char *mfs_iteration_path(const struct mfs_iteration *it)
{
	return it->path;
}

const char *mfs_iteration_name(const struct mfs_iteration *it)
{
	return it->name;
}

const char *mfs_iteration_format(const struct mfs_iteration *it)
{
	return it->format;
}

const char *mfs_iteration_reason(const struct mfs_iteration *it)
{
	return it->reason;
}

struct mfs_views *mfs_iteration_views(struct mfs_iteration *it)
{
	return &it->views;
}

uint64_t mfs_iteration_identity(const struct mfs_iteration *it)
{
	return it->identity;
}

int64_t mfs_iteration_mtime(const struct mfs_iteration *it)
{
	return it->mtime_ns;
}
