/*
 * One dataset as the builders of its views see it. Private to fs/data.
 */
#ifndef MFS_FS_DATA_DATA_I_H
#define MFS_FS_DATA_DATA_I_H

#include "formats/base/arena.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "fs/data/data.h"
#include "fs/view/kind.h"
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

	struct mfs_arena arena; /* of the warning */
	struct mfs_views views;
};

/* What a struct mfs_dataset answers to its views. */
extern const struct mfs_views_owner mfs_dataset_answers;

/* The end of each builder: notes the files that rows are made of (NULL: none), orders the view and returns it; frees it if
 * that or what was before, rc, has failed. */
int mfs_data_end_view(struct mfs_view *v, const struct mfs_rows *rows, int rc,
		      struct mfs_view **ret, struct mfs_error *err);

#endif
