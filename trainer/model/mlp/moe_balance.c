/*
 * Losses that balance experts: --moe-router-load-balancing-type, any number of them together.
 *
 * Each is the sum over tokens and experts of score * load, times a factor, where a load is how many
 * tokens would choose the expert: of the sequence, of the microbatch, or of all processes'
 * microbatches, as a mean over those that the step has had so far. Loads are constants in backward.
 * So they are counted for each sequence once (ops->route), and what a token's scores are multiplied
 * by becomes one weight for each sequence and expert, whatever losses there are.
 *
 * The mean needs each microbatch once, so where a layer runs again for backward, the second run
 * counts. Megatron does the same: the first one has no gradients.
 *
 * Gradients of the global loss are divided by the number of processes that share the samples, as
 * all gradients are, although each process has but its own tokens' part of it; Megatron's are, too.
 *
 * Source: megatron/core/transformer/moe/router.py: _apply_aux_loss, _apply_seq_aux_loss,
 * _apply_global_aux_loss; core/distributed/finalize_model_grads.py: reset_model_temporary_tensors.
 */
#include "trainer/model/mlp/moe_i.h"

bool mft_balance_exists(const struct mft_router *r)
{
	return r->balance_coeffs[MFT_AUX_LOSS] != 0 || r->balance_coeffs[MFT_SEQ_AUX_LOSS] != 0 ||
	       r->balance_coeffs[MFT_GLOBAL_AUX_LOSS] != 0;
}

/* ---- memory ---- */

static int64_t sequences_of(const struct mft_net *net, const struct mft_router *r)
{
	return net->tokens / r->balance_tokens;
}

/* Of loads and of weights, int32 and fp32. */
static uint64_t weight_bytes(const struct mft_net *net, const struct mft_router *r)
{
	return mft_matrix_bytes(MFK_F32, sequences_of(net, r), r->experts);
}

static size_t running_bytes(const struct mft_router *r)
{
	return ((size_t)r->experts + 1) * sizeof(float);
}

void mft_balance_plan(struct mft_net *net, struct mft_router *r, struct mft_part_plan *p)
{
	r->balance_coeffs = net->config->moe_aux_loss_coeffs;
	r->balance_tokens = r->balance_coeffs[MFT_SEQ_AUX_LOSS] != 0 ? net->seq : net->tokens;
	if (!mft_balance_exists(r))
		return;
	r->weight = mft_part_plan_keep(p, weight_bytes(net, r));
	if (r->balance_coeffs[MFT_GLOBAL_AUX_LOSS] != 0)
		r->running = mft_memory_add(net->memory, MFT_MEMORY_BATCH, running_bytes(r));
}

void mft_balance_plan_scratch(const struct mft_net *net, struct mft_router *r,
			      struct mft_part_plan *p)
{
	if (!mft_balance_exists(r))
		return;
	r->load = mft_part_plan_scratch(p, weight_bytes(net, r));
	r->sum = mft_part_plan_scratch(p, weight_bytes(net, r));
	r->loss_weight = mft_part_plan_scratch(p, weight_bytes(net, r));
}

void mft_balance_begin_step(const struct mft_net *net, struct mfk_ctx *ctx,
			    const struct mft_router *r)
{
	if (r->balance_coeffs[MFT_GLOBAL_AUX_LOSS] != 0)
		net->backend->device->zero(ctx, mft_net_at(net, r->running), running_bytes(r));
}

/* ---- forward ---- */

double mft_balance_tokens(const struct mft_net *net)
{
	return (double)net->tokens * net->context.size;
}

/* A loss is this, times the sum over tokens and experts of score * load
 * (moe_utils.py: switch_load_balancing_loss_func). */
static double factor_of(const struct mft_net *net, const struct mft_router *r,
			enum mft_aux_loss kind)
{
	double tokens = mft_balance_tokens(net), sequences = 1;

	if (kind == MFT_SEQ_AUX_LOSS) {
		sequences = (double)net->batch;
		tokens /= sequences;
	} else if (kind == MFT_GLOBAL_AUX_LOSS) {
		tokens *= net->parallel->size.dp;
	}
	return (double)r->experts / ((double)r->top_k * tokens * tokens * sequences);
}

/* Loads of all processes that share the sequences, or of all that share the samples, too. All that
 * share a stream know the choices of all of its tokens. Not MFT_GROUP_GRADS, which has a context of
 * its own. */
static void share(const struct mft_net *net, const struct mft_pass *pass,
		  const struct mfk_balance *b, bool global)
{
	const uint64_t count = (uint64_t)((b->apart ? b->sequences : 1) * b->experts);

	mft_parallel_all_reduce(net->parallel, MFT_GROUP_CONTEXT, pass->ctx, MFK_SUM, MFK_F32,
				b->sum, count);
	if (global)
		mft_parallel_all_reduce(net->parallel, MFT_GROUP_DATA, pass->ctx, MFK_SUM, MFK_F32,
					b->sum, count);
}

static void add_loss(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const struct mfk_route *a, enum mft_aux_loss kind,
		     bool adds)
{
	const struct mft_moe *m = part->own;
	const struct mft_router *r = &m->router;
	const struct mfk_ops *ops = net->backend->ops;
	const struct mfk_balance b = {
		.sequences = sequences_of(net, r),
		.experts = r->experts,
		.apart = kind == MFT_SEQ_AUX_LOSS,
		.load = a->load,
		.sum = mft_net_scratch(net, r->sum),
		.running = kind == MFT_GLOBAL_AUX_LOSS ? mft_net_at(net, r->running) : NULL,
		/* Logged losses are means over layers. */
		.factor = (float)(factor_of(net, r, kind) / (double)r->layers),
		.coeff = (float)(r->balance_coeffs[kind] * (double)r->layers),
		.weight = mft_net_scratch(net, r->loss_weight),
		.total = mft_part_kept(net, part, r->weight),
		.adds = adds,
	};
	struct mfk_route of = *a;

	ops->balance_sum(pass->ctx, &b);
	share(net, pass, &b, b.running != NULL);
	ops->balance_weigh(pass->ctx, &b);
	if (pass->again && !b.running)
		return;
	of.weight = b.weight;
	of.balance = mft_net_scratch(net, r->losses);
	ops->route_balance(pass->ctx, &of);
	ops->weighted_sum(pass->ctx, of.balance, NULL, net->tokens,
			  mft_net_sum(net, MFT_SUM_AUX_LOSS + kind));
}

void mft_balance_forward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const struct mfk_route *a)
{
	const struct mft_moe *m = part->own;
	const struct mft_router *r = &m->router;
	const bool counts = pass->again == part->again;
	bool adds = false;

	for (int kind = 0; kind < MFT_AUX_LOSSES; kind++) {
		if (r->balance_coeffs[kind] == 0 || (kind == MFT_GLOBAL_AUX_LOSS && !counts))
			continue;
		add_loss(net, pass, part, a, (enum mft_aux_loss)kind, adds);
		adds = true;
	}
}
