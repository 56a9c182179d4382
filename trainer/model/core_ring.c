/*
 * Attention in a ring: each process passes the keys and values that it has on to the next one, and
 * after as many steps as the ring has processes it has seen all of them. What its queries get of
 * each block is joined by the logarithms of sums of exponentials, in fp32.
 *
 * In backward the keys and values go round once more, and behind them, in fp32, the sums of their
 * gradients, which one step more brings home. A block's gradients follow from the output and the
 * logarithms of all of them.
 */
#include <math.h>

#include "trainer/model/core.h"

/* Of keys and values, and of their gradients, there are two: one goes while the other comes. */
enum { KEYS, VALUES = KEYS + 2, WORK = VALUES + 2, OUT, PART, PART_LSE };
enum { DKEYS = WORK + 1, DVALUES = DKEYS + 2, DQ = DVALUES + 2, WIDE };

/* Own queries, and the keys of one process. */
static struct mfk_attention of_block(const struct mfs_net *net, const struct mfk_attention *a)
{
	struct mfk_attention block = *a;

	block.keys = a->seq;
	block.whole = net->context.whole;
	return block;
}

/* Elements of this process's q, k, v and out. */
struct sizes {
	int64_t q, k, v, out;
};

static struct sizes sizes_of(const struct mfk_attention *a)
{
	const int64_t tokens = a->batch * a->seq;

	return (struct sizes){
		.q = tokens * a->heads * a->qk_dim,
		.k = tokens * a->kv_heads * a->qk_dim,
		.v = tokens * a->kv_heads * a->v_dim,
		.out = tokens * a->heads * a->v_dim,
	};
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static uint64_t ask(struct mfs_part_plan *p, enum mfk_dtype type, int64_t elements)
{
	return mfs_part_plan_scratch(p, mfs_matrix_bytes(type, elements, 1));
}

static void plan(const struct mfs_net *net, struct mfs_core *core, struct mfs_part_plan *p,
		 bool backward)
{
	const struct mfk_attention block = of_block(net, &core->shape);
	const struct sizes s = sizes_of(&block);
	uint64_t *at = core->at[backward];

	for (int i = 0; i < 2; i++) {
		at[KEYS + i] = ask(p, net->io, s.k);
		at[VALUES + i] = ask(p, net->io, s.v);
	}
	at[WORK] = mfs_part_plan_scratch(p, mfs_core_work_bytes(net, &block, backward));
	if (!backward) {
		at[OUT] = ask(p, MFK_F32, s.out);
		at[PART] = ask(p, net->io, s.out);
		at[PART_LSE] = ask(p, MFK_F32, block.batch * block.seq * block.heads);
		return;
	}
	for (int i = 0; i < 2; i++) {
		at[DKEYS + i] = ask(p, MFK_F32, s.k);
		at[DVALUES + i] = ask(p, MFK_F32, s.v);
	}
	at[DQ] = ask(p, MFK_F32, s.q);
	at[WIDE] = ask(p, MFK_F32, larger(s.q, larger(s.k, s.v)));
}

/* ---- what goes round ---- */

struct block {
	const void *k, *v;
};

static const struct mfs_context_way *way_of(const struct mfs_net *net, const struct mfs_core *core)
{
	return &net->context.way[core->way];
}

/* Two arrays to the next process, and those of the one before from it. */
static void pass_on(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_core *core, struct block from, struct block to, size_t k_bytes,
		    size_t v_bytes)
{
	const uint32_t n = way_of(net, core)->ring, rank = way_of(net, core)->ring_rank;
	const unsigned next = (rank + 1) % n, before = (rank + n - 1) % n;
	const struct mfk_message list[] = {
		{.receive = true, .peer = before, .data = (void *)to.k, .bytes = k_bytes},
		{.receive = true, .peer = before, .data = (void *)to.v, .bytes = v_bytes},
		{.peer = next, .data = (void *)from.k, .bytes = k_bytes},
		{.peer = next, .data = (void *)from.v, .bytes = v_bytes},
	};

	mfs_parallel_exchange(net->parallel, way_of(net, core)->ring_group, run->ctx, list, 4);
}

static struct block slot(const struct mfs_net *net, const struct mfs_core *core, bool backward,
			 unsigned keys, unsigned values, uint32_t which)
{
	return (struct block){mfs_core_scratch(net, core, backward, keys + which % 2),
			      mfs_core_scratch(net, core, backward, values + which % 2)};
}

/* The block of a step, the one that came last; it is passed on unless the step is the last one. */
static struct block next_block(const struct mfs_net *net, const struct mfs_pass *run,
			       const struct mfs_core *core, const struct mfk_attention *a,
			       bool backward, uint32_t step)
{
	const struct sizes s = sizes_of(a);
	const size_t size = mfk_dtype_size(net->io);
	const struct block own = {a->k, a->v};
	const struct block here = step ? slot(net, core, backward, KEYS, VALUES, step - 1) : own;

	if (step + 1 < way_of(net, core)->ring)
		pass_on(net, run, core, here, slot(net, core, backward, KEYS, VALUES, step),
			(size_t)s.k * size, (size_t)s.v * size);
	return here;
}

/* What own queries have to do with a step's block. */
static struct mfk_attention attention_of(const struct mfs_net *net, const struct mfs_core *core,
					 const struct mfk_attention *a, bool backward,
					 uint32_t step, struct block here)
{
	const uint32_t n = way_of(net, core)->ring, rank = way_of(net, core)->ring_rank;
	struct mfk_attention block = of_block(net, a);

	block.k = here.k;
	block.v = here.v;
	block.query_at = mfs_context_positions(net, core->way, rank);
	block.key_at = mfs_context_positions(net, core->way, (rank + n - step) % n);
	block.scratch = mfs_core_scratch(net, core, backward, WORK);
	return block;
}

/* ---- forward ---- */

static void forward(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_core *core, const struct mfk_attention *a)
{
	const struct mfk_ops *ops = net->backend->ops;
	const struct mfk_attention_join join = {
		.dtype = net->io,
		.batch = a->batch,
		.seq = a->seq,
		.heads = a->heads,
		.v_dim = a->v_dim,
		.part = mfs_core_scratch(net, core, false, PART),
		.part_lse = mfs_core_scratch(net, core, false, PART_LSE),
		.out = mfs_core_scratch(net, core, false, OUT),
		.lse = a->lse,
	};

	ops->fill(run->ctx, MFK_F32, a->lse, a->batch * a->seq * a->heads, -INFINITY);
	for (uint32_t step = 0; step < way_of(net, core)->ring; step++) {
		const struct block here = next_block(net, run, core, a, false, step);
		struct mfk_attention block = attention_of(net, core, a, false, step, here);

		block.out = (void *)join.part;
		block.lse = (float *)join.part_lse;
		ops->attention(run->ctx, &block);
		ops->attention_join(run->ctx, &join);
	}
	ops->cast(run->ctx, net->io, a->out, MFK_F32, join.out, sizes_of(a).out);
}

/* ---- backward ---- */

/* sum += part, or sum = part. */
static void add(const struct mfs_net *net, const struct mfs_pass *run, const struct mfs_core *core,
		bool first, float *sum, const void *part, int64_t count)
{
	const struct mfk_ops *ops = net->backend->ops;
	float *wide = mfs_core_scratch(net, core, true, WIDE);

	ops->cast(run->ctx, MFK_F32, first ? sum : wide, net->io, part, count);
	if (!first)
		ops->add(run->ctx, MFK_F32, sum, sum, wide, count);
}

/* The sums of the gradients of a step's block, from the process before. */
static struct block next_sums(const struct mfs_net *net, const struct mfs_pass *run,
			      const struct mfs_core *core, const struct mfk_attention *a,
			      uint32_t step)
{
	const struct block sums = slot(net, core, true, DKEYS, DVALUES, step);
	const struct sizes s = sizes_of(a);

	if (step)
		pass_on(net, run, core, slot(net, core, true, DKEYS, DVALUES, step - 1), sums,
			(size_t)s.k * sizeof(float), (size_t)s.v * sizeof(float));
	return sums;
}

/* dq, dk and dv have the part of each block before they have the sums. */
static void backward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_core *core, const struct mfk_attention *a)
{
	const struct mfk_ops *ops = net->backend->ops;
	const uint32_t n = way_of(net, core)->ring;
	const struct sizes s = sizes_of(a);
	float *dq = mfs_core_scratch(net, core, true, DQ);
	struct block sums;

	for (uint32_t step = 0; step < n; step++) {
		const struct block here = next_block(net, run, core, a, true, step);
		const struct mfk_attention block = attention_of(net, core, a, true, step, here);

		ops->attention_backward(run->ctx, &block);
		add(net, run, core, step == 0, dq, a->dq, s.q);
		sums = next_sums(net, run, core, a, step);
		add(net, run, core, step == 0, (float *)sums.k, a->dk, s.k);
		add(net, run, core, step == 0, (float *)sums.v, a->dv, s.v);
	}
	sums = next_sums(net, run, core, a, n);
	ops->cast(run->ctx, net->io, a->dq, MFK_F32, dq, s.q);
	ops->cast(run->ctx, net->io, a->dk, MFK_F32, sums.k, s.k);
	ops->cast(run->ctx, net->io, a->dv, MFK_F32, sums.v, s.v);
}

const struct mfs_core_kind mfs_core_ring = {
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
