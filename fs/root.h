/*
 * SOURCE as a person names it: a checkpoint root with its iterations, or one iteration directory.
 *
 * A root lives: a training run adds iterations and moves its tracker. mfs_root_refresh() looks again
 * and adds what has become complete; what was once shown stays valid until mfs_root_free(). Readers
 * take a snapshot pointer and need no lock. An iteration's checkpoint and its HF view are opened on
 * first use, once (a lock per iteration, held while opening alone).
 */
#ifndef MFS_FS_ROOT_H
#define MFS_FS_ROOT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "formats/base/error.h"
#include "fs/view.h"

struct mfs_ckpt;
struct mfs_iteration;
struct mfs_root;

/* The iterations as of one look, complete or not, ascending by number ("release" first). */
struct mfs_root_snapshot {
	struct mfs_iteration **iterations;
	uint32_t count;
	struct mfs_iteration *latest; /* NULL: nothing complete that the tracker names */
	const char *latest_reason;    /* why latest is NULL */
	const char *tracker; /* what the tracker says ("40", "release"); NULL without one */
};

/* -ENOENT, -ENOTDIR; -ENODATA if SOURCE is neither a root nor an iteration (the message says what was
 * looked for). An incomplete iteration is not an error here. opt is copied. */
int mfs_root_open(const char *source, const struct mfs_view_options *opt, struct mfs_root **ret,
		  struct mfs_error *err);
void mfs_root_free(struct mfs_root *root);

const char *mfs_root_source(const struct mfs_root *root);
/* Looks at the directory again; at most once a second unless forced. */
int mfs_root_refresh(struct mfs_root *root, bool force, struct mfs_error *err);
const struct mfs_root_snapshot *mfs_root_snapshot(struct mfs_root *root);

const char *mfs_iteration_name(const struct mfs_iteration *it);	  /* "iter_0000040", "release" */
const char *mfs_iteration_format(const struct mfs_iteration *it); /* "torch", "torch_dist" */
/* NULL if complete, else why it is not shown. */
const char *mfs_iteration_reason(const struct mfs_iteration *it);
int64_t mfs_iteration_mtime(const struct mfs_iteration *it); /* ns */

/* Opens on first use. A failure is kept and reported again on every call. */
int mfs_iteration_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err);
int mfs_iteration_hf(struct mfs_iteration *it, struct mfs_view **ret, struct mfs_error *err);

/*
 * Resolves a view's name as ls, verify and export take it: "hf" (of the latest), "latest/hf",
 * "iter_0000040/hf". NULL means "hf". -ENOENT with what could have been named.
 */
int mfs_root_view(struct mfs_root *root, const char *name, struct mfs_view **ret,
		  struct mfs_iteration **ret_iteration, struct mfs_error *err);

#endif
