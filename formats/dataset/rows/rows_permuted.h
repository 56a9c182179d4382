/*
 * Rows of other rows in another order: row i is their row number(i). `datasets` writes such numbers
 * for select() and shuffle() and calls them an indices mapping. A number may be missing, or be
 * there several times.
 *
 * A sum of lengths is kept for every MFS_PERMUTED_STRIDE rows. Lengths from there on lead to a row.
 */
#ifndef MFS_DATASET_ROWS_ROWS_PERMUTED_H
#define MFS_DATASET_ROWS_ROWS_PERMUTED_H

#include "formats/dataset/rows/rows.h"

#define MFS_PERMUTED_STRIDE 128

/* numbers: rows of one token each. `of` has no bad rows and no columns. On success the rows own
 * both. All lengths are read once. -EINVAL: a number is not that of a row; -ENOTSUP: `of` has 2^31
 * rows or more. */
int mfs_rows_permuted(struct mfs_rows *of, struct mfs_rows *numbers, struct mfs_rows **ret,
		      struct mfs_error *err);

#endif
