/*
 * What the arguments of the run that wrote a checkpoint say about its data: the same
 * argparse.Namespace as megatron_args.h reads for the model.
 */
#ifndef MFS_ARGS_MEGATRON_DATA_ARGS_H
#define MFS_ARGS_MEGATRON_DATA_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/torch/pickle.h"

/* A list of words; NULL: None or absent. */
struct mfs_arg_words {
	const char *const *list;
	size_t count;
};

/* An argument that is None or absent is -1 (MFS_ABSENT) if it is an integer, NULL if it is text. */
struct mfs_megatron_data_args {
	struct mfs_arg_words data_path, split_data_path[3]; /* train, valid, test */
	const char *data_args_path, *per_split_data_args_path;
	const char *split;
	const char *dataloader_type;
	int64_t seed, seq_length;
	int64_t train_iters, train_samples, eval_iters, eval_interval;
	int64_t global_batch_size, micro_batch_size, data_parallel_size;
	int64_t consumed_train_samples;
	int64_t iteration; /* of the state, not of the arguments: updates made */
	/* The release of Megatron whose rules for data apply (dataset/gpt/gpt_rules.h): the latest
	 * that has these arguments. NULL: the newest, or the arguments do not tell. */
	const char *version;
	bool renormalize; /* renormalize_blend_weights, of core 0.9 and 0.10 */
	double surplus;	  /* mid_level_dataset_surplus; below 0: absent */
	bool full_validation, no_data_sharding, eod_mask_loss;
	/* The argument by which the batch size or the data change during the run; NULL: there is
	 * none. */
	const char *varies;
	/* An argument that stands for generated data or for data of another kind; NULL: none. */
	const char *other_data;
};

/* state: the dict with 'args' and 'iteration'. Strings are put into arena. -ENODATA: it has no
 * args; -EINVAL names an argument of the wrong type. */
int mfs_megatron_data_args_read(const struct mfs_pickle *doc, mfs_value state,
				struct mfs_arena *arena, struct mfs_megatron_data_args *ret,
				struct mfs_error *err);

#endif
