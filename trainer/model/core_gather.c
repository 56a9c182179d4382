/*
 * Attention by processes that gather all keys and values of their sequences. In backward they are
 * gathered again, and each process gets the sum of the gradients of its own.
 */
#include "trainer/model/core.h"

/* keys, values: [batch, whole, ...]; raw: either of them as it is gathered, a process's rows one
 * behind the other. */
enum { KEYS, VALUES, RAW, WORK, DKEYS, DVALUES };

/* Own queries, and the keys of whole sequences. */
static struct mfk_attention widened(const struct mfs_net *net, const struct mfk_attention *a)
{
	struct mfk_attention all = *a;

	all.keys = all.whole = net->context.whole;
	return all;
}

static void plan(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
		 bool backward)
{
	const struct mfk_attention all = widened(net, &core->shape);
	const int64_t rows = all.batch * all.keys;
	const uint64_t k = mfs_matrix_bytes(net->io, rows, all.kv_heads * all.qk_dim);
	const uint64_t v = mfs_matrix_bytes(net->io, rows, all.kv_heads * all.v_dim);
	uint64_t *at = core->at[backward];

	at[KEYS] = mfs_part_plan_scratch(p, k);
	at[VALUES] = mfs_part_plan_scratch(p, v);
	at[RAW] = mfs_part_plan_scratch(p, k > v ? k : v);
	at[WORK] = mfs_part_plan_scratch(p, mfs_core_work_bytes(net, &all, backward));
	if (!backward)
		return;
	at[DKEYS] = mfs_part_plan_scratch(p, k);
	at[DVALUES] = mfs_part_plan_scratch(p, v);
}

/* Rows of all processes, in the order of the sequence. */
static void gather(const struct mfs_net *net, const struct mfs_pass *run,
		   const struct mfs_core *core, bool backward, int64_t cols, const void *own,
		   void *all)
{
	void *raw = mfs_core_scratch(net, core, backward, RAW);

	mfs_parallel_all_gather(net->parallel, MFS_GROUP_CONTEXT, run->ctx, net->io, raw, own,
				(uint64_t)(net->tokens * cols));
	mfs_core_rows(net, run, net->context.to_sequence, net->batch * net->context.whole, cols,
		      raw, all);
}

/* The sum of all processes' rows, of those that are this one's. */
static void scatter(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_core *core, int64_t cols, const void *all, void *own)
{
	void *raw = mfs_core_scratch(net, core, true, RAW);

	mfs_core_rows(net, run, net->context.from_sequence, net->batch * net->context.whole, cols,
		      all, raw);
	mfs_parallel_reduce_scatter(net->parallel, MFS_GROUP_CONTEXT, run->ctx, net->io, own, raw,
				    (uint64_t)(net->tokens * cols));
}

static struct mfk_attention gathered(const struct mfs_net *net, const struct mfs_pass *run,
				     const struct mfs_core *core, const struct mfk_attention *a,
				     bool backward)
{
	struct mfk_attention all = widened(net, a);
	void *k = mfs_core_scratch(net, core, backward, KEYS);
	void *v = mfs_core_scratch(net, core, backward, VALUES);

	gather(net, run, core, backward, a->kv_heads * a->qk_dim, a->k, k);
	gather(net, run, core, backward, a->kv_heads * a->v_dim, a->v, v);
	all.k = k;
	all.v = v;
	all.query_at = mfs_context_positions(net, core->way, net->context.rank);
	all.scratch = mfs_core_scratch(net, core, backward, WORK);
	return all;
}

static void forward(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_core *core, const struct mfk_attention *a)
{
	const struct mfk_attention all = gathered(net, run, core, a, false);

	net->backend->ops->attention(run->ctx, &all);
}

static void backward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_core *core, const struct mfk_attention *a)
{
	struct mfk_attention all = gathered(net, run, core, a, true);

	all.dk = mfs_core_scratch(net, core, true, DKEYS);
	all.dv = mfs_core_scratch(net, core, true, DVALUES);
	net->backend->ops->attention_backward(run->ctx, &all);
	scatter(net, run, core, a->kv_heads * a->qk_dim, all.dk, a->dk);
	scatter(net, run, core, a->kv_heads * a->v_dim, all.dv, a->dv);
}

const struct mfs_core_kind mfs_core_gather = {
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
