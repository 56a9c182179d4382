/*
 * What a model needs of a microbatch's tokens: labels, positions, masks, orders.
 *
 * Source: megatron/core/datasets/gpt_dataset.py: GPTDataset.__getitem__,
 * _get_ltor_masks_and_position_ids.
 */
#ifndef MFT_TRAINER_DATA_BATCH_FILL_H
#define MFT_TRAINER_DATA_BATCH_FILL_H

#include "trainer/data/sft/sft_blend.h"
#include "trainer/data/token_fetch.h"
#include "trainer/data/loader.h"

struct mft_batch_rules {
	uint32_t sequences, length; /* B, S */
	uint64_t vocab;		    /* padded rows: tokens are less */
	int64_t eod;		    /* MFS_ABSENT: not known */
	/* What is padding: it does not count as a label, and 0 is embedded in its place. Short
	 * samples end with it. MFT_PAD_TOKEN_ID: the tokenizer has none. */
	int64_t pad;
	bool reset_position_ids, reset_attention_mask, eod_mask_loss;
	/* Processes that share a sequence, and this one's number
	 * (trainer/parallel/context_parallel.h). */
	uint32_t parts, part;
	uint32_t ahead; /* MTP layers: see struct mft_batch_ahead */
	bool policy;	/* batches have the arrays of a policy loss */
};

/* Takes the rules of microbatches of so many sequences from the arguments. -EINVAL: vocab, or the
 * tokens of a microbatch, are none or too many; or a flag needs the token that ends documents, and
 * it is not known. */
int mft_batch_rules_take(const struct mft_train_config *config, uint32_t micro, uint64_t vocab,
			 struct mft_batch_rules *ret, struct mfs_error *err);

/* Tokens of a microbatch that are this process's. */
static inline uint64_t mft_batch_tokens(const struct mft_batch_rules *r)
{
	return (uint64_t)r->sequences * r->length / r->parts;
}

/*
 * Fills a batch from tokens that have come. samples: their numbers, for messages; own: sequences
 * that are not repeated; scratch: [T]; whole: the batch of all processes that share its
 * sequences, where there are several. -EINVAL: a token is outside of the vocabulary.
 */
int mft_batch_fill(const struct mft_batch_rules *rules, const struct mft_fetch *from,
		   const uint64_t *samples, uint32_t own, int32_t *scratch, struct mft_batch *whole,
		   struct mft_batch *b, struct mfs_error *err);

/* Samples whose documents are apart. */
struct mft_batch_documents {
	/* Writes sample number `sample` to the elements [first, first + length) of the arrays that
	 * are not sorted, and returns how many of its tokens count. */
	uint64_t (*write)(void *arg, uint64_t sample, uint64_t first, const struct mft_batch *to);
	void *arg;
};

/* Fills a batch from such samples. It cannot fail. */
void mft_batch_fill_documents(const struct mft_batch_rules *rules,
			      const struct mft_batch_documents *from, const uint64_t *samples,
			      uint32_t own, int32_t *scratch, struct mft_batch *whole,
			      struct mft_batch *b);
/* Of conversations: arg is a struct mft_sft_blend, samples are its places. */
uint64_t mft_batch_write_sft(void *arg, uint64_t sample, uint64_t first,
			     const struct mft_batch *to);

#endif
