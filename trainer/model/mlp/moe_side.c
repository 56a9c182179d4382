/*
 * --moe-shared-expert-overlap: rows go to experts and back while the shared experts compute
 * (side.c). This is all communication of the processes of MFT_GROUP_EXPERT_TOKENS. Without the
 * flag it is in the passes' context.
 *
 * Source: megatron/core/transformer/moe/shared_experts.py: SharedExpertMLP.stream.
 */
#include "trainer/model/mlp/moe_i.h"

int mft_experts_side_begin(struct mft_net *net, struct mfs_error *err)
{
	if (!net->config->moe_shared_expert_overlap || net->experts_side.ctx ||
	    net->parallel->group[MFT_GROUP_EXPERT_TOKENS].size == 1)
		return 0;
	return mft_side_begin(net, &net->experts_side, err);
}

struct mfk_ctx *mft_experts_submit(const struct mft_net *net, struct mfk_ctx *ctx)
{
	return mft_side_submit(net, &net->experts_side, ctx);
}

void mft_experts_await(const struct mft_net *net, struct mfk_ctx *ctx)
{
	mft_side_await(net, &net->experts_side, MFT_GROUP_EXPERT_TOKENS, ctx);
}
