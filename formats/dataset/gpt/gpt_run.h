/*
 * What the data arguments of a training run say: which datasets, in which shares, for how many
 * samples (megatron/training/training.py: get_train_valid_test_num_samples;
 * megatron/training/utils: get_blend_and_blend_per_split). What they mean in samples is samples.h.
 */
#ifndef MFS_DATASET_GPT_GPT_RUN_H
#define MFS_DATASET_GPT_GPT_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/blend_args.h"
#include "formats/dataset/gpt/gpt_dataset.h"
#include "formats/dataset/gpt/gpt_rules.h"
#include "formats/dataset/gpt/splits.h"

struct mfs_run {
	/* --data-path or --data-args-path: all splits are parts of the same datasets. NULL: each
	 * has its own, which are per_split (--train-data-path and its like; NULL: that split has
	 * none). Borrowed. */
	const struct mfs_blend_args *blend;
	const struct mfs_blend_args *per_split[MFS_SPLITS];
	const char *split;   /* --split, of blend alone; NULL: MFS_SPLIT_DEFAULT. Borrowed */
	uint32_t seq_length; /* S, tokens */
	uint32_t seed;
	uint64_t samples[MFS_SPLITS];  /* asked for; MFS_GPT_ONE_EPOCH: all, once (None) */
	bool multiple_validation_sets; /* the datasets of per_split[MFS_VALID] are no blend */
	bool no_extra_token;	       /* samples of S tokens, not S + 1 */
	bool keep_last_partial;	       /* of the validation split alone */
	struct mfs_dataset_rules rules;
	/* That the indices of a split may take in memory, where a number of samples is asked for: a
	 * few digits ask for any. 0: no limit. */
	uint64_t most_bytes;
};

#define MFS_RUN_SEED 1234 /* Megatron's default */

/* How many datasets of a split are kept apart, each with samples of its own; 1 but for validation
 * sets. */
uint32_t mfs_run_sets(const struct mfs_run *run, enum mfs_split split);

/* A copy of a run in which a split has only one of its datasets. It must not be moved, because run
 * points into it. The other run owns its memory, so it is not released. */
struct mfs_run_set {
	struct mfs_run run;
	struct mfs_blend_args one; /* the dataset that run's split points to */
};
/* Makes *ret of one dataset of a split. set: below mfs_run_sets(). A split without sets stays as it
 * is. */
void mfs_run_set(const struct mfs_run *run, enum mfs_split split, uint32_t set,
		 struct mfs_run_set *ret);

/* How long a run is, in iterations of global_batch_size samples. */
struct mfs_run_length {
	/* train_samples, if not 0, gives the length in samples */
	uint64_t train_iters, train_samples;
	uint64_t global_batch_size;
	uint64_t eval_interval, eval_iters;
	uint64_t eval_batch_size;    /* 0: global_batch_size */
	uint64_t start_eval_at_iter; /* no evaluation comes before it */
	bool full_validation;	     /* the whole validation split every time */
};
/*
 * The samples that Megatron asks for: train_samples, or train_iters * B; (train_iters /
 * eval_interval + 1 - start_eval_at_iter / eval_interval) * eval_iters * E to validate, or
 * MFS_GPT_ONE_EPOCH; eval_iters * E to test, with E = eval_batch_size.
 * -EINVAL: no batch size, no eval_interval, or counts beyond 2^53.
 */
int mfs_run_samples(const struct mfs_run_length *length, uint64_t ret[MFS_SPLITS],
		    struct mfs_error *err);

#endif
