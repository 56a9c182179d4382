/*
 * One dataset as the builders of its views see it. Private to fs/data.
 */
#ifndef MFS_FS_DATA_DATA_I_H
#define MFS_FS_DATA_DATA_I_H

#include <pthread.h>

#include "formats/base/arena.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "fs/data/data.h"
#include "fs/view/keeper.h"
#include "fs/view/view.h"

struct mfs_dataset_listing {
	const char *const *names; /* NULL: not listed yet */
	uint32_t count;
};

struct mfs_dataset {
	const char *name;
	const char *path; /* as it was named, absolute; NULL of a merge and of a blend */
	const struct mfs_data_options *options;
	const struct mfs_data *data;	     /* all datasets: what a blend's words name */
	struct mfs_indexed_dataset *indexed; /* NULL: not made of .idx and .bin */
	struct mfs_rows *rows;		     /* NULL: a blend, which has no rows but samples */
	const char *warning;		     /* NULL: what the indexed dataset says */
	int64_t mtime_ns;

	struct mfs_open_set views;
	pthread_mutex_t lock;	/* what follows; held while a directory of specs is listed */
	struct mfs_arena arena; /* of listings, and of the warning */
	struct mfs_dataset_listing samples, cache;
};

/* What opens the views of a struct mfs_dataset. */
extern const struct mfs_open_kind mfs_data_views;

/* Builders. *ret is freed with mfs_view_free(); d outlives it. The files of a view are
 * plain names or have '/' in them (fs/view/view.h). */
int mfs_data_view_hf(struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err);
int mfs_data_view_parquet(struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err);
int mfs_data_view_npy(struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err);
int mfs_data_view_jsonl(struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err);
int mfs_data_view_megatron(struct mfs_dataset *d, struct mfs_view **ret, struct mfs_error *err);

/* The end of each builder: notes the files that rows are made of (NULL: none), orders the view and returns it; frees it if
 * that or what was before, rc, has failed. */
int mfs_data_end_view(struct mfs_view *v, const struct mfs_rows *rows, int rc,
		      struct mfs_view **ret, struct mfs_error *err);

/* Of directories of specs. check: 0, -ENOENT: no spec by its form, -EINVAL: an impossible one; reads
 * nothing. list: examples, in arena. */
int mfs_data_view_samples(struct mfs_dataset *d, const char *spec, struct mfs_view **ret,
			  struct mfs_error *err);
int mfs_data_check_samples(struct mfs_dataset *d, const char *spec, struct mfs_error *err);
int mfs_data_list_samples(struct mfs_dataset *d, struct mfs_arena *arena, const char *const **ret,
			  uint32_t *ret_count, struct mfs_error *err);
int mfs_data_view_cache(struct mfs_dataset *d, const char *spec, struct mfs_view **ret,
			struct mfs_error *err);
int mfs_data_check_cache(struct mfs_dataset *d, const char *spec, struct mfs_error *err);
int mfs_data_list_cache(struct mfs_dataset *d, struct mfs_arena *arena, const char *const **ret,
			uint32_t *ret_count, struct mfs_error *err);

#endif
