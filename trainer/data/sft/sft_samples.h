/*
 * What --sft trains on: a file of conversations, as samples of S tokens in which documents are
 * apart.
 *
 * As in Megatron a line of the file is a sample: its conversations follow each other, are cut at S
 * tokens, and padded. With packing, conversations of all lines are put together
 * (formats/sft/documents.h), or have been before, where a line is a packed sample; the samples of
 * an epoch are shuffled then. All tokens are in memory, 5 bytes each.
 *
 * Source: megatron/training/datasets/sft_dataset.py.
 */
#ifndef MFT_TRAINER_DATA_SFT_SFT_SAMPLES_H
#define MFT_TRAINER_DATA_SFT_SFT_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/splits.h"

struct mft_sft_config {
	const char *path;   /* JSON lines */
	const char *shares; /* --split; NULL: all lines are the split's */
	enum mfs_split split;
	const char *tokenizer; /* conversation.h; NULL: none */
	const char *overruled; /* why the one that was given is not it; NULL: it is, or none was */
	const char *format;
	bool answers_only, packs; /* packs: of no effect where lines are packed samples */
	uint32_t length;	  /* S */
	uint32_t multiple;	  /* of a conversation's tokens, with padding */
	uint32_t seed;
	uint64_t vocab; /* tokens are less */
	int64_t now;	/* seconds since 1970 that templates have */
};

struct mft_sft;

/* -EINVAL, -ENODATA, -ENOTSUP: as conversation.h, with the file and the line. */
int mft_sft_open(const struct mft_sft_config *config, struct mft_sft **ret, struct mfs_error *err);
void mft_sft_free(struct mft_sft *s);		 /* NULL: nothing */
uint64_t mft_sft_count(const struct mft_sft *s); /* samples of an epoch */
/* A digest of the packed samples: the lengths of the conversations in each, and the order of the
 * samples. Less than 2^63. 0: nothing is packed. */
uint64_t mft_sft_order(const struct mft_sft *s);

/* [S] each: as struct mft_batch has them. */
struct mft_sft_sample {
	int32_t *tokens, *labels, *positions, *first_key;
	float *loss_mask;
};

/* Writes a sample, and returns how many of its tokens count. Samples go on after the end of an
 * epoch. pad: what stands where no token is. One thread. */
uint64_t mft_sft_read(struct mft_sft *s, uint64_t sample, int32_t pad,
		      const struct mft_sft_sample *to);

#endif
