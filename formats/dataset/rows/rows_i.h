/* For those who make rows. */
#ifndef MFS_DATASET_ROWS_ROWS_I_H
#define MFS_DATASET_ROWS_ROWS_I_H

#include "formats/dataset/rows/rows.h"

/* Rows that begin as a description of others: of their type, size, columns and files, none of them
 * bad. */
struct mfs_rows mfs_rows_like(const struct mfs_rows *of, const struct mfs_rows_ops *ops);

/* The place of the first of these tokens, which were read, that is outside of r->vocab_size, which
 * is not 0; count: there is none. */
uint64_t mfs_rows_first_outside(const struct mfs_rows *r, const void *tokens, uint64_t count);
/* -EIO if one of them is outside. */
int mfs_rows_check_vocab(const struct mfs_rows *r, uint64_t first, uint64_t count,
			 const void *tokens, struct mfs_error *err);

#endif
