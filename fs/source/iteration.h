/*
 * One iteration directory as fs/source/root.c keeps it, or an HF directory, which is looked at
 * once. Private to root*.c and iteration*.c.
 *
 * An iteration never changes once it stands in a snapshot: when the directory becomes another one,
 * or complete, or incomplete for another reason, a new object takes its place. What readers see is
 * constant; marker, stamp and what was checked belong to the thread that refreshes; what is opened
 * of it (iteration_open.c) is fs/view/keeper.h's, so that a refresh never waits for files to be
 * read.
 */
#ifndef MFS_FS_SOURCE_ITERATION_H
#define MFS_FS_SOURCE_ITERATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/source/save.h"
#include "fs/view/keeper.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

struct mfs_ckpt;
struct mfs_fileset;

struct mfs_iteration {
	char *name, *path;
	int64_t number;	    /* -1: release, or a directory that is named neither so nor iter_* */
	char *reason;	    /* NULL: complete */
	const char *format; /* static */
	bool hf;	    /* an HF directory */
	int64_t mtime_ns;
	const struct mfs_view_options *options;

	bool held;	  /* not opened: it is not to be shown whatever its files are */
	char *marker;	  /* of a complete iteration: the file whose change tells of a new save */
	uint64_t stamp;	  /* state of the directory when it was looked at */
	uint64_t content; /* of a complete iteration: its files */
	struct mfs_save save; /* likewise */
	/* Of an incomplete one: the save that was shown before, if there is one; an older
	 * iteration's, which stays. */
	const struct mfs_save *last;
	uint64_t tried; /* the stamp of all files when they were found to be no whole save, or 0 */
	atomic_bool suspect; /* a reader has met a source that had changed: to be looked at */

	struct mfs_ckpt *checked; /* what the look has opened, until mfs_iteration_end_check() */

	struct mfs_open_set ckpts; /* iteration_open.c */
	struct mfs_views views;

	struct mfs_iteration *older; /* chain of all that a root ever made */
};

/* The directory holds .metadata, metadata.json, *.distcp or mp_rank_*. */
bool mfs_iteration_looks_like_one(const char *path);

/*
 * The iteration as it is now: before itself if nothing has changed, or while it is being saved
 * again (some files are of the save that it stands for and some are not, which nobody must be shown
 * as one) (before may be NULL), else a new object. hold: why it must not be shown whatever its
 * files are (then it is not opened), or NULL. -ENOENT if the directory is gone, -ENOMEM; an
 * incomplete iteration is a success with a reason.
 */
int mfs_iteration_look(const char *path, const char *name, int64_t number,
		       const struct mfs_view_options *options, struct mfs_keeper *keeper,
		       const char *hold, struct mfs_iteration *before, struct mfs_iteration **ret,
		       struct mfs_error *err);
/* An HF directory, likewise: one that cannot be shown is a success with a reason. */
int mfs_iteration_look_hf(const char *path, const char *name,
			  const struct mfs_view_options *options, struct mfs_keeper *keeper,
			  struct mfs_iteration **ret, struct mfs_error *err);
/* The iteration is no longer shown: what is open of it is closed as soon as nobody uses it, so that
 * the disk space of files that were deleted is given back. */
void mfs_iteration_let_go(struct mfs_iteration *it);

/* Closes what is open of it and nobody uses. */
void mfs_iteration_close_idle(struct mfs_iteration *it);

/* The end of a look: the checkpoint that it has opened is kept for whoever comes, or freed. */
void mfs_iteration_end_check(struct mfs_iteration *it, bool keep);
void mfs_iteration_free(struct mfs_iteration *it);

/* For iteration.c: what was opened. */
void mfs_iteration_init_open(struct mfs_iteration *it, struct mfs_keeper *keeper);
void mfs_iteration_release_open(struct mfs_iteration *it);
/* What tells one save from another, and the time of the newest file. */
uint64_t mfs_iteration_content(const struct mfs_fileset *files, int64_t *ret_newest);

#endif
