/*
 * The kinds of views. Front ends (FUSE, ls, verify, export, --help) show the rows of the tables,
 * and know nothing else of a view. A new view is a file that defines a row, and a line in
 * fs/view/kinds.h or fs/data/data_kinds.h.
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
enum mfs_view_source_kind {
	MFS_VIEW_OF_MODEL = 1, /* a checkpoint: of an iteration, or an HF directory */
	/* The same with its common state and, without no_optim, its optimizer. An HF directory has
	 * neither. */
	MFS_VIEW_OF_FULL = 2,
	MFS_VIEW_OF_ROWS = 4, /* a dataset that has rows */
	MFS_VIEW_OF_RUN = 8,  /* a dataset, a blend included, which has samples and no rows */
};
#define MFS_VIEW_OF_CKPT (MFS_VIEW_OF_MODEL | MFS_VIEW_OF_FULL)
#define MFS_VIEW_OF_DATA (MFS_VIEW_OF_ROWS | MFS_VIEW_OF_RUN)

/* What a view is made of. It outlives the view. */
struct mfs_view_origin {
	const struct mfs_view_options *options; /* of a checkpoint */
	struct mfs_ckpt *ckpt;			/* NULL: a dataset */
	int64_t number;				/* of the iteration; -1: release, or none */
	struct mfs_dataset *dataset;
};

/* Any thread may call these functions, also several at once for one origin. */
struct mfs_view_kind {
	/* "hf", "megatron/torch": its path in the owner's directory. */
	const char *name;
	/* An example of a spec. The name is then a directory, in which each possible spec is a
	 * view. NULL: the name itself is a view. */
	const char *spec;
	const char *help; /* for --help: one line or several */
	enum mfs_view_source_kind of;
	bool nested; /* its files lie in directories, whose number is not known before it is open */
	bool takes_files; /* with -o dataset_cache */
	bool is_extra;	  /* few models have it: nobody wonders where it is not */
	bool by_option;	  /* an option asks for it: without, it lacks, and nothing has failed */

	/*
	 * 0 if the origin can have such views. -ENOTSUP, -ENODATA, -EINVAL: it cannot, and open()
	 * fails in the same way; readers find the message in the view's place. It reads as little
	 * as it can. NULL: it always can. For MFS_VIEW_OF_FULL, possible, check and list get a
	 * checkpoint without common state.
	 */
	int (*possible)(const struct mfs_view_origin *s, struct mfs_error *err);
	/* With specs only. 0: spec is possible; -ENOENT: it is no spec of this kind; -EINVAL: it
	 * is not possible. */
	int (*check)(const struct mfs_view_origin *s, const char *spec, struct mfs_error *err);
	/* With specs only: the possible specs that a listing shows, in arena. */
	int (*list)(const struct mfs_view_origin *s, struct mfs_arena *arena,
		    const char *const **ret, uint32_t *ret_count, struct mfs_error *err);
	/* Builds the view. spec was checked. mfs_view_free() frees *ret. */
	int (*open)(const struct mfs_view_origin *s, const char *spec, struct mfs_view **ret,
		    struct mfs_error *err);
};

#define MFS_VIEW_COUNT(name)   +1
#define MFS_VIEW_LIST(name)    &mfs_view_kind_##name,
#define MFS_VIEW_DECLARE(name) extern const struct mfs_view_kind mfs_view_kind_##name;

#define MFS_VIEW_KINDS 20 /* of one table, at most */

/* The kinds of views that an owner may have. The folder that makes these views has the table. */
struct mfs_view_table {
	unsigned count;
	const struct mfs_view_kind *kinds[MFS_VIEW_KINDS];
};

MFS_CKPT_VIEWS(MFS_VIEW_DECLARE)

extern const struct mfs_view_table mfs_ckpt_views;

/* The view that is used if none is named. That of a checkpoint has a model (fs/view/view.h). */
#define MFS_VIEW_DEFAULT "hf"

/* Finds the kind of a name, among the kinds that are made of of. *ret_spec: the spec in the name;
 * "": the name is the kind's own. NULL: there is none. */
const struct mfs_view_kind *mfs_view_kind_find(const struct mfs_view_table *table, unsigned of,
					       const char *name, const char **ret_spec);
/* True if a name is a directory of several kinds: "megatron", "". */
bool mfs_view_kind_is_group(const struct mfs_view_table *table, unsigned of, const char *name);
/* "hf, megatron/torch/tp2-pp4 (or another), megatron/torch_dist", for messages. */
void mfs_view_kind_names(const struct mfs_view_table *table, unsigned of, struct mfs_buf *ret);

#endif
