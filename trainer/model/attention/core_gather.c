/*
 * Attention by processes that gather all keys and values of their sequences. In backward they are
 * gathered again, and each process gets the sum of the gradients of its own. It goes by pieces
 * (core_pieces.c) unless documents, windows or dropout want to know positions.
 */
#include <math.h>

#include "trainer/model/attention/core.h"

/* keys, values: [batch, whole, ...]; raw: either of them as it is gathered, the rows of one process
 * after another's. */
enum { KEYS, VALUES, RAW, WORK, OUT, PART, PART_LSE };
enum { DKEYS = WORK + 1, DVALUES, DQ, WIDE, KEYS_SUM, VALUES_SUM };

/* Own queries, and the keys of whole sequences. */
static struct mfk_attention widened(const struct mft_net *net, const struct mfk_attention *a)
{
	struct mfk_attention all = *a;

	all.keys = all.whole = net->context.whole;
	return all;
}

static void plan(const struct mft_net *net, struct mft_core *core, struct mft_part_plan *p,
		 bool backward)
{
	const struct mfk_attention all = widened(net, &core->shape);
	const int64_t rows = all.batch * all.keys, own = all.batch * all.seq;
	const int64_t k_cols = all.kv_heads * all.qk_dim, v_cols = all.kv_heads * all.v_dim;
	const int64_t q_cols = all.heads * all.qk_dim, out_cols = all.heads * all.v_dim;
	const int64_t widest = q_cols > out_cols ? q_cols : out_cols;
	const uint64_t k = mft_matrix_bytes(net->io, rows, k_cols);
	const uint64_t v = mft_matrix_bytes(net->io, rows, v_cols);
	const uint64_t work = mft_core_work_bytes(net, &all, backward);
	const uint64_t pieces = mft_pieces_work_bytes(net, &core->shape, backward);
	uint64_t *at = core->at[backward];

	at[KEYS] = mft_part_plan_scratch(p, k);
	at[VALUES] = mft_part_plan_scratch(p, v);
	at[RAW] = mft_part_plan_scratch(p, k > v ? k : v);
	at[WORK] = mft_part_plan_scratch(p, work > pieces ? work : pieces);
	if (!backward) {
		at[OUT] = mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, own, out_cols));
		at[PART] =
			mft_part_plan_scratch(p, mft_matrix_bytes(net->io, all.seq / 2, out_cols));
		at[PART_LSE] =
			mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, all.seq / 2, all.heads));
		return;
	}
	at[DKEYS] = mft_part_plan_scratch(p, k);
	at[DVALUES] = mft_part_plan_scratch(p, v);
	at[DQ] = mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, own, q_cols));
	at[WIDE] = mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, all.seq / 2, widest));
	at[KEYS_SUM] = mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, rows, k_cols));
	at[VALUES_SUM] = mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, rows, v_cols));
}

/* Rows of all processes, in the order of the sequence. */
static void gather(const struct mft_net *net, const struct mft_pass *pass,
		   const struct mft_core *core, bool backward, int64_t cols, const void *own,
		   void *all)
{
	void *raw = mft_core_scratch(net, core, backward, RAW);

	mft_parallel_all_gather(net->parallel, MFT_GROUP_CONTEXT,
				mft_side_submit(net, &net->context_side, pass->ctx), net->io, raw,
				own, (uint64_t)(net->tokens * cols));
	mft_side_await(net, &net->context_side, MFT_GROUP_CONTEXT, pass->ctx);
	mft_core_rows(net, pass, net->context.to_sequence, net->batch * net->context.whole, cols,
		      raw, all);
}

/* The sum of all processes' rows, of those that are this one's. */
static void scatter(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_core *core, int64_t cols, const void *all, void *own)
{
	void *raw = mft_core_scratch(net, core, true, RAW);

	mft_core_rows(net, pass, net->context.from_sequence, net->batch * net->context.whole, cols,
		      all, raw);
	mft_parallel_reduce_scatter(net->parallel, MFT_GROUP_CONTEXT,
				    mft_side_submit(net, &net->context_side, pass->ctx), net->io,
				    own, raw, (uint64_t)(net->tokens * cols));
	mft_side_await(net, &net->context_side, MFT_GROUP_CONTEXT, pass->ctx);
}

static struct mfk_attention gathered(const struct mft_net *net, const struct mft_pass *pass,
				     const struct mft_core *core, const struct mfk_attention *a,
				     bool backward)
{
	struct mfk_attention all = widened(net, a);
	void *k = mft_core_scratch(net, core, backward, KEYS);
	void *v = mft_core_scratch(net, core, backward, VALUES);

	gather(net, pass, core, backward, a->kv_heads * a->qk_dim, a->k, k);
	gather(net, pass, core, backward, a->kv_heads * a->v_dim, a->v, v);
	all.k = k;
	all.v = v;
	all.query_at = mft_context_positions(net, core->way, net->context.rank);
	all.scratch = mft_core_scratch(net, core, backward, WORK);
	return all;
}

/* ---- by pieces ---- */

/* Elements before a piece of all keys, or values: heads of dim each. */
static int64_t before(const struct mft_net *net, const struct mfk_attention *a, int64_t sequence,
		      uint32_t piece, int64_t dim)
{
	return (sequence * 2 * net->context.size + piece) * (a->seq / 2) * a->kv_heads * dim;
}

static struct mft_pair pair_of(const struct mft_net *net, const struct mfk_attention *all,
			       int64_t sequence, int queries, uint32_t piece)
{
	const size_t size = mfk_dtype_size(net->io);

	return (struct mft_pair){
		.sequence = sequence,
		.queries = queries,
		.causal =
			piece == mft_context_number(net->context.size, net->context.rank, queries),
		.first = piece == 0,
		.k = (const char *)all->k +
		     (size_t)before(net, all, sequence, piece, all->qk_dim) * size,
		.v = (const char *)all->v +
		     (size_t)before(net, all, sequence, piece, all->v_dim) * size,
	};
}

/* Pairs of a sequence are numbered by their queries, and by their keys up to the queries' own. */
static bool next_pair(const struct mft_net *net, int *queries, uint32_t *piece)
{
	if (++*piece <= mft_context_number(net->context.size, net->context.rank, *queries))
		return true;
	*piece = 0;
	return ++*queries < 2;
}

static void attend_by_pieces(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_core *core, const struct mfk_attention *all)
{
	const struct mfk_ops *ops = net->backend->ops;
	const struct mft_pieces pieces = {
		.a = all,
		.work = all->scratch,
		.out = mft_core_scratch(net, core, false, OUT),
		.part = mft_core_scratch(net, core, false, PART),
		.part_lse = mft_core_scratch(net, core, false, PART_LSE),
	};
	const int64_t rows = all->batch * all->seq * all->heads;

	ops->fill(pass->ctx, MFK_F32, all->lse, rows, -INFINITY);
	for (int64_t sequence = 0; sequence < all->batch; sequence++) {
		int queries = 0;
		uint32_t piece = 0;

		do {
			const struct mft_pair pair = pair_of(net, all, sequence, queries, piece);

			mft_pieces_forward(net, pass, &pieces, &pair);
		} while (next_pair(net, &queries, &piece));
	}
	ops->cast(pass->ctx, net->io, all->out, MFK_F32, pieces.out, rows * all->v_dim);
}

/* own: of dk and dv, where each pair's lie for the moment. */
static void go_back_by_pieces(const struct mft_net *net, const struct mft_pass *pass,
			      const struct mft_core *core, const struct mfk_attention *all,
			      const struct mfk_attention *own)
{
	const struct mfk_ops *ops = net->backend->ops;
	const struct mft_pieces pieces = {
		.a = all,
		.work = all->scratch,
		.dq = mft_core_scratch(net, core, true, DQ),
		.wide = mft_core_scratch(net, core, true, WIDE),
	};
	const int64_t k = all->kv_heads * all->qk_dim, v = all->kv_heads * all->v_dim;
	const int64_t keys = all->batch * net->context.whole;
	float *k_sum = mft_core_scratch(net, core, true, KEYS_SUM);
	float *v_sum = mft_core_scratch(net, core, true, VALUES_SUM);

	ops->fill(pass->ctx, MFK_F32, k_sum, keys * k, 0);
	ops->fill(pass->ctx, MFK_F32, v_sum, keys * v, 0);
	for (int64_t sequence = 0; sequence < all->batch; sequence++) {
		int queries = 0;
		uint32_t piece = 0;

		do {
			const struct mft_pair pair = pair_of(net, all, sequence, queries, piece);

			mft_pieces_backward(net, pass, &pieces, &pair, own->dk, own->dv);
			mft_core_add(net, pass, pieces.wide, false,
				     k_sum + before(net, all, sequence, piece, all->qk_dim),
				     own->dk, all->seq / 2 * k);
			mft_core_add(net, pass, pieces.wide, false,
				     v_sum + before(net, all, sequence, piece, all->v_dim), own->dv,
				     all->seq / 2 * v);
		} while (next_pair(net, &queries, &piece));
	}
	ops->cast(pass->ctx, net->io, all->dq, MFK_F32, pieces.dq,
		  all->batch * all->seq * all->heads * all->qk_dim);
	ops->cast(pass->ctx, net->io, all->dk, MFK_F32, k_sum, keys * k);
	ops->cast(pass->ctx, net->io, all->dv, MFK_F32, v_sum, keys * v);
}

/* ---- both ---- */

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_core *core, const struct mfk_attention *a)
{
	const struct mfk_attention all = gathered(net, pass, core, a, false);

	if (mft_pieces_do(a))
		attend_by_pieces(net, pass, core, &all);
	else
		net->backend->ops->attention(pass->ctx, &all);
}

static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_core *core, const struct mfk_attention *a)
{
	struct mfk_attention all = gathered(net, pass, core, a, true);

	all.dk = mft_core_scratch(net, core, true, DKEYS);
	all.dv = mft_core_scratch(net, core, true, DVALUES);
	if (mft_pieces_do(a))
		go_back_by_pieces(net, pass, core, &all, a);
	else
		net->backend->ops->attention_backward(pass->ctx, &all);
	scatter(net, pass, core, a->kv_heads * a->qk_dim, all.dk, a->dk);
	scatter(net, pass, core, a->kv_heads * a->v_dim, all.dv, a->dv);
}

const struct mft_core_ops mft_core_gather = {
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
