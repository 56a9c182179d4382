/*
 * One iteration directory as fs/root.c keeps it. Private to root.c and iteration.c.
 *
 * An iteration never changes once it stands in a snapshot: when the directory becomes another one, or
 * complete, or incomplete for another reason, a new object takes its place. What readers see is
 * constant; marker, stamp and content belong to the thread that refreshes; the rest is under lock.
 */
#ifndef MFS_FS_ITERATION_H
#define MFS_FS_ITERATION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/view.h"

struct mfs_ckpt;

struct mfs_iteration {
	char *name, *path;
	int64_t number;	    /* -1: release, or a directory that was named itself */
	char *reason;	    /* NULL: complete */
	const char *format; /* static */
	int64_t mtime_ns;
	const struct mfs_view_options *options;

	bool held;	  /* not opened: it is not to be shown whatever its files are */
	char *marker;	  /* of a complete iteration: the file whose change tells of a new save */
	uint64_t stamp;	  /* state of the directory when it was looked at */
	uint64_t content; /* of a complete iteration: its files */

	pthread_mutex_t lock;
	bool claimed; /* handed out: ckpt stays until the end */
	struct mfs_ckpt *ckpt;
	struct mfs_error ckpt_error; /* code 0: none */
	struct mfs_view *view;
	struct mfs_error view_error;

	struct mfs_iteration *older; /* chain of all that a root ever made */
};

/* The directory holds .metadata, metadata.json, *.distcp or mp_rank_*. */
bool mfs_iteration_looks_like_one(const char *path);

/*
 * The iteration as it is now: before itself if nothing has changed (before may be NULL), else a new
 * object. hold: why it must not be shown whatever its files are (then it is not opened), or NULL.
 * -ENOENT if the directory is gone, -ENOMEM; an incomplete iteration is a success with a reason.
 */
int mfs_iteration_look(const char *path, const char *name, int64_t number,
		       const struct mfs_view_options *options, const char *hold,
		       struct mfs_iteration *before, struct mfs_iteration **ret,
		       struct mfs_error *err);
/* The iteration is no longer shown: gives back the disk space of files that were deleted. */
void mfs_iteration_let_go(struct mfs_iteration *it);

/* Frees the checkpoint that the check left, unless somebody has asked for it. */
void mfs_iteration_drop_check(struct mfs_iteration *it);
void mfs_iteration_free(struct mfs_iteration *it);

#endif
