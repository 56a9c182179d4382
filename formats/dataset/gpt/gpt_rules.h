/*
 * What differs between versions of Megatron in the order of its samples. Everything else in this
 * folder is the same from Megatron-LM 2.0 to megatron-core 0.20.
 */
#ifndef MFS_DATASET_GPT_GPT_RULES_H
#define MFS_DATASET_GPT_GPT_RULES_H

#include <stdbool.h>

#include "formats/base/error.h"

enum mfs_surplus_rule {
	/* Each dataset of a blend is asked for ceil(ceil(n w) (1 + surplus)) samples, and the blend
	 * has sum(ceil(n w)): core 0.11 and later (85676ca489). */
	MFS_SURPLUS_ON_TOP,
	/* ceil(n w 1.005), and the blend has the sum of those: up to core 0.10 (there surplus is
	 * fixed). */
	MFS_SURPLUS_WITHIN,
};

struct mfs_dataset_rules {
	/* N of megatron-core 0.N, or of the core of that time; UINT_MAX: the newest. */
	unsigned core;
	enum mfs_surplus_rule surplus_rule;
	double surplus; /* --mid-level-dataset-surplus: 0.005 */
	/* A last epoch of which less than 80 % is needed is shuffled by itself: since 2020-12
	 * (39181113ee, Megatron-LM 2.0). */
	bool separate_last_epoch;
	/* Weights of a blend are each dataset's share of the samples asked for:
	 * renormalize_blend_weights, an option of core 0.9 and 0.10. */
	bool renormalize;
	/* Megatron-LM before core 0.4 (2023-10): splits round each part and shift all by what is
	 * over, and weights are first divided by a plain running sum. */
	bool before_core;
};

/* The newest version's. */
struct mfs_dataset_rules mfs_dataset_rules_default(void);
/* Of megatron-core "0.16.1" or of Megatron-LM "2.6", "23.04": more numbers may follow, and are
 * ignored. -EINVAL if version does not begin with two numbers. */
int mfs_dataset_rules_of(const char *version, struct mfs_dataset_rules *ret, struct mfs_error *err);

#endif
