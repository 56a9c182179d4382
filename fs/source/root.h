/*
 * SOURCE as a person names it: a checkpoint root with its iterations, one iteration directory, an
 * HF directory, which counts as one iteration that has no directory of its own, or datasets
 * (fs/data/data.h). Datasets may stand beside each of the others.
 *
 * A root lives: a training run adds iterations and moves its tracker. mfs_root_refresh() looks
 * again and adds what has become complete; what was once shown stays valid until mfs_root_free().
 * Readers take a snapshot pointer and need no lock. An HF directory stays as it was when it was
 * opened. An iteration's checkpoint and its views are opened when somebody needs them.
 */
#ifndef MFS_FS_SOURCE_ROOT_H
#define MFS_FS_SOURCE_ROOT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "formats/base/error.h"
#include "fs/view/view.h"

struct mfs_ckpt;
struct mfs_data;
struct mfs_dataset;
struct mfs_held;
struct mfs_iteration;
struct stat;
struct statvfs;
struct mfs_root;
struct mfs_views;

/* Checkpoints and views of iterations that stay open while nobody uses them, for the next one who
 * does. */
#define MFS_KEEP_OPEN 8

/* The iterations as of one look, complete or not, ascending by number ("release" first). */
struct mfs_root_snapshot {
	struct mfs_iteration **iterations;
	uint32_t count;
	struct mfs_iteration *latest; /* NULL: nothing complete that the tracker names */
	const char *latest_reason;    /* why latest is NULL */
	const char *tracker; /* what the tracker says ("40", "release"); NULL without one */
};

/* -ENOENT, -ENOTDIR; -ENODATA if SOURCE is none of these (the message says what was looked for);
 * with opt->may_be_empty, a directory that is empty, or holds nothing but logs of a run, is a
 * checkpoint root; what mfs_data_open() fails with. An incomplete iteration is not an error here.
 * opt is copied, but for its data, which must outlive the root; for an HF directory, its ref is the
 * directory itself unless another one is given. */
int mfs_root_open(const char *source, const struct mfs_view_options *opt, struct mfs_root **ret,
		  struct mfs_error *err);
void mfs_root_free(struct mfs_root *root);

const char *mfs_root_source(const struct mfs_root *root);
/* The directory, or for a prefix its .idx. Sets errno. */
int mfs_root_stat(const struct mfs_root *root, struct stat *ret);
/* The path of that. */
int mfs_root_path(const struct mfs_root *root, char *ret, size_t size);
/* The file system that it lies on. -errno. */
int mfs_root_statvfs(const struct mfs_root *root, struct statvfs *ret);
/* False: SOURCE is an HF directory, and latest of the snapshot is the model; or datasets. */
bool mfs_root_has_iterations(const struct mfs_root *root);
/* False: datasets alone; the snapshot is empty. */
bool mfs_root_has_model(const struct mfs_root *root);
/* NULL: none. */
struct mfs_data *mfs_root_data(const struct mfs_root *root);
/* Looks at the directory again; at most once a second unless forced. */
int mfs_root_refresh(struct mfs_root *root, bool force, struct mfs_error *err);
const struct mfs_root_snapshot *mfs_root_snapshot(struct mfs_root *root);

const char *mfs_iteration_path(const struct mfs_iteration *it);	  /* absolute */
const char *mfs_iteration_name(const struct mfs_iteration *it);	  /* "iter_0000040", "release" */
const char *mfs_iteration_format(const struct mfs_iteration *it); /* "torch", "torch_dist", "hf" */
/* NULL if complete, else why it is not shown. */
const char *mfs_iteration_reason(const struct mfs_iteration *it);
/* Its views (fs/view/views.h). They fail as its checkpoint does. */
struct mfs_views *mfs_iteration_views(struct mfs_iteration *it);
int64_t mfs_iteration_mtime(const struct mfs_iteration *it); /* ns */
/* Somebody has met a source of it that is not the one that was opened: the next look is a thorough
 * one. Any thread. */
void mfs_iteration_suspect(struct mfs_iteration *it);

/*
 * A checkpoint is opened when it is asked for, and let go of when nobody holds it
 * (fs/view/keeper.h). -ESTALE: its files are no longer those that were looked at. full: with its
 * state and, unless no_optim was said, its optimizer, which is what Megatron views are made of;
 * else its model. The object is a struct mfs_ckpt.
 */
int mfs_iteration_hold_ckpt(struct mfs_iteration *it, bool full, struct mfs_held **ret,
			    struct mfs_error *err);
/* The same for commands, which end soon: what these return stays until the root is freed. */
int mfs_iteration_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err);
int mfs_iteration_full_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err);

/* A directory of the tree, as a VIEW argument names it. */
#define MFS_VIEW_NAME_SIZE 256
struct mfs_place {
	struct mfs_iteration *iteration; /* NULL: of a dataset, or of none */
	struct mfs_dataset *dataset;	 /* NULL with iteration NULL: "data" itself */
	struct mfs_views *views;	 /* of either; NULL: "data" */
	/* The view, or the directory above views, within the iteration or dataset, without '/' at
	 * its ends: "hf", "megatron/torch/tp2-pp1", "megatron/torch", "megatron", "samples", "". */
	char view[MFS_VIEW_NAME_SIZE];
};

#define MFS_PLACE_NAME (256 + MFS_VIEW_NAME_SIZE)

/* "iter_0000040/hf", or "hf" of an HF directory, for messages; returns text. */
const char *mfs_place_name(const struct mfs_root *root, const struct mfs_place *place,
			   char text[MFS_PLACE_NAME]);

/* "hf", "megatron/torch_dist" (of the latest), "latest/hf", "iter_0000040/hf"; of an HF directory
 * without the iteration; "data/NAME/hf" of a dataset. NULL means "hf", or that of the only dataset.
 * That there is such a layout or spec has not been looked at. -ENOENT with what could have been
 * named; -ENODATA: there is no latest. */
int mfs_root_find(struct mfs_root *root, const char *name, struct mfs_place *ret,
		  struct mfs_error *err);

/* Resolves and opens a view as ls, verify and export take it. -ENOENT if the name is none of a
 * view. ret_place may be NULL. */
int mfs_root_view(struct mfs_root *root, const char *name, struct mfs_view **ret,
		  struct mfs_place *ret_place, struct mfs_error *err);

#endif
