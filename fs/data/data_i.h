/*
 * One dataset as the builders of its views see it. Private to fs/data.
 */
#ifndef MFS_FS_DATA_DATA_I_H
#define MFS_FS_DATA_DATA_I_H

#include "formats/base/arena.h"
#include "formats/dataset/gpt/splits.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "fs/data/data.h"
#include "fs/data/data_kinds.h"
#include "fs/data/data_text.h"
#include "fs/view/view.h"
#include "fs/view/views.h"

struct mfs_dataset {
	const char *name;
	const char *path; /* as it was named, absolute; NULL of a merge and of a blend */
	const struct mfs_data_options *options;
	const struct mfs_data *data;	     /* all datasets: what a blend's words name */
	struct mfs_indexed_dataset *indexed; /* NULL: not made of .idx and .bin */
	struct mfs_rows *rows;		     /* NULL: a blend, which has no rows but samples */
	const char *warning;		     /* NULL: what the indexed dataset says */
	int64_t mtime_ns;

	struct mfs_data_tokenizer *tokenizer; /* that of all datasets */
	struct mfs_data_texts texts;

	struct mfs_arena arena; /* of the warning */
	struct mfs_views views;
};

/* What a struct mfs_dataset answers to its views. */
extern const struct mfs_views_owner_ops mfs_dataset_owner_ops;

struct mfs_samples;

enum mfs_data_path_kind {
	MFS_DATA_HOLDS_NONE,
	MFS_DATA_HOLDS_PREFIX,	 /* .idx and .bin, of this name */
	MFS_DATA_HOLDS_HF,	 /* a file or a directory of an HF dataset */
	MFS_DATA_HOLDS_PREFIXES, /* a directory of .idx and .bin */
};
/* By names alone. path is what mfs_data_path() gives. */
enum mfs_data_path_kind mfs_data_holds(const char *path);

struct mfs_data_split {
	/* "train", "validation", "test", as `datasets` calls them, or "data": all rows. */
	const char *name;
	struct mfs_rows *rows;
	struct mfs_row_text *text; /* the view's; NULL: there is none */
};

struct mfs_data_splits {
	struct mfs_data_split list[MFS_SPLITS]; /* of those that have rows */
	unsigned count;
};

/* A view of a dataset, and what its files are made from. A kind of views leaves empty what it has
 * not. */
struct mfs_data_view {
	struct mfs_view public;
	struct mfs_data_splits splits;
	struct mfs_samples *samples[MFS_SPLITS];
	struct mfs_rows *rows; /* other ones than the dataset's */
	struct mfs_row_text *texts[MFS_SPLITS];
	unsigned text_count;
};

/* Adds the files of a view. spec: as struct mfs_view_kind has it. */
typedef int mfs_data_build(struct mfs_dataset *d, const char *spec, struct mfs_data_view *v,
			   struct mfs_error *err);
/* What struct mfs_view_kind calls to open a view. It notes the files that the view's rows are made
 * of; what build has put into the view is released with it. */
int mfs_data_open_view(const struct mfs_view_origin *s, const char *spec, mfs_data_build *build,
		       struct mfs_view **ret, struct mfs_error *err);

#endif
