/* Inside of rows whose tokens are looked at. */
#ifndef MFS_DATASET_ROWS_ROWS_VOCAB_I_H
#define MFS_DATASET_ROWS_ROWS_VOCAB_I_H

#include "formats/dataset/rows/row_ranges.h"
#include "formats/dataset/rows/rows_vocab.h"

struct mfs_vocab_rows {
	struct mfs_rows rows;
	const struct mfs_rows *of;
	uint64_t size;
	/* Tokens as unsigned numbers of their width are below it, or outside: negative ones are large. */
	uint64_t limit;
	struct mfs_row_ranges bad; /* of a scan; empty: none was made, or there are none */
};

/* The place of the first token that is outside; count: none is. */
uint64_t mfs_vocab_rows_outside(const struct mfs_vocab_rows *v, const void *tokens, uint64_t count);

#endif
