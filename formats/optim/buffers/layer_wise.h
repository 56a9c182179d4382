/*
 * Which parameters a data-parallel rank of Muon's layer-wise optimizer has: they are dealt by their
 * sizes, to ranks 0 to n - 1 and back again, the smallest first, experts among the ranks that have
 * the same ones. In a run of one rank nothing is dealt, or sorted.
 *
 * Source: megatron/core/optimizer/layer_wise_optimizer.py: _shard_params_ping_pong.
 */
#ifndef MFS_OPTIM_BUFFERS_LAYER_WISE_H
#define MFS_OPTIM_BUFFERS_LAYER_WISE_H

#include "formats/optim/buffers/rank_optim.h"

/* Data-parallel ranks of a run whose files are looked for, or made. */
#define MFS_LEGACY_MAX_DP (1u << 16)

/* The rank among those that share dense parameters, and among those that share its experts. */
struct mfs_layer_share {
	uint32_t rank, ranks;
	uint32_t expert_rank, expert_ranks;
};

/* A parameter that is dealt. */
struct mfs_layer_card {
	uint64_t elements;
	uint32_t group; /* counted over all optimizers of the chain */
	uint32_t param; /* in its list */
	bool expert;	/* of a group of experts */
};

/* Leaves a rank's own, in the order in which they were dealt. Returns how many. */
uint32_t mfs_layer_deal(const struct mfs_layer_share *s, struct mfs_layer_card *cards,
			uint32_t count);

/* Leaves a rank's own parameters in o, which has rules.layer_wise, and numbers them anew. */
int mfs_layer_share_take(struct mfs_optim *o, const struct mfs_layer_share *s,
			 struct mfs_error *err);

#endif
