/* Lengths of texts, inside: text_lengths.c keeps them, text_measure.c makes them. */
#ifndef MFS_DATASET_TEXT_TEXT_LENGTHS_I_H
#define MFS_DATASET_TEXT_TEXT_LENGTHS_I_H

#include "formats/dataset/text/text_lengths.h"

struct text_sums {
	uint64_t before[MFS_TEXT_FORMS];
};

struct mfs_text_lengths {
	int fd;
	uint64_t rows, blocks;
	struct text_sums *sums; /* of each block, and of the end */
};

/* Puts the lengths of rows where they are kept. Any thread may call it. */
int mfs_text_lengths_put(struct mfs_text_lengths *l, uint64_t first, uint64_t count,
			 const struct mfs_text_length *of, struct mfs_error *err);

/* Puts the lengths of all rows, and fills in the sums. */
int mfs_text_measure(const struct mfs_rows *rows, const struct mfs_named_tokens *names,
		     unsigned threads, struct mfs_text_lengths *l, struct mfs_error *err);

#endif
