/*
 * Attention in a ring: each process passes the keys and values that it has on to the next one, and
 * after as many steps as the ring has processes it has seen all of them. What its queries get of
 * each block is joined by the logarithms of sums of exponentials, in fp32.
 *
 * In backward the keys and values go round once more. The sums of their gradients, in fp32, follow
 * them, and one step more brings these home. A block's gradients follow from the output and the
 * logarithms of all of them.
 *
 * What goes round does so in parallel with the passes, while a block is computed. Blocks are
 * computed by pieces (core_pieces.c) unless documents, windows or dropout want to know positions.
 */
#include <math.h>

#include "trainer/model/attention/core.h"

/* Of keys and values, and of their gradients, there are two: one goes while the other comes. */
enum { KEYS, VALUES = KEYS + 2, WORK = VALUES + 2, OUT, PART, PART_LSE };
enum { DKEYS = WORK + 1, DVALUES = DKEYS + 2, DQ = DVALUES + 2, WIDE };

/* Own queries, and the keys of one process. */
static struct mfk_attention of_block(const struct mft_net *net, const struct mfk_attention *a)
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

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t ask(struct mft_part_plan *p, enum mfk_dtype type, int64_t elements)
{
	return mft_part_plan_scratch(p, mft_matrix_bytes(type, elements, 1));
}

static void plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
		 bool backward)
{
	const struct mfk_attention block = of_block(net, &core->shape);
	const struct sizes s = sizes_of(&block);
	uint64_t *at = core->at[backward];

	for (int i = 0; i < 2; i++) {
		at[KEYS + i] = ask(p, net->io, s.k);
		at[VALUES + i] = ask(p, net->io, s.v);
	}
	at[WORK] = mft_part_plan_scratch(
		p, larger(mft_core_work_bytes(net, &block, backward),
			  mft_pieces_work_bytes(net, &core->shape, backward)));
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
	at[WIDE] = ask(p, MFK_F32, (int64_t)larger(s.q, larger(s.k, s.v)));
}

/* ---- what goes round ---- */

struct block {
	const void *k, *v;
};

static const struct mft_context_way *way_of(const struct mft_net *net, const struct mft_core *core)
{
	return &net->context.way[core->way];
}

/* Two arrays to the next process, and those of the one before from it. */
static void pass_on(const struct mft_net *net, const struct mft_core *core, struct mfk_ctx *ctx,
		    struct block from, struct block to, size_t k_bytes, size_t v_bytes)
{
	const uint32_t n = way_of(net, core)->ring, rank = way_of(net, core)->ring_rank;
	const unsigned next = (rank + 1) % n, before = (rank + n - 1) % n;
	const struct mfk_message list[] = {
		{.receive = true, .peer = before, .data = (void *)to.k, .bytes = k_bytes},
		{.receive = true, .peer = before, .data = (void *)to.v, .bytes = v_bytes},
		{.peer = next, .data = (void *)from.k, .bytes = k_bytes},
		{.peer = next, .data = (void *)from.v, .bytes = v_bytes},
	};

	mft_parallel_exchange(net->parallel, way_of(net, core)->ring_group, ctx, list, 4);
}

static struct block slot(const struct mft_net *net, const struct mft_core *core, bool backward,
			 unsigned keys, unsigned values, uint32_t which)
{
	return (struct block){mft_core_scratch(net, core, backward, keys + which % 2),
			      mft_core_scratch(net, core, backward, values + which % 2)};
}

/* The block of a step, which is the one that came last. */
static struct block block_of(const struct mft_net *net, const struct mft_core *core,
			     const struct mfk_attention *a, bool backward, uint32_t step)
{
	return step ? slot(net, core, backward, KEYS, VALUES, step - 1)
		    : (struct block){a->k, a->v};
}

/* The sums of the gradients of a step's block. */
static struct block sums_of(const struct mft_net *net, const struct mft_core *core, uint32_t step)
{
	return slot(net, core, true, DKEYS, DVALUES, step);
}

/*
 * What goes round while a step's block is computed: the block, unless it is the last one, and in
 * backward the sums of the block before.
 */
static void send(const struct mft_net *net, const struct mft_pass *pass,
		 const struct mft_core *core, const struct mfk_attention *a, bool backward,
		 uint32_t step)
{
	struct mfk_ctx *ctx = mft_side_submit(net, &net->context_side, pass->ctx);
	const struct sizes s = sizes_of(a);
	const size_t size = mfk_dtype_size(net->io);

	if (step + 1 < way_of(net, core)->ring)
		pass_on(net, core, ctx, block_of(net, core, a, backward, step),
			slot(net, core, backward, KEYS, VALUES, step), (size_t)s.k * size,
			(size_t)s.v * size);
	if (backward && step)
		pass_on(net, core, ctx, sums_of(net, core, step - 1), sums_of(net, core, step),
			(size_t)s.k * sizeof(float), (size_t)s.v * sizeof(float));
}

static void await(const struct mft_net *net, const struct mft_pass *pass,
		  const struct mft_core *core)
{
	mft_side_await(net, &net->context_side, way_of(net, core)->ring_group, pass->ctx);
}

/* Whose block a step has. */
static uint32_t source_of(const struct mft_net *net, const struct mft_core *core, uint32_t step)
{
	const uint32_t n = way_of(net, core)->ring;

	return (way_of(net, core)->ring_rank + n - step) % n;
}

/* ---- by positions ---- */

/* What own queries have to do with a step's block. */
static struct mfk_attention attention_of(const struct mft_net *net, const struct mft_core *core,
					 const struct mfk_attention *a, bool backward,
					 uint32_t step)
{
	const struct block here = block_of(net, core, a, backward, step);
	struct mfk_attention block = of_block(net, a);

	block.k = here.k;
	block.v = here.v;
	block.query_at = mft_context_positions(net, core->way, way_of(net, core)->ring_rank);
	block.key_at = mft_context_positions(net, core->way, source_of(net, core, step));
	block.scratch = mft_core_scratch(net, core, backward, WORK);
	return block;
}

static void attend_by_positions(const struct mft_net *net, const struct mft_pass *pass,
				const struct mft_core *core, const struct mfk_attention *a,
				uint32_t step)
{
	const struct mfk_attention_join join = {
		.dtype = net->io,
		.batch = a->batch,
		.seq = a->seq,
		.heads = a->heads,
		.v_dim = a->v_dim,
		.part = mft_core_scratch(net, core, false, PART),
		.part_lse = mft_core_scratch(net, core, false, PART_LSE),
		.out = mft_core_scratch(net, core, false, OUT),
		.lse = a->lse,
	};
	struct mfk_attention block = attention_of(net, core, a, false, step);

	block.out = (void *)join.part;
	block.lse = (float *)join.part_lse;
	net->backend->ops->attention(pass->ctx, &block);
	net->backend->ops->attention_join(pass->ctx, &join);
}

/* dq, dk and dv have the part of the block before sums have it. */
static void go_back_by_positions(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_core *core, const struct mfk_attention *a,
				 uint32_t step)
{
	const struct mfk_attention block = attention_of(net, core, a, true, step);
	const struct block sums = sums_of(net, core, step);
	const struct sizes s = sizes_of(a);
	float *wide = mft_core_scratch(net, core, true, WIDE);

	net->backend->ops->attention_backward(pass->ctx, &block);
	mft_core_add(net, pass, wide, step == 0, mft_core_scratch(net, core, true, DQ), a->dq, s.q);
	await(net, pass, core);
	mft_core_add(net, pass, wide, step == 0, (float *)sums.k, a->dk, s.k);
	mft_core_add(net, pass, wide, step == 0, (float *)sums.v, a->dv, s.v);
}

/* ---- by pieces ---- */

/* Of own pieces those whose queries see a step's block, with the pieces that they see of it: three
 * pairs of the own block, two of each other. */
struct seen {
	int queries, keys;
};

static unsigned seen_of(const struct mft_net *net, const struct mft_core *core, uint32_t step,
			struct seen ret[3])
{
	const uint32_t n = way_of(net, core)->ring, rank = way_of(net, core)->ring_rank;
	const uint32_t source = source_of(net, core, step);
	unsigned count = 0;

	for (int q = 0; q < 2; q++)
		for (int k = 0; k < 2; k++)
			if (mft_context_number(n, source, k) <= mft_context_number(n, rank, q))
				ret[count++] = (struct seen){q, k};
	return count;
}

/* Elements before a piece of the keys, or of the values: heads of dim each. */
static int64_t before(const struct mfk_attention *a, int64_t sequence, int piece, int64_t dim)
{
	return (sequence * 2 + piece) * (a->seq / 2) * a->kv_heads * dim;
}

static struct mft_pair pair_of(const struct mft_net *net, const struct mfk_attention *a,
			       struct block here, int64_t sequence, struct seen seen, uint32_t step)
{
	const size_t size = mfk_dtype_size(net->io);

	return (struct mft_pair){
		.sequence = sequence,
		.queries = seen.queries,
		.causal = step == 0 && seen.queries == seen.keys,
		.first = step == 0 && seen.keys == 0,
		.k = mft_core_at(here.k, before(a, sequence, seen.keys, a->qk_dim), size),
		.v = mft_core_at(here.v, before(a, sequence, seen.keys, a->v_dim), size),
	};
}

static void attend_by_pieces(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_core *core, const struct mfk_attention *a,
			     uint32_t step)
{
	const struct mft_pieces pieces = {
		.a = a,
		.work = mft_core_scratch(net, core, false, WORK),
		.out = mft_core_scratch(net, core, false, OUT),
		.part = mft_core_scratch(net, core, false, PART),
		.part_lse = mft_core_scratch(net, core, false, PART_LSE),
	};
	const struct block here = block_of(net, core, a, false, step);
	struct seen seen[3];
	const unsigned count = seen_of(net, core, step, seen);

	for (int64_t sequence = 0; sequence < a->batch; sequence++)
		for (unsigned i = 0; i < count; i++) {
			const struct mft_pair pair = pair_of(net, a, here, sequence, seen[i], step);

			mft_pieces_forward(net, pass, &pieces, &pair);
		}
}

/* The gradients of a pair's keys and values, which lie in one of two pieces of dk and dv. */
static void add_keys(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_core *core, const struct mfk_attention *a, struct block sums,
		     int64_t sequence, struct seen seen, int place, bool first)
{
	const size_t size = mfk_dtype_size(net->io);
	const int64_t k = a->seq / 2 * a->kv_heads * a->qk_dim;
	const int64_t v = a->seq / 2 * a->kv_heads * a->v_dim;
	float *wide = mft_core_scratch(net, core, true, WIDE);

	mft_core_add(net, pass, wide, first,
		     (float *)sums.k + before(a, sequence, seen.keys, a->qk_dim),
		     mft_core_at(a->dk, before(a, sequence, place, a->qk_dim), size), k);
	mft_core_add(net, pass, wide, first,
		     (float *)sums.v + before(a, sequence, seen.keys, a->v_dim),
		     mft_core_at(a->dv, before(a, sequence, place, a->v_dim), size), v);
}

/* The two pairs of another process's block have a piece of dk and dv each until the block's sums
 * are there. The own block has none yet: its first pairs begin them. */
static void go_back_by_pieces(const struct mft_net *net, const struct mft_pass *pass,
			      const struct mft_core *core, const struct mfk_attention *a,
			      uint32_t step)
{
	const struct mft_pieces pieces = {
		.a = a,
		.work = mft_core_scratch(net, core, true, WORK),
		.dq = mft_core_scratch(net, core, true, DQ),
		.wide = mft_core_scratch(net, core, true, WIDE),
	};
	const struct block here = block_of(net, core, a, true, step);
	const struct block sums = sums_of(net, core, step);
	const size_t size = mfk_dtype_size(net->io);
	struct seen seen[3];
	const unsigned count = seen_of(net, core, step, seen);

	for (int64_t sequence = 0; sequence < a->batch; sequence++)
		for (unsigned i = 0; i < count; i++) {
			const struct mft_pair pair = pair_of(net, a, here, sequence, seen[i], step);
			const int place = (int)i % 2;

			mft_pieces_backward(
				net, pass, &pieces, &pair,
				mft_core_at(a->dk, before(a, sequence, place, a->qk_dim), size),
				mft_core_at(a->dv, before(a, sequence, place, a->v_dim), size));
			if (step == 0)
				add_keys(net, pass, core, a, sums, sequence, seen[i], place,
					 pair.causal);
		}
	await(net, pass, core);
	for (int64_t sequence = 0; sequence < a->batch && step; sequence++)
		for (unsigned i = 0; i < count; i++)
			add_keys(net, pass, core, a, sums, sequence, seen[i], (int)i, false);
}

/* ---- both ---- */

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_core *core, const struct mfk_attention *a)
{
	const struct mfk_ops *ops = net->backend->ops;

	ops->fill(pass->ctx, MFK_F32, a->lse, a->batch * a->seq * a->heads, -INFINITY);
	for (uint32_t step = 0; step < way_of(net, core)->ring; step++) {
		send(net, pass, core, a, false, step);
		(mft_pieces_do(a) ? attend_by_pieces : attend_by_positions)(net, pass, core, a,
									    step);
		await(net, pass, core);
	}
	ops->cast(pass->ctx, net->io, a->out, MFK_F32, mft_core_scratch(net, core, false, OUT),
		  sizes_of(a).out);
}

static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_core *core, const struct mfk_attention *a)
{
	const struct mfk_ops *ops = net->backend->ops;
	const uint32_t n = way_of(net, core)->ring;
	const struct sizes s = sizes_of(a);
	struct block sums;

	for (uint32_t step = 0; step < n; step++) {
		send(net, pass, core, a, true, step);
		(mft_pieces_do(a) ? go_back_by_pieces : go_back_by_positions)(net, pass, core, a,
									      step);
	}
	send(net, pass, core, a, true, n);
	await(net, pass, core);
	sums = sums_of(net, core, n);
	ops->cast(pass->ctx, net->io, a->dq, MFK_F32, mft_core_scratch(net, core, true, DQ), s.q);
	ops->cast(pass->ctx, net->io, a->dk, MFK_F32, sums.k, s.k);
	ops->cast(pass->ctx, net->io, a->dv, MFK_F32, sums.v, s.v);
}

const struct mft_core_ops mft_core_ring = {
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
