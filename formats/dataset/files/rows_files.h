/*
 * Rows as plain arrays in files, each a new virtual file that the rows must outlive: numpy's .npy of one axis,
 * header as numpy.save writes it.
 *
 *   tokens     T elements, the rows back to back; they pass through where the rows know extents
 *   offsets    int64, rows + 1 of them: tokens before each row, and all
 *   a column   one element a row
 *   documents  int64: the document entries of an .idx (indexed_dataset.h)
 *
 * Tokens that cannot be had are -EIO and so is no other.
 */
#ifndef MFS_DATASET_FILES_ROWS_FILES_H
#define MFS_DATASET_FILES_ROWS_FILES_H

#include <stddef.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/plan/vfile.h"

int mfs_npy_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);
int mfs_npy_offsets(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);
int mfs_npy_column(const struct mfs_rows *rows, size_t column, struct mfs_vfile **ret,
		   struct mfs_error *err);
int mfs_npy_documents(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
		      struct mfs_error *err);

/* The tokens without a header: what Megatron calls a .bin. */
int mfs_raw_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);

#endif
