/*
 * Rows as parts of files, and as plain arrays in files of their own: numpy's .npy of one axis, with
 * the header that numpy.save writes.
 *
 *   tokens     T elements, the rows back to back; they pass through where the rows know extents
 *   offsets    int64, rows + 1 of them: tokens before each row, and all
 *   a column   one element a row
 *   documents  int64: the document entries of an .idx (indexed_dataset.h)
 *
 * The rows must outlive the files. Reading tokens that cannot be had is -EIO, and reading others is
 * not.
 */
#ifndef MFS_DATASET_FILES_ROWS_FILES_H
#define MFS_DATASET_FILES_ROWS_FILES_H

#include <stddef.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/indexed/indexed_dataset.h"
#include "formats/plan/vfile.h"

/* Adds tokens [first, first+count) as they are in the stream: extents of source files where the
 * rows know them and they are long enough, computed bytes where not. */
int mfs_rows_add_tokens(const struct mfs_rows *r, uint64_t first, uint64_t count,
			struct mfs_vfile *f, struct mfs_error *err);

int mfs_npy_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);
int mfs_npy_offsets(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);
int mfs_npy_column(const struct mfs_rows *rows, size_t column, struct mfs_vfile **ret,
		   struct mfs_error *err);
/* d must outlive the file. */
int mfs_npy_documents(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
		      struct mfs_error *err);

/* The tokens without a header: what Megatron calls a .bin. */
int mfs_raw_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err);

#endif
