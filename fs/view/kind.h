/*
 * The kinds of views. Front ends (FUSE, ls, verify, export, --help) show what the tables have, and
 * know no more of a view than its row. A new view is a file that defines a row, and a line in
 * fs/view/kinds.h or fs/data/kinds.h.
 */
#ifndef MFS_FS_VIEW_KIND_H
#define MFS_FS_VIEW_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/view/kinds.h"

struct mfs_arena;
struct mfs_buf;
struct mfs_ckpt;
struct mfs_dataset;
struct mfs_view;
struct mfs_view_options;

/* What a view is made of. */
enum mfs_view_of {
	MFS_VIEW_OF_MODEL = 1, /* a checkpoint: of an iteration, or an HF directory */
	/* The same with its state and, unless no_optim is said, its optimizer; an HF directory has
	 * neither. */
	MFS_VIEW_OF_FULL = 2,
	MFS_VIEW_OF_ROWS = 4, /* a dataset that has rows */
	MFS_VIEW_OF_RUN = 8,  /* a dataset, a blend included, which has samples and no rows */
};
#define MFS_VIEW_OF_CKPT (MFS_VIEW_OF_MODEL | MFS_VIEW_OF_FULL)
#define MFS_VIEW_OF_DATA (MFS_VIEW_OF_ROWS | MFS_VIEW_OF_RUN)

/* It outlives the view. */
struct mfs_view_origin {
	const struct mfs_view_options *options; /* of a checkpoint */
	struct mfs_ckpt *ckpt;			/* NULL: a dataset */
	int64_t number;				/* of the iteration; -1: release, or none */
	struct mfs_dataset *dataset;
};

/* Any thread may call these, several of one origin at once. */
struct mfs_view_kind {
	/* "hf", "megatron/torch": in the directory of its owner, or in a directory there. */
	const char *name;
	/* An example of what stands behind the name, if that is a directory in which each possible
	 * spec is a view. NULL: the name is a view's. */
	const char *spec;
	const char *help; /* what it is, for --help: a line, or several */
	enum mfs_view_of of;
	bool nested; /* its files lie in directories, which are not counted before it is opened */
	bool takes_files; /* with -o dataset_cache */

	/* Whether there can be any of that origin: 0, or -ENOTSUP, -ENODATA, -EINVAL with the
	 * sentence that readers find in the view's place; open() fails likewise. It reads as little
	 * as it can. NULL: there always can. Of MFS_VIEW_OF_FULL, this, check and list are given a
	 * checkpoint without state. */
	int (*possible)(const struct mfs_view_origin *s, struct mfs_error *err);
	/* With specs, whether this is one: 0, -ENOENT (not the form of a spec), -EINVAL (an
	 * impossible one). */
	int (*check)(const struct mfs_view_origin *s, const char *spec, struct mfs_error *err);
	/* With specs, the possible ones that a listing shows, in arena. */
	int (*list)(const struct mfs_view_origin *s, struct mfs_arena *arena,
		    const char *const **ret, uint32_t *ret_count, struct mfs_error *err);
	/* Builds the view, of a spec that was checked. *ret is freed with mfs_view_free(). */
	int (*open)(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		    struct mfs_error *err);
};

#define MFS_VIEW_COUNT(name)   +1
#define MFS_VIEW_LIST(name)    &mfs_view_kind_##name,
#define MFS_VIEW_DECLARE(name) extern const struct mfs_view_kind mfs_view_kind_##name;

#define MFS_VIEW_KINDS 16 /* of one table, at most */

/* The kinds of views of one sort of owner. The folder that makes these views has the table. */
struct mfs_view_table {
	unsigned count;
	const struct mfs_view_kind *kinds[MFS_VIEW_KINDS];
};

MFS_CKPT_VIEWS(MFS_VIEW_DECLARE)

extern const struct mfs_view_table mfs_ckpt_views;

/* The view that is meant where nobody names one. That of a checkpoint has a model
 * (fs/view/view.h). */
#define MFS_VIEW_DEFAULT "hf"

/* Finds the kind that a name is of, and the spec behind it ("": the kind's own name), among those
 * of what the owner has. NULL: there is none. */
const struct mfs_view_kind *mfs_view_kind_find(const struct mfs_view_table *table, unsigned of,
					       const char *name, const char **ret_spec);
/* Whether a name is that of a directory of several kinds: "megatron", "". */
bool mfs_view_kind_is_group(const struct mfs_view_table *table, unsigned of, const char *name);
/* "hf, megatron/torch/tp2-pp4 (or another), megatron/torch_dist", for messages. */
void mfs_view_kind_names(const struct mfs_view_table *table, unsigned of, struct mfs_buf *ret);

#endif
