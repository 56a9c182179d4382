/*
 * SOURCE as a person names it, by its path or a URL (formats/remote/mirror.h): a checkpoint root
 * with its iterations, one iteration directory, an HF directory, or datasets (fs/data/data.h). An
 * HF directory counts as one iteration without a name. Each of these may have datasets next to it.
 *
 * A checkpoint root changes: a training run adds iterations and moves its tracker.
 * mfs_root_refresh() looks again and adds iterations that are complete. What was once shown stays
 * valid until mfs_root_free(). Readers take a snapshot pointer without a lock. An HF directory is
 * looked at once. The checkpoint and the views of an iteration are opened when they are needed.
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
struct mfs_keeper;
struct stat;
struct statvfs;
struct mfs_root;
struct mfs_views;

/* How many unused checkpoints and views of iterations stay open for the next user. */
#define MFS_KEEP_OPEN 8

/* The iterations of one look, complete or not, sorted by number ("release" first). */
struct mfs_root_snapshot {
	struct mfs_iteration **iterations;
	uint32_t count;
	struct mfs_iteration *latest; /* NULL: the tracker names no complete iteration */
	const char *latest_reason;    /* why latest is NULL */
	const char *tracker;	      /* text of the tracker ("40", "release"); NULL: none */
};

/*
 * Opens SOURCE. With opt->may_be_empty, an empty directory, or one with only logs of a run, is a
 * checkpoint root. An incomplete iteration is no error. opt is copied; opt->data is not, and must
 * outlive the root. An HF directory is its own ref unless opt names another one. -ENOENT; -ENOTDIR;
 * -ENODATA: SOURCE is none of these, and the message says what was looked for; errors of
 * mfs_data_open().
 */
int mfs_root_open(const char *source, const struct mfs_view_options *opt, struct mfs_root **ret,
		  struct mfs_error *err);
/* Like mfs_root_open(), with a keeper of checkpoints and views that several roots share
 * (fs/view/keeper.h), and that outlives them. NULL: it has its own. */
int mfs_root_open_with(const char *source, const struct mfs_view_options *opt,
		       struct mfs_keeper *keeper, struct mfs_root **ret, struct mfs_error *err);
void mfs_root_free(struct mfs_root *root);
/* What names in a directory say that it is. Nothing is opened. */
enum mfs_root_kind { MFS_ROOT_NONE, MFS_ROOT_MODEL, MFS_ROOT_DATA };
/* Looks at the names in a directory. -errno: it cannot be read. */
int mfs_root_look(const char *dir, enum mfs_root_kind *ret);
/* Whether it is a SOURCE. */
bool mfs_root_looks_like_one(const char *dir);

/* A SOURCE as it will be called wherever the program is: its real path, or the URL. The caller
 * frees it. -ENOENT; -errno. */
int mfs_root_named(const char *source, char **ret, struct mfs_error *err);
/* Like mfs_root_named(), of an open one. */
const char *mfs_root_source(const struct mfs_root *root);
/* The directory, or for a prefix its .idx. Sets errno. */
int mfs_root_stat(const struct mfs_root *root, struct stat *ret);
/* The path of that. */
int mfs_root_path(const struct mfs_root *root, char *ret, size_t size);
/* When names in SOURCE had come or gone, or its tracker had been written, when the snapshot was
 * made; ns. 0: not known. SOURCE is not asked, which may hang. */
int64_t mfs_root_mtime(const struct mfs_root *root);
/* The file system of SOURCE. -errno. */
int mfs_root_statvfs(const struct mfs_root *root, struct statvfs *ret);
struct mfs_cache_stats;
/* What its cache has counted (formats/remote/cache.h). False: SOURCE is no URL. */
bool mfs_root_remote(const struct mfs_root *root, struct mfs_cache_stats *ret);
/* Ends threads that fetch from another machine until somebody reads again. Nobody may read
 * meanwhile. */
void mfs_root_rest(struct mfs_root *root);
/* Whether SOURCE is a directory of iterations, or one of them. False: it is an HF directory, which
 * is the snapshot's latest, or it has only datasets. */
bool mfs_root_has_iterations(const struct mfs_root *root);
/* Whether SOURCE has a model. False: it has only datasets, and the snapshot is empty. */
bool mfs_root_has_model(const struct mfs_root *root);
/* The datasets of SOURCE. NULL: it has none. */
struct mfs_data *mfs_root_data(const struct mfs_root *root);
/* Looks at SOURCE again, at most once a second unless force is set. */
int mfs_root_refresh(struct mfs_root *root, bool force, struct mfs_error *err);
const struct mfs_root_snapshot *mfs_root_snapshot(struct mfs_root *root);

const char *mfs_iteration_path(const struct mfs_iteration *it);	  /* absolute */
const char *mfs_iteration_name(const struct mfs_iteration *it);	  /* "iter_0000040", "release" */
const char *mfs_iteration_format(const struct mfs_iteration *it); /* "torch", "torch_dist", "hf" */
/* Why it is not shown. NULL: it is complete. */
const char *mfs_iteration_reason(const struct mfs_iteration *it);
/* Its views (fs/view/views.h). If its checkpoint cannot be opened, they fail with the same
 * error. */
struct mfs_views *mfs_iteration_views(struct mfs_iteration *it);
int64_t mfs_iteration_mtime(const struct mfs_iteration *it); /* ns */
/* Names, sizes and times of the files that it was found with: another one after a new save, and the
 * same on all machines that see the files, and after these were mounted again. */
uint64_t mfs_iteration_identity(const struct mfs_iteration *it);
/* A reader has met a source that is not the one that was opened. The next look checks all files.
 * Any thread. */
void mfs_iteration_suspect(struct mfs_iteration *it);

/*
 * Holds the iteration's checkpoint, and opens it if it is not open (fs/view/keeper.h). The object
 * is a struct mfs_ckpt. full: with common state and, without no_optim, the optimizer; Megatron
 * views need these. Else the model alone. -ESTALE: the files are no longer those of the look.
 */
int mfs_iteration_hold_ckpt(struct mfs_iteration *it, bool full, struct mfs_held **ret,
			    struct mfs_error *err);
/* Like mfs_iteration_hold_ckpt(), for commands, which end soon: the checkpoint stays open until the
 * root is freed. */
int mfs_iteration_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err);
int mfs_iteration_full_ckpt(struct mfs_iteration *it, struct mfs_ckpt **ret, struct mfs_error *err);

/* A directory of the tree that a VIEW argument names. */
#define MFS_VIEW_NAME_SIZE 256
struct mfs_place {
	struct mfs_iteration *iteration; /* NULL: the place is of a dataset, or "data" */
	struct mfs_dataset *dataset;	 /* NULL: the place is of an iteration, or "data" */
	struct mfs_views *views;	 /* views of an iteration or a dataset; NULL: "data" */
	/* The view, or the directory above views, within the iteration or dataset, without '/' at
	 * its ends: "hf", "megatron/torch/tp2-pp1", "megatron/torch", "megatron", "samples", "". */
	char view[MFS_VIEW_NAME_SIZE];
};

#define MFS_PLACE_NAME (256 + MFS_VIEW_NAME_SIZE)

/* Writes the place into text, for messages: "iter_0000040/hf"; in an HF directory "hf". Returns
 * text. */
const char *mfs_place_name(const struct mfs_root *root, const struct mfs_place *place,
			   char text[MFS_PLACE_NAME]);

/*
 * Finds the place of a VIEW argument: "hf", "megatron/torch_dist" (of the latest iteration),
 * "latest/hf", "iter_0000040/hf", "data/NAME/hf". In an HF directory names have no iteration. NULL
 * means "hf", or "hf" of the only dataset. Whether the layout or spec is possible is not checked.
 * -ENOENT: there is no such place, and the message lists places; -ENODATA: there is no latest.
 */
int mfs_root_find(struct mfs_root *root, const char *name, struct mfs_place *ret,
		  struct mfs_error *err);

/* Finds and opens the view of a VIEW argument. ret_place may be NULL. -ENOENT: the name is no
 * view's. */
int mfs_root_view(struct mfs_root *root, const char *name, struct mfs_view **ret,
		  struct mfs_place *ret_place, struct mfs_error *err);
/* Like mfs_root_view(), for who goes on: the view stays open until *ret is dropped
 * (fs/view/keeper.h). */
int mfs_root_hold_view(struct mfs_root *root, const char *name, struct mfs_held **ret,
		       struct mfs_view **ret_view, struct mfs_place *ret_place,
		       struct mfs_error *err);

#endif
