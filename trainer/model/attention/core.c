/*
 * Attention's core: outputs of queries, keys and values, alone or by processes that share a
 * sequence. A process has the queries, keys and values of its own tokens
 * (trainer/parallel/context_parallel.h), and needs the keys and values of all earlier ones.
 * --cp-comm-type:
 *
 *   all_gather   each process gathers all keys and values (core_gather.c)
 *   p2p          keys and values go round in a ring (core_ring.c)
 *   a2a          processes exchange tokens for heads (core_heads.c)
 *   a2a+p2p      neighbours exchange tokens for heads, and what they have then goes round
 *
 * A net that generates attends to the keys that it keeps of sequences (core_cached.c), in one
 * process.
 *
 * What a token sees, and which scores dropout takes, is told in positions of the whole sequence, so
 * that it is the same in each way and with any number of processes.
 *
 * Source: transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py.
 */
#include "trainer/model/attention/core.h"

#include "formats/base/str.h"

/* Bytes that the backend's attention works in. A plan without a device counts an fp32 gradient of
 * the queries. */
uint64_t mft_core_work_bytes(const struct mft_net *net, const struct mfk_attention *a,
			     bool backward)
{
	if (net->device)
		return net->backend->ops->attention_scratch(net->device, a, backward);
	return backward ? mft_matrix_bytes(MFK_F32, a->batch * a->seq, a->heads * (a->qk_dim + 1))
			: 0;
}

/* ---- a process that has whole sequences ---- */

enum { WORK };

static void plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
		 bool backward)
{
	core->at[backward][WORK] =
		mft_part_plan_scratch(p, mft_core_work_bytes(net, &core->shape, backward));
}

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_core *core, const struct mfk_attention *a)
{
	struct mfk_attention own = *a;

	own.scratch = mft_core_scratch(net, core, false, WORK);
	net->backend->ops->attention(pass->ctx, &own);
}

static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_core *core, const struct mfk_attention *a)
{
	struct mfk_attention own = *a;

	own.scratch = mft_core_scratch(net, core, true, WORK);
	net->backend->ops->attention_backward(pass->ctx, &own);
}

static const struct mft_core_ops alone = {
	.plan = plan,
	.forward = forward,
	.backward = backward,
};

/* ---- kinds ---- */

/* The word of a layer; NULL: none was given. Layers of MTP, which are numbered after the others,
 * have the last one's. */
static const char *word_of(const struct mft_net *net, uint32_t layer)
{
	const struct mfs_arg_words *types = &net->config->cp_comm_type;

	if (!types->count)
		return NULL;
	return types->list[layer < types->count ? layer : types->count - 1];
}

static enum mft_context_kind way_of(const char *type)
{
	return !type			     ? MFT_CONTEXT_RING
	       : mfs_str_is(type, "a2a")     ? MFT_CONTEXT_HEADS
	       : mfs_str_is(type, "a2a+p2p") ? MFT_CONTEXT_BOTH
					     : MFT_CONTEXT_RING;
}

static bool gathers(const char *type)
{
	return type && (mfs_str_is(type, "all_gather") || mfs_str_is(type, "allgather"));
}

bool mft_core_has_way(const struct mft_net *net, enum mft_context_kind which)
{
	const struct mfs_arg_words *types = &net->config->cp_comm_type;

	for (size_t i = 0; i < types->count; i++)
		if (way_of(types->list[i]) == which)
			return true;
	return false;
}

static bool exchanges_heads(const struct mft_net *net, const struct mft_core *core)
{
	return net->context.way[core->way].heads > 1;
}

int mft_core_find(const struct mft_net *net, uint32_t layer, const struct mfk_attention *shape,
		  struct mft_core *ret, struct mfs_error *err)
{
	const char *type = word_of(net, layer);
	int r = 0;

	*ret = (struct mft_core){.way = way_of(type), .shape = *shape};
	ret->ops = net->cache.sequences			  ? &mft_core_cached
		   : net->context.way[ret->way].ring == 1 ? &alone
		   : gathers(type)			  ? &mft_core_gather
							  : &mft_core_ring;
	if (net->config->attention_dropout > 0)
		ret->shape.dropout = (float)net->config->attention_dropout;
	if (exchanges_heads(net, ret)) {
		r = mft_core_heads_check(net, ret->way, shape, err);
		ret->shape = mft_core_heads_shape(net, ret->way, &ret->shape);
	}
	return r;
}

void mft_core_plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
		   bool backward)
{
	if (exchanges_heads(net, core))
		mft_core_heads_plan(net, core, p, backward);
	core->ops->plan(net, core, p, backward);
}

void mft_core_forward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_core *core, const struct mfk_attention *a)
{
	if (exchanges_heads(net, core))
		mft_core_heads_forward(net, pass, core, a);
	else
		core->ops->forward(net, pass, core, a);
}

void mft_core_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_core *core, const struct mfk_attention *a)
{
	if (exchanges_heads(net, core))
		mft_core_heads_backward(net, pass, core, a);
	else
		core->ops->backward(net, pass, core, a);
}

/* ---- what they share ---- */

void *mft_core_scratch(const struct mft_net *net, const struct mft_core *core, bool backward,
		       unsigned which)
{
	return mft_net_scratch(net, core->at[backward][which]);
}

void mft_core_rows(const struct mft_net *net, const struct mft_pass *pass, uint64_t map,
		   int64_t rows, int64_t cols, const void *x, void *y)
{
	const struct mfk_rows gathered = {
		.dtype = net->io,
		.rows = rows,
		.cols = cols,
		.each = 1,
		.map = mft_net_at(net, map),
		.x = x,
		.y = y,
	};

	net->backend->ops->gather(pass->ctx, &gathered);
}
