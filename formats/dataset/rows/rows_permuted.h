/*
 * Some of other rows in another order: row i is row number(i) of theirs (`datasets`: an indices mapping, of select or
 * shuffle). Numbers may be missing, or there several times.
 *
 * A sum of lengths is kept for every MFS_PERMUTED_STRIDE rows; a row is found by the lengths from there on.
 */
#ifndef MFS_DATASET_ROWS_ROWS_PERMUTED_H
#define MFS_DATASET_ROWS_ROWS_PERMUTED_H

#include "formats/dataset/rows/rows.h"

#define MFS_PERMUTED_STRIDE 128

/* numbers: rows of one token each. Both are taken over, on success; of has no bad rows and no columns. A pass over
 * all. -EINVAL: a number is none of a row; -ENOTSUP: of has 2^31 rows or more. */
int mfs_rows_permuted(struct mfs_rows *of, struct mfs_rows *numbers, struct mfs_rows **ret,
		      struct mfs_error *err);

#endif
