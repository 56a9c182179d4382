/*
 * Attention by pieces. Own queries are two pieces of a sequence, and keys come in pieces that are
 * as long (trainer/parallel/context_parallel.h). Queries of a piece see all keys of an earlier one,
 * none of a later one, and of their own what they see in any sequence. So each pair of pieces is
 * attention of a short sequence, causal or without a mask, for which a backend has its fastest
 * kernels. What queries get of each piece is joined by the logarithms of sums of exponentials, in
 * fp32.
 */
#include <math.h>

#include "trainer/model/attention/core.h"

bool mft_pieces_do(const struct mfk_attention *a)
{
	return a->causal && !a->first_key && a->dropout == 0;
}

/* Both pieces of a pair; no pointers. */
static struct mfk_attention shape_of(const struct mfk_attention *a, bool causal)
{
	struct mfk_attention pair = {
		.dtype = a->dtype,
		.batch = 1,
		.seq = a->seq / 2,
		.heads = a->heads,
		.kv_heads = a->kv_heads,
		.qk_dim = a->qk_dim,
		.v_dim = a->v_dim,
		.scale = a->scale,
		.causal = causal,
		.atomics = a->atomics,
	};

	return pair;
}

uint64_t mft_pieces_work_bytes(const struct mft_net *net, const struct mfk_attention *a,
			       bool backward)
{
	const struct mfk_attention earlier = shape_of(a, false), own = shape_of(a, true);
	const uint64_t x = mft_core_work_bytes(net, &earlier, backward);
	const uint64_t y = mft_core_work_bytes(net, &own, backward);

	return x > y ? x : y;
}

/* The row of a's queries that one of their pieces begins with. */
static int64_t row_of(const struct mfk_attention *a, const struct mft_pair *pair)
{
	return (pair->sequence * 2 + pair->queries) * (a->seq / 2);
}

/* lse is [batch, 2, heads, seq / 2]. */
static struct mfk_attention attention_of(const struct mft_pieces *p, const struct mft_pair *pair)
{
	const struct mfk_attention *a = p->a;
	const int64_t q = row_of(a, pair) * a->heads;
	const size_t size = mfk_dtype_size(a->dtype);
	struct mfk_attention ret = shape_of(a, pair->causal);

	ret.q = mft_core_at(a->q, q * a->qk_dim, size);
	ret.out = mft_core_at(a->out, q * a->v_dim, size);
	ret.lse = a->lse + q;
	ret.dout = mft_core_at(a->dout, q * a->v_dim, size);
	ret.dq = mft_core_at(a->dq, q * a->qk_dim, size);
	ret.k = pair->k;
	ret.v = pair->v;
	ret.scratch = p->work;
	return ret;
}

void mft_pieces_forward(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_pieces *p, const struct mft_pair *pair)
{
	const struct mfk_ops *ops = net->backend->ops;
	struct mfk_attention part = attention_of(p, pair);
	const struct mfk_attention_join join = {
		.dtype = part.dtype,
		.batch = 1,
		.seq = part.seq,
		.heads = part.heads,
		.v_dim = part.v_dim,
		.part = p->part,
		.part_lse = p->part_lse,
		.out = p->out + row_of(p->a, pair) * part.heads * part.v_dim,
		.lse = part.lse,
	};

	part.out = p->part;
	part.lse = p->part_lse;
	ops->attention(pass->ctx, &part);
	ops->attention_join(pass->ctx, &join);
}

void mft_core_add(const struct mft_net *net, const struct mft_pass *pass, float *wide, bool first,
		  float *sum, const void *part, int64_t count)
{
	const struct mfk_ops *ops = net->backend->ops;

	ops->cast(pass->ctx, MFK_F32, first ? sum : wide, net->io, part, count);
	if (!first)
		ops->add(pass->ctx, MFK_F32, sum, sum, wide, count);
}

void mft_pieces_backward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_pieces *p, const struct mft_pair *pair, void *dk,
			 void *dv)
{
	struct mfk_attention part = attention_of(p, pair);

	part.dk = dk;
	part.dv = dv;
	net->backend->ops->attention_backward(pass->ctx, &part);
	mft_core_add(net, pass, p->wide, pair->first,
		     p->dq + row_of(p->a, pair) * part.heads * part.qk_dim, part.dq,
		     part.seq * part.heads * part.qk_dim);
}
