/*
 * --split: which sequences of a dataset are for training, validation and testing
 * (megatron/core/datasets/blended_megatron_dataset_config.py: parse_and_normalize_split,
 * convert_split_vector_to_split_matrix; blended_megatron_dataset_builder.py:
 * _build_megatron_dataset_splits).
 */
#ifndef MFS_DATASET_GPT_SPLITS_H
#define MFS_DATASET_GPT_SPLITS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/gpt/gpt_rules.h"

#define MFS_SPLIT_DEFAULT "969, 30, 1"

enum mfs_split { MFS_TRAIN, MFS_VALID, MFS_TEST, MFS_SPLITS };

struct mfs_splits {
	/* Shares of [0, 1]; without one, begin = end and the split has no dataset. */
	struct mfs_split_share {
		double begin, end;
	} share[MFS_SPLITS];
	double part[MFS_SPLITS]; /* normalised, as written */
	bool before_core;	 /* gpt_rules.h */
};

/* Every run of digits and dots is a number. There may be three; missing ones are 0. -EINVAL: a run
 * is not a number, there is a fourth one, or none is above 0 (Megatron goes on with NaN and fails
 * later). */
int mfs_splits_parse(const char *text, const struct mfs_dataset_rules *rules,
		     struct mfs_splits *ret, struct mfs_error *err);
/* All for one split, as --train-data-path and its like have it. */
struct mfs_splits mfs_splits_whole(enum mfs_split split);

/* Sequences [*ret_first, *ret_end) of a dataset of so many. -ENODATA: the split's share is nothing,
 * or rounds to no sequence; -EINVAL: rounding leads out of them. */
int mfs_splits_range(const struct mfs_splits *s, enum mfs_split split, uint64_t sequences,
		     uint64_t *ret_first, uint64_t *ret_end, struct mfs_error *err);

const char *mfs_split_name(enum mfs_split split); /* "train", "valid", "test" */

#endif
