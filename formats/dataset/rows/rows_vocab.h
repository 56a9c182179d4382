/*
 * Rows whose tokens are looked at as they are read: an embedding has no row for a token outside of the
 * vocabulary, and a program that meets one fails far from here.
 */
#ifndef MFS_DATASET_ROWS_ROWS_VOCAB_H
#define MFS_DATASET_ROWS_ROWS_VOCAB_H

#include "formats/dataset/rows/rows.h"

/* The same rows, without extents; of, which must outlive them, is asked for everything. Reading a token that is not
 * in [0, vocab_size) is -EIO, with its row in the sentence. -ENOTSUP: tokens are no integers. */
int mfs_rows_vocab(const struct mfs_rows *of, uint64_t vocab_size, struct mfs_rows **ret,
		   struct mfs_error *err);

/*
 * Looks at all tokens of rows that mfs_rows_vocab() made, with so many threads (0: as processors), and makes the
 * rows that hold one outside, or that reading is -EIO of, bad ones (rows.h), besides those that were: views then
 * keep them apart from their neighbours. Before anybody else has the rows.
 * -ENOTSUP: more such runs of rows than MFS_ROW_RANGES_MAX; what else reading fails with. Nothing is changed then.
 */
int mfs_rows_vocab_scan(struct mfs_rows *rows, unsigned threads, struct mfs_error *err);

#endif
