/* Inside of the samples' rows. */
#ifndef MFS_DATASET_GPT_ROWS_SAMPLES_I_H
#define MFS_DATASET_GPT_ROWS_SAMPLES_I_H

#include <stdatomic.h>

#include "formats/dataset/gpt/rows_samples.h"

struct mfs_sample_rows {
	struct mfs_rows rows;
	struct mfs_samples *samples;
	char *name;
	struct mfs_fileset **sets;
	uint8_t pad[8]; /* one token of it */
	/* While above 0, pages are asked for ahead of their being copied; set when a copy has
	 * waited for a disk, and counted down by those that have asked. */
	_Atomic unsigned cold;
};

/* mfs_rows_ops.read */
int mfs_sample_rows_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
			 struct mfs_error *err);

/* Fills bad, if rows of a dataset are bad. */
int mfs_sample_rows_find_bad(struct mfs_sample_rows *x, struct mfs_error *err);

#endif
