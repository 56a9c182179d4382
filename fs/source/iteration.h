/*
 * An iteration directory, or an HF directory, which is looked at only once. Private to root*.c and
 * iteration*.c.
 *
 * An iteration in a snapshot does not change. If the directory is replaced, becomes complete, or is
 * incomplete for another reason, a new object takes its place. So readers see constant fields.
 * marker, stamp and checked belong to the thread that refreshes. The keeper (fs/view/keeper.h) has
 * what is open (iteration_open.c), so a refresh never waits for files to be read.
 */
#ifndef MFS_FS_SOURCE_ITERATION_H
#define MFS_FS_SOURCE_ITERATION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/source/iteration_save.h"
#include "fs/view/keeper.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

struct mfs_ckpt;
struct mfs_fileset;

struct mfs_iteration {
	char *name, *path;
	int64_t number;	    /* -1: release, or a directory of another name */
	char *reason;	    /* NULL: complete */
	const char *format; /* static */
	bool hf;	    /* an HF directory */
	int64_t mtime_ns;
	const struct mfs_view_options *options;

	bool held;	      /* not opened: it must not be shown, whatever its files are */
	char *marker;	      /* complete iteration: the file that changes with a new save */
	uint64_t stamp;	      /* state of the directory at the last look */
	uint64_t content;     /* complete iteration: hash of its files */
	uint64_t identity;    /* the same, on all machines that see the files */
	struct mfs_save save; /* complete iteration: its files */
	/* Incomplete iteration: the save that was shown before; it belongs to an older object,
	 * which stays. */
	const struct mfs_save *last;
	uint64_t tried;	     /* stamp of all files when they were not one whole save; 0: never */
	atomic_bool suspect; /* a reader has met a changed source: the next look is thorough */
	struct mfs_ckpt *checked; /* opened by the look, until mfs_iteration_end_check() */

	struct mfs_open_set ckpts; /* iteration_open.c */
	struct mfs_views views;

	struct mfs_iteration *older; /* chain of all that a root ever made */
};

/* True if the directory has .metadata, metadata.json, *.distcp or mp_rank_*. */
bool mfs_iteration_looks_like_one(const char *path);

/*
 * Looks at an iteration. *ret is before if nothing has changed, else a new object. It is before too
 * while the iteration is being saved again: files of two saves must not be shown as one. before may
 * be NULL. hold: why it must not be shown whatever its files are, or NULL; with hold it is not
 * opened. An incomplete iteration is a success with a reason. -ENOENT: the directory is gone;
 * -ENOMEM.
 */
int mfs_iteration_look(const char *path, const char *name, int64_t number,
		       const struct mfs_view_options *options, struct mfs_keeper *keeper,
		       const char *hold, struct mfs_iteration *before, struct mfs_iteration **ret,
		       struct mfs_error *err);
/* Like mfs_iteration_look(), for an HF directory. One that cannot be shown is a success with a
 * reason. */
int mfs_iteration_look_hf(const char *path, const char *name,
			  const struct mfs_view_options *options, struct mfs_keeper *keeper,
			  struct mfs_iteration **ret, struct mfs_error *err);
/* Like mfs_iteration_look_hf(), for one that cannot be shown, and why. path: of a directory that is
 * there. */
int mfs_iteration_refuse(const char *path, const char *name, const struct mfs_view_options *options,
			 struct mfs_keeper *keeper, const char *why, struct mfs_iteration **ret,
			 struct mfs_error *err);
/* The iteration is no longer shown. All that is open of it is closed when nobody uses it, so that
 * deleted files give their disk space back. */
void mfs_iteration_let_go(struct mfs_iteration *it);

/* Closes all that is open of it and not in use. */
void mfs_iteration_close_idle(struct mfs_iteration *it);

/* Ends a look. keep: the checkpoint that it has opened stays open for the next user; else it is
 * freed. */
void mfs_iteration_end_check(struct mfs_iteration *it, bool keep);
void mfs_iteration_free(struct mfs_iteration *it);

/* For iteration.c (iteration_open.c). */
/* Opens the model of its files as they are now, with proof if the options demand it. */
int mfs_iteration_read_model(const struct mfs_iteration *it, struct mfs_ckpt **ret,
			     struct mfs_error *err);
void mfs_iteration_init_open(struct mfs_iteration *it, struct mfs_keeper *keeper);
void mfs_iteration_release_open(struct mfs_iteration *it);
/* A hash that differs between two saves. *ret_newest: time of the newest file, ns. */
uint64_t mfs_iteration_content(const struct mfs_fileset *files, int64_t *ret_newest);

#endif
