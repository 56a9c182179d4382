/*
 * The optimizer's entry of a state dict. It is the dict of one optimizer, or a chain: a list of
 * dicts, in torch_dist a dict {0: ..., 1: ...}. The dict of an optimizer is Megatron's
 * {'optimizer': torch's dict, 'grad_scaler': ...}, in the oldest releases with
 * 'optimizer_state_dict'. In a run in fp32 it is torch's dict itself: {'state', 'param_groups'}.
 *
 * Source: megatron/core/optimizer/optimizer.py: state_dict() of Float16OptimizerWithFloat16Params,
 * FP32Optimizer, ChainedOptimizer; distrib_optimizer.py.
 */
#ifndef MFS_OPTIM_RULES_STATE_DICT_H
#define MFS_OPTIM_RULES_STATE_DICT_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/torch/pickle.h"

#define MFS_OPTIM_MAX_GROUPS 64 /* of one optimizer: Megatron makes a handful */
#define MFS_OPTIM_GROUP_LIMIT                                                                      \
	(4u << 20) /* bytes of one that is written, with its parameters' numbers */

/* The number of optimizers in it; 0: none. */
uint32_t mfs_optim_state_count(const struct mfs_pickle *doc, mfs_value optimizer);
/* The i-th optimizer's dict; 0 after the last. */
mfs_value mfs_optim_state_at(const struct mfs_pickle *doc, mfs_value optimizer, uint32_t i);
/* torch's dict of one optimizer, and its parameter groups (a list). */
mfs_value mfs_optim_state_torch(const struct mfs_pickle *doc, mfs_value one);
mfs_value mfs_optim_state_groups(const struct mfs_pickle *doc, mfs_value one);
/* True if a group has a momentum, as Muon's and SGD's have. */
bool mfs_optim_group_has_momentum(const struct mfs_pickle *doc, mfs_value group);
/* True if a group is Lion's, which has betas and no eps. */
bool mfs_optim_group_is_lion(const struct mfs_pickle *doc, mfs_value group);

#endif
