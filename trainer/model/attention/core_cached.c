/*
 * Attention of a net that generates: the step's keys and values go into the cache of their
 * sequences, and each token attends to what its sequence has there. The cache outlives the step, so
 * it is no scratch. There is no way back.
 */
#include "trainer/model/attention/core.h"

enum { KEYS, VALUES };

/* Of one layer: offsets in memory, and not in scratch. */
static void plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
		 bool backward)
{
	const struct mfk_attention *s = &core->shape;
	const int64_t rows = net->cache.sequences * net->cache.length;

	(void)p;
	if (backward)
		return;
	core->at[false][KEYS] =
		mft_memory_add(net->memory, MFT_MEMORY_ACTIVATIONS,
			       mft_matrix_bytes(net->io, rows, s->kv_heads * s->qk_dim));
	core->at[false][VALUES] =
		mft_memory_add(net->memory, MFT_MEMORY_ACTIVATIONS,
			       mft_matrix_bytes(net->io, rows, s->kv_heads * s->v_dim));
}

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_core *core, const struct mfk_attention *a)
{
	const int64_t window = net->args->window_size;
	const struct mfk_attention_cached cached = {
		.dtype = net->io,
		.tokens = net->tokens,
		.heads = a->heads,
		.kv_heads = a->kv_heads,
		.qk_dim = a->qk_dim,
		.v_dim = a->v_dim,
		.length = net->cache.length,
		.window = window == MFS_ABSENT ? 0 : window,
		.scale = a->scale,
		.sequence = net->cache.sequence,
		.position = pass->positions,
		.q = a->q,
		.k = a->k,
		.v = a->v,
		.keys = mft_net_at(net, core->at[false][KEYS]),
		.values = mft_net_at(net, core->at[false][VALUES]),
		.out = a->out,
	};

	net->backend->ops->attention_cached(pass->ctx, &cached);
}

const struct mft_core_ops mft_core_cached = {
	.plan = plan,
	.forward = forward,
};
