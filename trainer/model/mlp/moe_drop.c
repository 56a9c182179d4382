/*
 * Choices that experts have no room for: --moe-expert-capacity-factor. A process's rows may bring
 * an expert factor times what each would get if all were chosen alike; what is beyond is dropped,
 * and its token goes on without that expert. Choices keep their probabilities. Losses, and with
 * them the loads of balanced experts, are of what was chosen.
 *
 * Where several processes share a stream, each of Megatron's has a part of the positions of all
 * sequences; here it may have other rows, but knows the choices of all tokens: each finds out what
 * is dropped of all parts.
 *
 * --moe-pad-expert-input-to-capacity fills the room with rows of probability 0, so that shapes do
 * not change: they add nothing, neither here nor to gradients, and are left out. Yet they count as
 * choices where experts' biases are moved: all experts then have as many, and biases stay.
 *
 * Source: megatron/core/transformer/moe/moe_utils.py: apply_router_token_dropping, get_capacity.
 */
#include <math.h>

#include "formats/base/str.h"
#include "trainer/model/mlp/moe_i.h"

int mft_drop_plan(const struct mft_net *net, struct mft_drop *d, struct mfs_error *err)
{
	const struct mft_train_config *c = net->config;
	const double choices = (double)(net->rows * net->args->moe_router_topk);
	const double room =
		ceil(choices / (double)net->args->num_experts * c->moe_expert_capacity_factor);

	d->capacity = -1;
	if (c->moe_expert_capacity_factor <= 0)
		return 0;
	if (net->seq % net->parallel->size.tp)
		return mfs_fail(err, -EINVAL,
				"--moe-expert-capacity-factor: expected sequences that "
				"--tensor-model-parallel-size %u divides, found %lld tokens",
				net->parallel->size.tp, (long long)net->seq);
	if (room < (double)net->rows) /* an expert is chosen once by a token */
		d->capacity = (int64_t)room;
	d->by_prob = !mfs_str_is(c->moe_token_drop_policy, "position");
	return 0;
}

void mft_drop_plan_scratch(const struct mft_net *net, struct mft_drop *d, struct mft_part_plan *p)
{
	if (d->capacity >= 0)
		d->taken = mft_part_plan_scratch(
			p, mft_matrix_bytes(MFK_F32, net->tokens, net->args->moe_router_topk));
}

int64_t mft_drop_most(const struct mft_net *net, const struct mft_drop *d)
{
	const bool as_megatron = net->batch == 1 || net->parallel->size.tp == 1;
	const int64_t parts = as_megatron ? 1 : net->parallel->size.tp;

	return d->capacity >= 0 && d->capacity * parts < net->rows ? d->capacity * parts
								   : net->rows;
}

const int32_t *mft_drop_forward(const struct mft_net *net, const struct mft_pass *pass,
				const struct mft_part *part)
{
	const struct mft_moe *m = part->own;
	const int32_t *expert = mft_part_kept(net, part, m->router.expert);
	int32_t *taken = mft_net_scratch(net, m->drop.taken);
	const struct mfk_drop drop = {
		.sequences = net->batch,
		.length = net->seq,
		.groups = net->parallel->size.tp,
		.experts = m->router.experts,
		.top_k = m->router.top_k,
		.capacity = m->drop.capacity,
		.by_prob = m->drop.by_prob,
		.expert = expert,
		.prob = mft_part_kept(net, part, m->router.prob),
		.taken = taken,
	};

	if (m->drop.capacity < 0)
		return expert;
	net->backend->ops->drop(pass->ctx, &drop);
	return taken;
}
