/* Rows whose tokens are looked at when they are read. */
#ifndef MFS_DATASET_ROWS_VOCAB_H
#define MFS_DATASET_ROWS_VOCAB_H

#include "formats/dataset/rows.h"

/* The same rows; reading a token that is negative or not below vocab_size is -EIO, with the row and the token. of
 * must outlive them. */
int mfs_rows_vocab(const struct mfs_rows *of, uint64_t vocab_size, struct mfs_rows **ret,
		   struct mfs_error *err);

#endif
