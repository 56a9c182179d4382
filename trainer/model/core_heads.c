/*
 * Attention by processes that exchange tokens for heads (DeepSpeed-Ulysses): before it, each has
 * all heads of its own tokens; in it, all tokens of some heads; behind it, again the former. The
 * logarithms of sums are kept as it has them in between. Backward exchanges what forward did once
 * more, and gives back gradients.
 */
#include "trainer/model/core.h"

enum { PACKED, Q, K, V, OUT, WORK, DOUT, DQ, DK, DV };

static int check(const struct mfs_net *net, const struct mfk_attention *shape,
		 struct mfs_error *err)
{
	const int64_t n = net->context.size;

	if (shape->heads % n)
		return mfs_fail(err, -EINVAL,
				"--cp-comm-type a2a: expected a number of heads that is a multiple "
				"of --context-parallel-size %lld, found %lld; use p2p",
				(long long)n, (long long)shape->heads);
	if (shape->kv_heads % n)
		return mfs_fail(err, -EINVAL,
				"--cp-comm-type a2a: expected --num-query-groups that is a "
				"multiple of --context-parallel-size %lld, found %lld; use p2p",
				(long long)n, (long long)shape->kv_heads);
	return 0;
}

/* All tokens, some heads. */
static struct mfk_attention exchanged(const struct mfs_net *net, const struct mfk_attention *a)
{
	struct mfk_attention all = *a;

	all.seq = net->context.whole;
	all.heads = a->heads / net->context.size;
	all.kv_heads = a->kv_heads / net->context.size;
	return all;
}

static void plan(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
		 bool backward)
{
	const struct mfk_attention all = exchanged(net, &core->shape);
	const int64_t rows = all.batch * all.seq;
	const int64_t widest = all.qk_dim > all.v_dim ? all.qk_dim : all.v_dim;
	const uint64_t q = mfs_matrix_bytes(net->io, rows, all.heads * all.qk_dim);
	const uint64_t k = mfs_matrix_bytes(net->io, rows, all.kv_heads * all.qk_dim);
	const uint64_t v = mfs_matrix_bytes(net->io, rows, all.kv_heads * all.v_dim);
	const uint64_t out = mfs_matrix_bytes(net->io, rows, all.heads * all.v_dim);
	uint64_t *at = core->at[backward];

	at[PACKED] = mfs_part_plan_scratch(p, mfs_matrix_bytes(net->io, rows, all.heads * widest));
	at[Q] = mfs_part_plan_scratch(p, q);
	at[K] = mfs_part_plan_scratch(p, k);
	at[V] = mfs_part_plan_scratch(p, v);
	at[OUT] = mfs_part_plan_scratch(p, out);
	at[WORK] = mfs_part_plan_scratch(p, mfs_core_work_bytes(net, &all, backward));
	if (!backward)
		return;
	at[DOUT] = mfs_part_plan_scratch(p, out);
	at[DQ] = mfs_part_plan_scratch(p, q);
	at[DK] = mfs_part_plan_scratch(p, k);
	at[DV] = mfs_part_plan_scratch(p, v);
}

/* ---- the exchange ---- */

static void *packed(const struct mfs_net *net, const struct mfs_core *core, bool backward)
{
	return mfs_core_scratch(net, core, backward, PACKED);
}

/* own [T, heads, dim] of this process to all [batch, whole, heads / n, dim]. */
static void *to_heads(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_core *core, bool backward, unsigned which, int64_t cols,
		      const void *own)
{
	void *all = mfs_core_scratch(net, core, backward, which);

	mfs_core_rows(net, run, net->context.to_heads, cols, own, packed(net, core, backward));
	mfs_context_exchange(net, run, packed(net, core, backward), mfs_core_tokens(core), all,
			     (size_t)cols * mfk_dtype_size(net->io), true);
	return all;
}

static void from_heads(const struct mfs_net *net, const struct mfs_pass *run,
		       const struct mfs_core *core, bool backward, int64_t cols, void *all,
		       void *own)
{
	mfs_context_exchange(net, run, packed(net, core, backward), mfs_core_tokens(core), all,
			     (size_t)cols * mfk_dtype_size(net->io), false);
	mfs_core_rows(net, run, net->context.from_heads, cols, packed(net, core, backward), own);
}

static struct mfk_attention attention_of(const struct mfs_net *net, const struct mfs_pass *run,
					 const struct mfs_core *core, const struct mfk_attention *a,
					 bool backward)
{
	struct mfk_attention all = exchanged(net, a);
	const int64_t qk = all.qk_dim, v = all.v_dim;

	all.q = to_heads(net, run, core, backward, Q, all.heads * qk, a->q);
	all.k = to_heads(net, run, core, backward, K, all.kv_heads * qk, a->k);
	all.v = to_heads(net, run, core, backward, V, all.kv_heads * v, a->v);
	all.out = mfs_core_scratch(net, core, backward, OUT);
	all.first_key = run->whole_first_key;
	all.scratch = mfs_core_scratch(net, core, backward, WORK);
	return all;
}

static const void *moved(const void *p, int64_t elements, size_t size)
{
	return p ? (const char *)p + (size_t)elements * size : NULL;
}

/* One sequence of a batch. Dropout takes what it would take from all heads: their numbers are those
 * of the sequence's. */
static struct mfk_attention sequence_of(const struct mfs_net *net, const struct mfk_attention *all,
					int64_t heads, int64_t i)
{
	const size_t size = mfk_dtype_size(all->dtype);
	const int64_t q = i * all->seq * all->heads, k = i * all->seq * all->kv_heads;
	const int64_t head = i * heads + net->context.rank * all->heads;
	struct mfk_attention one = *all;

	one.batch = 1;
	one.offset += (uint64_t)head * (uint64_t)all->seq * (uint64_t)all->seq;
	one.first_key = moved(all->first_key, i * all->seq, sizeof(int32_t));
	one.q = moved(all->q, q * all->qk_dim, size);
	one.k = moved(all->k, k * all->qk_dim, size);
	one.v = moved(all->v, k * all->v_dim, size);
	one.out = (void *)moved(all->out, q * all->v_dim, size);
	one.lse = (float *)moved(all->lse, q, sizeof(float));
	one.dout = moved(all->dout, q * all->v_dim, size);
	one.dq = (void *)moved(all->dq, q * all->qk_dim, size);
	one.dk = (void *)moved(all->dk, k * all->qk_dim, size);
	one.dv = (void *)moved(all->dv, k * all->v_dim, size);
	return one;
}

/* All sequences at once, unless dropout must know which head is which. */
static void attend(const struct mfs_net *net, const struct mfs_pass *run,
		   const struct mfk_attention *all, int64_t heads,
		   void (*op)(struct mfk_ctx *c, const struct mfk_attention *a))
{
	if (all->dropout <= 0) {
		op(run->ctx, all);
		return;
	}
	for (int64_t i = 0; i < all->batch; i++) {
		const struct mfk_attention one = sequence_of(net, all, heads, i);

		op(run->ctx, &one);
	}
}

static void forward(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_core *core, const struct mfk_attention *a)
{
	const struct mfk_attention all = attention_of(net, run, core, a, false);

	attend(net, run, &all, a->heads, net->backend->ops->attention);
	from_heads(net, run, core, false, all.heads * all.v_dim, all.out, a->out);
}

static void backward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_core *core, const struct mfk_attention *a)
{
	struct mfk_attention all = attention_of(net, run, core, a, true);

	to_heads(net, run, core, true, OUT, all.heads * all.v_dim, a->out);
	all.dout = to_heads(net, run, core, true, DOUT, all.heads * all.v_dim, a->dout);
	all.dq = mfs_core_scratch(net, core, true, DQ);
	all.dk = mfs_core_scratch(net, core, true, DK);
	all.dv = mfs_core_scratch(net, core, true, DV);
	attend(net, run, &all, a->heads, net->backend->ops->attention_backward);
	from_heads(net, run, core, true, all.heads * all.qk_dim, all.dq, a->dq);
	from_heads(net, run, core, true, all.kv_heads * all.qk_dim, all.dk, a->dk);
	from_heads(net, run, core, true, all.kv_heads * all.v_dim, all.dv, a->dv);
}

const struct mfs_core_kind mfs_core_heads = {
	.check = check,
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
