/* Datasets that are opened by their paths, each once. */
#ifndef MFS_DATASET_ROWS_ROWS_OPEN_H
#define MFS_DATASET_ROWS_ROWS_OPEN_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"

struct mfs_rows_opened;

struct mfs_rows_table {
	uint64_t vocab_size; /* of what is opened; 0: tokens are not looked at */
	struct mfs_rows_opened *opened;
};

/*
 * The rows of PREFIX.idx and PREFIX.bin, or of an HF dataset (hf_dataset.h; where it has several
 * splits, path ends with the directory of one). They live as long as the table. -ENOENT without a
 * sentence: nothing is there.
 */
int mfs_rows_open(struct mfs_rows_table *t, const char *path, const struct mfs_rows **ret,
		  struct mfs_error *err);
void mfs_rows_table_release(struct mfs_rows_table *t);

#endif
