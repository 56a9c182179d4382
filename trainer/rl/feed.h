/*
 * Microbatches of a rollout's responses: a source of a step's batches. Bin b of the bins is sample
 * b; the processes that share the samples take them by turns, as they take those of a dataset.
 */
#ifndef MFT_TRAINER_RL_FEED_H
#define MFT_TRAINER_RL_FEED_H

#include "formats/base/error.h"
#include "trainer/config/config.h"
#include "trainer/data/batch_source.h"
#include "trainer/data/loader.h"
#include "trainer/rl/bins.h"
#include "trainer/rl/prompts.h"
#include "trainer/rl/rollout.h"

struct mft_feed;

/* vocab: padded rows. rank, ranks: of the processes that share the samples. */
int mft_feed_new(const struct mft_train_config *config, uint64_t vocab, uint32_t rank,
		 uint32_t ranks, const struct mft_slot_memory_ops *memory, struct mft_feed **ret,
		 struct mfs_error *err);
void mft_feed_free(struct mft_feed *f); /* NULL: nothing; no batch may be out */

/* What is to be fed; all of it is borrowed until the next call. weight [responses]: what a token's
 * loss counts. Bins are a multiple of the microbatches' samples of all processes. */
struct mft_feed_of {
	const struct mft_rollout *rollout;
	struct mft_prompts *prompts;
	const struct mft_bins *bins;
	const double *weight;
};
void mft_feed_begin(struct mft_feed *f, const struct mft_feed_of *of);
/* Microbatches of this process. */
uint64_t mft_feed_microbatches(const struct mft_feed *f);
struct mft_batch_source mft_feed_source(struct mft_feed *f);

/* Places of a prompt and a response in a bin: the last token is a label alone. */
uint32_t mft_feed_places(const struct mft_prompt *prompt, uint32_t response_tokens);

/* Writes log-probs of the labels of a microbatch's tokens, this process's [T], to the rows of their
 * responses (rollout.h). */
void mft_feed_scatter(const struct mft_feed *f, uint64_t microbatch, const float *log_probs,
		      float *rows);

#endif
