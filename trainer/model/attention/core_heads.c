/*
 * Attention by processes that exchange tokens for heads (DeepSpeed-Ulysses): before it, each has
 * all heads of its own tokens; in it, all tokens of some heads; after it, again the former. The
 * logarithms of sums are kept as it has them in between. Backward exchanges what forward did once
 * more, and gives back gradients.
 *
 * Where neighbours do it they have a part of the sequence then, with which another kind attends:
 * theirs is the part that one process would have if the sequence were divided by as many processes
 * as there are such groups.
 */
#include "trainer/model/attention/core.h"

enum { PACKED, Q, K, V, OUT, DOUT, DQ, DK, DV };

static int refuse(const struct mft_net *net, enum mft_context_kind way, const char *what,
		  int64_t found, struct mfs_error *err)
{
	const long long n = net->context.way[way].heads;

	if (way == MFT_CONTEXT_HEADS)
		return mfs_fail(err, -EINVAL,
				"--cp-comm-type a2a: expected %s that is a multiple of "
				"--context-parallel-size %lld, found %lld; use p2p",
				what, n, (long long)found);
	return mfs_fail(err, -EINVAL,
			"--cp-comm-type a2a+p2p: expected %s that is a multiple of the first of "
			"--hierarchical-context-parallel-sizes, %lld, found %lld; use p2p",
			what, n, (long long)found);
}

int mft_core_heads_check(const struct mft_net *net, enum mft_context_kind way,
			 const struct mfk_attention *shape, struct mfs_error *err)
{
	const int64_t n = net->context.way[way].heads;

	if (shape->heads % n)
		return refuse(net, way, "a number of heads", shape->heads, err);
	if (shape->kv_heads % n)
		return refuse(net, way, "--num-query-groups", shape->kv_heads, err);
	return 0;
}

struct mfk_attention mft_core_heads_shape(const struct mft_net *net, enum mft_context_kind way,
					  const struct mfk_attention *a)
{
	const int64_t n = net->context.way[way].heads;
	struct mfk_attention all = *a;

	all.seq = a->seq * n;
	all.heads = a->heads / n;
	all.kv_heads = a->kv_heads / n;
	return all;
}

void mft_core_heads_plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
			 bool backward)
{
	const struct mfk_attention *all = &core->shape;
	const int64_t rows = all->batch * all->seq;
	const int64_t widest = all->qk_dim > all->v_dim ? all->qk_dim : all->v_dim;
	const uint64_t q = mft_matrix_bytes(net->io, rows, all->heads * all->qk_dim);
	const uint64_t k = mft_matrix_bytes(net->io, rows, all->kv_heads * all->qk_dim);
	const uint64_t v = mft_matrix_bytes(net->io, rows, all->kv_heads * all->v_dim);
	const uint64_t out = mft_matrix_bytes(net->io, rows, all->heads * all->v_dim);
	uint64_t *at = core->heads_at[backward];

	at[PACKED] = mft_part_plan_scratch(p, mft_matrix_bytes(net->io, rows, all->heads * widest));
	at[Q] = mft_part_plan_scratch(p, q);
	at[K] = mft_part_plan_scratch(p, k);
	at[V] = mft_part_plan_scratch(p, v);
	at[OUT] = mft_part_plan_scratch(p, out);
	if (!backward)
		return;
	at[DOUT] = mft_part_plan_scratch(p, out);
	at[DQ] = mft_part_plan_scratch(p, q);
	at[DK] = mft_part_plan_scratch(p, k);
	at[DV] = mft_part_plan_scratch(p, v);
}

/* ---- the exchange ---- */

static void *buffer(const struct mft_net *net, const struct mft_core *core, bool backward,
		    unsigned which)
{
	return mft_net_scratch(net, core->heads_at[backward][which]);
}

static int64_t joined_rows(const struct mft_core *core)
{
	return core->shape.batch * core->shape.seq;
}

/* own [T, all heads, dim] of this process to joined [T of neighbours, some heads, dim]. */
static void *to_heads(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_core *core, bool backward, unsigned which, int64_t cols,
		      const void *own)
{
	void *joined = buffer(net, core, backward, which);
	void *packed = buffer(net, core, backward, PACKED);

	mft_core_rows(net, pass, net->context.way[core->way].to_heads, joined_rows(core), cols, own,
		      packed);
	mft_context_exchange(net, pass, core->way, packed, net->tokens, joined,
			     (size_t)cols * mfk_dtype_size(net->io), true);
	return joined;
}

static void from_heads(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_core *core, bool backward, int64_t cols, void *joined,
		       void *own)
{
	void *packed = buffer(net, core, backward, PACKED);

	mft_context_exchange(net, pass, core->way, packed, net->tokens, joined,
			     (size_t)cols * mfk_dtype_size(net->io), false);
	mft_core_rows(net, pass, net->context.way[core->way].from_heads, joined_rows(core), cols,
		      packed, own);
}

static struct mfk_attention attention_of(const struct mft_net *net, const struct mft_pass *pass,
					 const struct mft_core *core, const struct mfk_attention *a,
					 bool backward)
{
	struct mfk_attention all = mft_core_heads_shape(net, core->way, a);
	const int64_t qk = all.qk_dim, v = all.v_dim;

	all.q = to_heads(net, pass, core, backward, Q, all.heads * qk, a->q);
	all.k = to_heads(net, pass, core, backward, K, all.kv_heads * qk, a->k);
	all.v = to_heads(net, pass, core, backward, V, all.kv_heads * v, a->v);
	all.out = buffer(net, core, backward, OUT);
	all.first_key = pass->heads_first_key[core->way];
	return all;
}

/* ---- what attends in between ---- */

/* One sequence of a batch. Dropout takes what it would take from all heads: their numbers are those
 * of the sequence's. */
static struct mfk_attention sequence_of(const struct mft_net *net, const struct mft_core *core,
					const struct mfk_attention *all, int64_t heads, int64_t i)
{
	const size_t size = mfk_dtype_size(all->dtype);
	const int64_t q = i * all->seq * all->heads, k = i * all->seq * all->kv_heads;
	const int64_t head = i * heads + net->context.way[core->way].heads_rank * all->heads;
	const uint64_t whole = (uint64_t)net->context.whole;
	struct mfk_attention one = *all;

	one.batch = 1;
	one.offset += (uint64_t)head * whole * whole;
	one.first_key = mft_core_at(all->first_key, i * all->seq, sizeof(int32_t));
	one.q = mft_core_at(all->q, q * all->qk_dim, size);
	one.k = mft_core_at(all->k, k * all->qk_dim, size);
	one.v = mft_core_at(all->v, k * all->v_dim, size);
	one.out = mft_core_at(all->out, q * all->v_dim, size);
	one.lse = mft_core_at(all->lse, q, sizeof(float));
	one.dout = mft_core_at(all->dout, q * all->v_dim, size);
	one.dq = mft_core_at(all->dq, q * all->qk_dim, size);
	one.dk = mft_core_at(all->dk, k * all->qk_dim, size);
	one.dv = mft_core_at(all->dv, k * all->v_dim, size);
	return one;
}

/* All sequences at once, unless dropout must know which head is which. */
static void attend(const struct mft_net *net, const struct mft_pass *pass,
		   const struct mft_core *core, const struct mfk_attention *all, int64_t heads,
		   void (*op)(const struct mft_net *net, const struct mft_pass *pass,
			      const struct mft_core *core, const struct mfk_attention *a))
{
	if (all->dropout <= 0) {
		op(net, pass, core, all);
		return;
	}
	for (int64_t i = 0; i < all->batch; i++) {
		const struct mfk_attention one = sequence_of(net, core, all, heads, i);

		op(net, pass, core, &one);
	}
}

void mft_core_heads_forward(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_core *core, const struct mfk_attention *a)
{
	const struct mfk_attention all = attention_of(net, pass, core, a, false);

	attend(net, pass, core, &all, a->heads, core->ops->forward);
	from_heads(net, pass, core, false, all.heads * all.v_dim, all.out, a->out);
}

void mft_core_heads_backward(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_core *core, const struct mfk_attention *a)
{
	struct mfk_attention all = attention_of(net, pass, core, a, true);

	to_heads(net, pass, core, true, OUT, all.heads * all.v_dim, a->out);
	all.dout = to_heads(net, pass, core, true, DOUT, all.heads * all.v_dim, a->dout);
	all.dq = buffer(net, core, true, DQ);
	all.dk = buffer(net, core, true, DK);
	all.dv = buffer(net, core, true, DV);
	attend(net, pass, core, &all, a->heads, core->ops->backward);
	from_heads(net, pass, core, true, all.heads * all.qk_dim, all.dq, a->dq);
	from_heads(net, pass, core, true, all.kv_heads * all.qk_dim, all.dk, a->dk);
	from_heads(net, pass, core, true, all.kv_heads * all.v_dim, all.dv, a->dv);
}
