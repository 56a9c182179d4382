/* The tokens of one sample by its pieces, as Megatron's GPTDataset[i] has them before it divides
 * them. */
#ifndef MFS_TESTS_UNIT_GPT_TOKENS_H
#define MFS_TESTS_UNIT_GPT_TOKENS_H

#include "formats/dataset/gpt/gpt_dataset.h"

struct fill {
	const struct mfs_rows *data;
	int64_t *to;
};

static inline int fill_piece(void *arg, const struct mfs_gpt_piece *piece, struct mfs_error *err)
{
	struct fill *f = arg;
	uint64_t start;
	int rc = mfs_rows_start(f->data, piece->sequence, &start, err);

	if (!rc)
		rc = mfs_rows_read_int64(f->data, start + piece->from, piece->count, f->to, err);
	f->to += piece->count;
	return rc;
}

static inline int gpt_tokens(struct mfs_gpt_dataset *g, uint64_t i, int64_t pad, int64_t *ret,
			     struct mfs_error *err)
{
	struct fill f = {mfs_gpt_dataset_rows(g), ret};
	uint32_t padding;
	int rc = mfs_gpt_dataset_pieces(g, i, fill_piece, &f, &padding, err);

	for (uint32_t k = 0; !rc && k < padding; k++)
		*f.to++ = pad;
	return rc;
}

#endif
