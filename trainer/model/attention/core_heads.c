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

static int refuse(const struct mfs_net *net, enum mfs_context_ways way, const char *what,
		  int64_t found, struct mfs_error *err)
{
	const long long n = net->context.way[way].heads;

	if (way == MFS_CONTEXT_HEADS)
		return mfs_fail(err, -EINVAL,
				"--cp-comm-type a2a: expected %s that is a multiple of "
				"--context-parallel-size %lld, found %lld; use p2p",
				what, n, (long long)found);
	return mfs_fail(err, -EINVAL,
			"--cp-comm-type a2a+p2p: expected %s that is a multiple of the first of "
			"--hierarchical-context-parallel-sizes, %lld, found %lld; use p2p",
			what, n, (long long)found);
}

int mfs_core_heads_check(const struct mfs_net *net, enum mfs_context_ways way,
			 const struct mfk_attention *shape, struct mfs_error *err)
{
	const int64_t n = net->context.way[way].heads;

	if (shape->heads % n)
		return refuse(net, way, "a number of heads", shape->heads, err);
	if (shape->kv_heads % n)
		return refuse(net, way, "--num-query-groups", shape->kv_heads, err);
	return 0;
}

struct mfk_attention mfs_core_heads_shape(const struct mfs_net *net, enum mfs_context_ways way,
					  const struct mfk_attention *a)
{
	const int64_t n = net->context.way[way].heads;
	struct mfk_attention all = *a;

	all.seq = a->seq * n;
	all.heads = a->heads / n;
	all.kv_heads = a->kv_heads / n;
	return all;
}

void mfs_core_heads_plan(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
			 bool backward)
{
	const struct mfk_attention *all = &core->shape;
	const int64_t rows = all->batch * all->seq;
	const int64_t widest = all->qk_dim > all->v_dim ? all->qk_dim : all->v_dim;
	const uint64_t q = mfs_matrix_bytes(net->io, rows, all->heads * all->qk_dim);
	const uint64_t k = mfs_matrix_bytes(net->io, rows, all->kv_heads * all->qk_dim);
	const uint64_t v = mfs_matrix_bytes(net->io, rows, all->kv_heads * all->v_dim);
	const uint64_t out = mfs_matrix_bytes(net->io, rows, all->heads * all->v_dim);
	uint64_t *at = core->heads_at[backward];

	at[PACKED] = mfs_part_plan_scratch(p, mfs_matrix_bytes(net->io, rows, all->heads * widest));
	at[Q] = mfs_part_plan_scratch(p, q);
	at[K] = mfs_part_plan_scratch(p, k);
	at[V] = mfs_part_plan_scratch(p, v);
	at[OUT] = mfs_part_plan_scratch(p, out);
	if (!backward)
		return;
	at[DOUT] = mfs_part_plan_scratch(p, out);
	at[DQ] = mfs_part_plan_scratch(p, q);
	at[DK] = mfs_part_plan_scratch(p, k);
	at[DV] = mfs_part_plan_scratch(p, v);
}

/* ---- the exchange ---- */

static void *buffer(const struct mfs_net *net, const struct mfs_core *core, bool backward,
		    unsigned which)
{
	return mfs_net_scratch(net, core->heads_at[backward][which]);
}

static int64_t joined_rows(const struct mfs_core *core)
{
	return core->shape.batch * core->shape.seq;
}

/* own [T, all heads, dim] of this process to joined [T of neighbours, some heads, dim]. */
static void *to_heads(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_core *core, bool backward, unsigned which, int64_t cols,
		      const void *own)
{
	void *joined = buffer(net, core, backward, which);
	void *packed = buffer(net, core, backward, PACKED);

	mfs_core_rows(net, run, net->context.way[core->way].to_heads, joined_rows(core), cols, own,
		      packed);
	mfs_context_exchange(net, run, core->way, packed, net->tokens, joined,
			     (size_t)cols * mfk_dtype_size(net->io), true);
	return joined;
}

static void from_heads(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_core *core, bool backward, int64_t cols, void *joined,
		       void *own)
{
	void *packed = buffer(net, core, backward, PACKED);

	mfs_context_exchange(net, run, core->way, packed, net->tokens, joined,
			     (size_t)cols * mfk_dtype_size(net->io), false);
	mfs_core_rows(net, run, net->context.way[core->way].from_heads, joined_rows(core), cols,
		      packed, own);
}

static struct mfk_attention attention_of(const struct mfs_net *net, const struct mfs_pass *run,
					 const struct mfs_core *core, const struct mfk_attention *a,
					 bool backward)
{
	struct mfk_attention all = mfs_core_heads_shape(net, core->way, a);
	const int64_t qk = all.qk_dim, v = all.v_dim;

	all.q = to_heads(net, run, core, backward, Q, all.heads * qk, a->q);
	all.k = to_heads(net, run, core, backward, K, all.kv_heads * qk, a->k);
	all.v = to_heads(net, run, core, backward, V, all.kv_heads * v, a->v);
	all.out = buffer(net, core, backward, OUT);
	all.first_key = run->heads_first_key[core->way];
	return all;
}

/* ---- what attends in between ---- */

/* One sequence of a batch. Dropout takes what it would take from all heads: their numbers are those
 * of the sequence's. */
static struct mfk_attention sequence_of(const struct mfs_net *net, const struct mfs_core *core,
					const struct mfk_attention *all, int64_t heads, int64_t i)
{
	const size_t size = mfk_dtype_size(all->dtype);
	const int64_t q = i * all->seq * all->heads, k = i * all->seq * all->kv_heads;
	const int64_t head = i * heads + net->context.way[core->way].heads_rank * all->heads;
	const uint64_t whole = (uint64_t)net->context.whole;
	struct mfk_attention one = *all;

	one.batch = 1;
	one.offset += (uint64_t)head * whole * whole;
	one.first_key = mfs_core_at(all->first_key, i * all->seq, sizeof(int32_t));
	one.q = mfs_core_at(all->q, q * all->qk_dim, size);
	one.k = mfs_core_at(all->k, k * all->qk_dim, size);
	one.v = mfs_core_at(all->v, k * all->v_dim, size);
	one.out = mfs_core_at(all->out, q * all->v_dim, size);
	one.lse = mfs_core_at(all->lse, q, sizeof(float));
	one.dout = mfs_core_at(all->dout, q * all->v_dim, size);
	one.dq = mfs_core_at(all->dq, q * all->qk_dim, size);
	one.dk = mfs_core_at(all->dk, k * all->qk_dim, size);
	one.dv = mfs_core_at(all->dv, k * all->v_dim, size);
	return one;
}

/* All sequences at once, unless dropout must know which head is which. */
static void attend(const struct mfs_net *net, const struct mfs_pass *run,
		   const struct mfs_core *core, const struct mfk_attention *all, int64_t heads,
		   void (*op)(const struct mfs_net *net, const struct mfs_pass *run,
			      const struct mfs_core *core, const struct mfk_attention *a))
{
	if (all->dropout <= 0) {
		op(net, run, core, all);
		return;
	}
	for (int64_t i = 0; i < all->batch; i++) {
		const struct mfk_attention one = sequence_of(net, core, all, heads, i);

		op(net, run, core, &one);
	}
}

void mfs_core_heads_forward(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_core *core, const struct mfk_attention *a)
{
	const struct mfk_attention all = attention_of(net, run, core, a, false);

	attend(net, run, core, &all, a->heads, core->kind->forward);
	from_heads(net, run, core, false, all.heads * all.v_dim, all.out, a->out);
}

void mfs_core_heads_backward(const struct mfs_net *net, const struct mfs_pass *run,
			     const struct mfs_core *core, const struct mfk_attention *a)
{
	struct mfk_attention all = attention_of(net, run, core, a, true);

	to_heads(net, run, core, true, OUT, all.heads * all.v_dim, a->out);
	all.dout = to_heads(net, run, core, true, DOUT, all.heads * all.v_dim, a->dout);
	all.dq = buffer(net, core, true, DQ);
	all.dk = buffer(net, core, true, DK);
	all.dv = buffer(net, core, true, DV);
	attend(net, run, core, &all, a->heads, core->kind->backward);
	from_heads(net, run, core, true, all.heads * all.qk_dim, all.dq, a->dq);
	from_heads(net, run, core, true, all.kv_heads * all.qk_dim, all.dk, a->dk);
	from_heads(net, run, core, true, all.kv_heads * all.v_dim, all.dv, a->dv);
}
