/* How much work each operation is: products and attention in floating-point operations, all others
 * in bytes of memory that they read and write once, in the forms that kernels/cuda has. */
#include "kernels/record/record_i.h"

/* ---- of memory ---- */

static void memory(struct mfk_ctx *c, const char *name, double elements, enum mfk_dtype dtype)
{
	mfk_record_submit(c, (struct mfk_work){
				     .kind = MFK_WORK_MEMORY,
				     .name = name,
				     .dtype = dtype,
				     .bytes = (uint64_t)(elements * (double)mfk_dtype_size(dtype)),
			     });
}

/* Elements of a matrix that is gone through so many times. */
static double times(int64_t rows, int64_t cols, int count)
{
	return (double)rows * (double)cols * count;
}

/* ---- products ---- */

/* Bytes of c. */
static uint64_t result(const struct mfk_gemm *a, double matrices)
{
	return (uint64_t)((double)a->m * (double)a->n * matrices *
			  (double)mfk_dtype_size(a->dtype_c));
}

static void gemm(struct mfk_ctx *c, const struct mfk_gemm *a)
{
	const double ab = (double)a->m * (double)a->k + (double)a->k * (double)a->n;
	const uint64_t c_bytes = result(a, 1), added = a->beta != 0 ? 2 * c_bytes : 0;

	mfk_record_submit(c, (struct mfk_work){
				     .kind = MFK_WORK_GEMM,
				     .name = "gemm",
				     .dtype = a->dtype_a,
				     .m = a->m,
				     .n = a->n,
				     .k = a->k,
				     .groups = 1,
				     .flops = 2.0 * (double)a->m * (double)a->n * (double)a->k,
				     .bytes = (uint64_t)(ab * (double)mfk_dtype_size(a->dtype_a)) +
					      (added ? added : c_bytes),
				     .added = added,
			     });
}

/* Of weights' gradients k is divided among the groups, and c has one matrix of each. */
static void gemm_grouped(struct mfk_ctx *c, const struct mfk_gemm_grouped *a)
{
	const struct mfk_gemm *b = &a->base;
	const bool of_weights = a->along_k || b->trans_a;
	const double groups = (double)a->groups;
	const double m = (double)b->m, n = (double)b->n, k = (double)b->k;
	const double read = m * k + k * n * (of_weights ? 1 : groups);
	const uint64_t c_bytes = result(b, of_weights ? groups : 1);
	const uint64_t added = b->beta != 0 ? 2 * c_bytes : 0;

	mfk_record_submit(c,
			  (struct mfk_work){
				  .kind = MFK_WORK_GEMM,
				  .name = "gemm_grouped",
				  .dtype = b->dtype_a,
				  .m = of_weights ? b->m : b->m / a->groups,
				  .n = b->n,
				  .k = of_weights ? b->k / a->groups : b->k,
				  .groups = a->groups,
				  .flops = 2 * m * n * k,
				  .bytes = (uint64_t)(read * (double)mfk_dtype_size(b->dtype_a)) +
					   (added ? added : c_bytes),
				  .added = added,
			  });
}

static bool gemm_grouped_wants_host(struct mfk_device *d, const struct mfk_gemm_grouped *a)
{
	(void)d;
	(void)a;
	return false;
}

static void bias_backward(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *db,
			  const void *dy, int64_t rows, int64_t cols)
{
	(void)grad;
	(void)db;
	(void)dy;
	memory(c, "bias_backward", times(rows, cols, 1), dtype);
}

/* ---- norms, queries and keys ---- */

static void norm(struct mfk_ctx *c, const struct mfk_norm *a)
{
	memory(c, "norm", times(a->rows, a->cols, a->residual ? 4 : 2), a->dtype);
}

static void norm_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a)
{
	memory(c, "norm_backward", times(a->rows, a->cols, a->dresidual ? 4 : 3), a->dtype);
}

static int64_t qkv_cols(const struct mfk_qkv *a)
{
	return a->groups * (a->heads_per_group + 2) * a->dim; /* without gates */
}

static void qkv(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	memory(c, a->q_norm ? "qkv_norm" : "qkv", times(a->tokens, qkv_cols(a), 2), a->dtype);
}

static void qkv_backward(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	memory(c, a->q_norm ? "qkv_norm_backward" : "qkv_backward",
	       times(a->tokens, qkv_cols(a), a->q_norm ? 3 : 2), a->dtype);
}

static int64_t mla_cols(const struct mfk_mla *a)
{
	return a->heads * (2 * (a->nope + a->rope) + a->nope + 2 * a->v_dim) + a->rope;
}

static void mla(struct mfk_ctx *c, const struct mfk_mla *a)
{
	memory(c, "mla", times(a->tokens, mla_cols(a) + a->heads * (a->nope + a->rope), 1),
	       a->dtype);
}

static void mla_backward(struct mfk_ctx *c, const struct mfk_mla *a)
{
	memory(c, "mla_backward", times(a->tokens, mla_cols(a) + a->heads * (a->nope + a->rope), 1),
	       a->dtype);
}

/* ---- attention ---- */

static size_t attention_scratch(struct mfk_device *d, const struct mfk_attention *a, bool backward)
{
	(void)d;
	(void)a;
	(void)backward;
	return 0;
}

/* Pairs of a query and a key of one head that is attended to. Of a part of the keys of a sequence
 * that is shared, the part of them; documents and windows are not known here. */
static double pairs(const struct mfk_attention *a)
{
	const double queries = (double)a->seq, keys = (double)(a->keys ? a->keys : a->seq);

	return queries * keys * (a->causal ? 0.5 : 1) * (double)a->batch * (double)a->heads;
}

static void attend(struct mfk_ctx *c, const struct mfk_attention *a, enum mfk_work_kind kind)
{
	const bool back = kind == MFK_WORK_ATTENTION_BACKWARD;
	/* Scores, and values of them; backward: scores again, three gradients of queries, keys and
	 * scores' sums, two of values. */
	const double each = back ? 6.0 * (double)a->qk_dim + 4.0 * (double)a->v_dim
				 : 2.0 * (double)(a->qk_dim + a->v_dim);

	mfk_record_submit(c, (struct mfk_work){.kind = kind,
					       .name = back ? "attention_backward" : "attention",
					       .dtype = a->dtype,
					       .m = a->seq,
					       .n = a->keys ? a->keys : a->seq,
					       .groups = a->batch * a->heads,
					       .qk_dim = a->qk_dim,
					       .v_dim = a->v_dim,
					       .flops = pairs(a) * each});
}

static void attention(struct mfk_ctx *c, const struct mfk_attention *a)
{
	attend(c, a, MFK_WORK_ATTENTION);
}

static void attention_backward(struct mfk_ctx *c, const struct mfk_attention *a)
{
	attend(c, a, MFK_WORK_ATTENTION_BACKWARD);
}

static void attention_join(struct mfk_ctx *c, const struct mfk_attention_join *a)
{
	memory(c, "attention_join", times(a->batch * a->seq, a->heads * a->v_dim, 5), a->dtype);
}

static void attention_max(struct mfk_ctx *c, const struct mfk_attention *a, float *max)
{
	(void)max;
	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_ATTENTION,
					       .name = "attention_max",
					       .dtype = MFK_F32,
					       .m = a->seq,
					       .n = a->seq,
					       .groups = a->batch * a->heads,
					       .qk_dim = a->qk_dim,
					       .flops = pairs(a) * 2.0 * (double)a->qk_dim});
}

/* Positions are not known here: as many keys as there is room for, half of them on average. */
static void attention_cached(struct mfk_ctx *c, const struct mfk_attention_cached *a)
{
	const int64_t keys = a->window ? a->window : (a->length + 1) / 2;

	memory(c, "attention_cached",
	       times(a->tokens, a->kv_heads * (a->qk_dim + a->v_dim), 1) * (double)keys, a->dtype);
}

/* ---- gates, and the gated delta net ---- */

static void gate(struct mfk_ctx *c, const struct mfk_gate *a)
{
	memory(c, "gate", times(a->rows, a->cols, 3), a->dtype);
}

static void gate_backward(struct mfk_ctx *c, const struct mfk_gate *a)
{
	memory(c, "gate_backward", times(a->rows, a->cols, 5), a->dtype);
}

static size_t delta_scratch(struct mfk_device *d, const struct mfk_delta *a)
{
	(void)d;
	(void)a;
	return 0;
}

/* Elements of q, k and v of all tokens. */
static double delta_elements(const struct mfk_delta *a, int count)
{
	return times(a->batch * a->seq,
		     2 * a->key_heads * a->key_dim + a->value_heads * a->value_dim, count);
}

static void delta_inputs(struct mfk_ctx *c, const struct mfk_delta *a)
{
	memory(c, "delta_inputs", delta_elements(a, 2), a->dtype);
}

static void delta_inputs_backward(struct mfk_ctx *c, const struct mfk_delta *a)
{
	memory(c, "delta_inputs_backward", delta_elements(a, 3), a->dtype);
}

/* States stay where they are computed with, but for those that backward computes again, which are
 * written and read. */
static void delta_rule(struct mfk_ctx *c, const struct mfk_delta *a)
{
	memory(c, "delta_rule", delta_elements(a, 2), a->dtype);
}

static void delta_rule_backward(struct mfk_ctx *c, const struct mfk_delta *a)
{
	memory(c, "delta_rule_backward",
	       times(a->batch * a->seq * a->value_heads, a->key_dim * a->value_dim, 3), MFK_F32);
}

/* ---- experts ---- */

static void route(struct mfk_ctx *c, const struct mfk_route *a)
{
	memory(c, "route", times(a->tokens, a->experts, 2), a->dtype);
}

static void route_backward(struct mfk_ctx *c, const struct mfk_route *a)
{
	memory(c, "route_backward", times(a->tokens, a->experts, 2), a->dtype);
}

static void route_balance(struct mfk_ctx *c, const struct mfk_route *a)
{
	memory(c, "route_balance", times(a->tokens, a->experts, 1), a->dtype);
}

static void sinkhorn(struct mfk_ctx *c, const struct mfk_sinkhorn *a)
{
	memory(c, "sinkhorn", times(a->sequences * a->length, a->experts, 2), MFK_F32);
}

static void balance_sum(struct mfk_ctx *c, const struct mfk_balance *a)
{
	memory(c, "balance_sum", times(a->sequences, a->experts, 1), MFK_F32);
}

static void balance_weigh(struct mfk_ctx *c, const struct mfk_balance *a)
{
	memory(c, "balance_weigh", times(a->sequences, a->experts, 3), MFK_F32);
}

static void drop(struct mfk_ctx *c, const struct mfk_drop *a)
{
	memory(c, "drop", times(a->sequences * a->length, a->top_k, 3), MFK_F32);
}

/* Each expert gets as many choices as the others. */
static void dispatch(struct mfk_ctx *c, const struct mfk_dispatch *a)
{
	const int64_t choices = a->tokens * a->top_k;

	for (int64_t e = 0; e <= a->experts; e++)
		a->offsets[e] = e * choices / a->experts;
	memory(c, "dispatch", times(choices, 6, 1), MFK_F32);
}

static void gather(struct mfk_ctx *c, const struct mfk_rows *a)
{
	memory(c, "gather", times(a->rows, a->cols, 2), a->dtype);
}

static void group_bias(struct mfk_ctx *c, const struct mfk_group_bias *a)
{
	memory(c, "group_bias", times(a->rows, a->cols, 2), a->dtype);
}

static void group_bias_backward(struct mfk_ctx *c, const struct mfk_group_bias *a)
{
	memory(c, "group_bias_backward", times(a->rows, a->cols, a->dscale ? 2 : 1), a->dtype);
}

static void combine(struct mfk_ctx *c, const struct mfk_rows *a)
{
	memory(c, "combine", times(a->rows, a->cols, (int)a->each + (a->residual ? 2 : 1)),
	       a->dtype);
}

static void balance_bias(struct mfk_ctx *c, float *bias, int32_t *totals, int64_t experts,
			 float rate)
{
	(void)bias;
	(void)totals;
	(void)rate;
	memory(c, "balance_bias", times(experts, 3, 1), MFK_F32);
}

/* ---- element by element ---- */

static void act(struct mfk_ctx *c, const struct mfk_act *a)
{
	memory(c, "act", times(a->rows, a->cols, a->gated ? 3 : 2), a->dtype);
}

static void act_backward(struct mfk_ctx *c, const struct mfk_act *a)
{
	memory(c, "act_backward", times(a->rows, a->cols, a->gated ? 5 : 3), a->dtype);
}

/* What the CUDA backend does in the product itself. */
static bool is_one(const struct mfk_gemm *g, const struct mfk_act *a)
{
	return a->kind == MFK_GELU_TANH && !a->gated && !a->row_scale && g->dtype_a == MFK_BF16;
}

static void gemm_act(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a)
{
	gemm(c, g);
	if (!is_one(g, a))
		act(c, a);
}

static void gemm_act_backward(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a)
{
	gemm(c, g);
	if (!is_one(g, a))
		act_backward(c, a);
}

static void embedding(struct mfk_ctx *c, const struct mfk_embedding *a)
{
	memory(c, "embedding", times(a->tokens, a->cols, a->wpe ? 3 : 2), a->dtype);
}

/* Rows of gradients are read and written where tokens are. */
static void embedding_backward(struct mfk_ctx *c, const struct mfk_embedding *a)
{
	memory(c, "embedding_backward", times(a->tokens, a->cols, 3), a->grad);
}

#define OP(unused, name_, args, alone, gradient)                                                   \
	static void name_(struct mfk_ctx *c, const struct mfk_##args *a)                           \
	{                                                                                          \
		memory(c, #args, times(a->rows, a->vocab, a->dlogits ? (gradient) : (alone)),      \
		       a->dtype);                                                                  \
	}
MFK_LOSS_OPS(OP, )
#undef OP

/* At most eight arrays are read, and ten written. */
static void policy(struct mfk_ctx *c, const struct mfk_policy *a)
{
	memory(c, "policy", times(a->rows, 1, 18), MFK_F32);
}

static void policy_sums(struct mfk_ctx *c, const struct mfk_policy *a)
{
	memory(c, "policy", times(a->rows, 1, 4), MFK_F32);
}

/* Limits are found in 32 steps each. */
static void sample(struct mfk_ctx *c, const struct mfk_sample *a)
{
	const int limits = a->temperature > 0 ? (a->top_k > 0) + (a->top_p < 1) : 0;

	memory(c, "sample", times(a->count, a->vocab, 2 + 32 * limits), a->dtype);
}

static void dropout(struct mfk_ctx *c, const struct mfk_dropout *a)
{
	memory(c, "dropout", times(a->count, 1, a->residual ? 3 : 2), a->dtype);
}

static void dropout_backward(struct mfk_ctx *c, const struct mfk_dropout *a)
{
	memory(c, "dropout", times(a->count, 1, 2), a->dtype);
}

static void add(struct mfk_ctx *c, enum mfk_dtype dtype, void *y, const void *a, const void *b,
		int64_t count)
{
	(void)y;
	(void)a;
	(void)b;
	memory(c, "add", times(count, 1, 3), dtype);
}

static void scale(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, float by, int64_t count)
{
	(void)x;
	(void)by;
	memory(c, "scale", times(count, 1, 2), dtype);
}

static void cast(struct mfk_ctx *c, enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
		 const void *from, int64_t count)
{
	(void)to;
	(void)from;
	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_MEMORY,
				     .name = "cast",
				     .bytes = (uint64_t)count * (mfk_dtype_size(to_type) +
								 mfk_dtype_size(from_type))});
}

static void fill_normal(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float mean,
			float std, uint64_t seed, uint64_t offset)
{
	(void)x;
	(void)mean;
	(void)std;
	(void)seed;
	(void)offset;
	memory(c, "fill", times(count, 1, 1), dtype);
}

static void fill_uniform(struct mfk_ctx *c, const struct mfk_uniform *a)
{
	memory(c, "fill_uniform", (double)a->count, a->dtype);
}

static void fill(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float value)
{
	(void)x;
	(void)value;
	memory(c, "fill", times(count, 1, 1), dtype);
}

/* ---- the optimizer ---- */

static void sum_squares(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			double *sums)
{
	(void)x;
	(void)sums;
	memory(c, "sum_squares", times(count, 1, 1), dtype);
}

static void count_zeros(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			double *zeros)
{
	(void)x;
	(void)zeros;
	memory(c, "count_zeros", times(count, 1, 1), dtype);
}

static void weighted_sum(struct mfk_ctx *c, const float *x, const float *weight, int64_t count,
			 double *sum)
{
	(void)x;
	(void)sum;
	memory(c, "weighted_sum", times(count, 1, weight ? 2 : 1), MFK_F32);
}

static void adamw(struct mfk_ctx *c, const struct mfk_adamw *a)
{
	const size_t moments = mfk_dtype_size(a->m_type) + mfk_dtype_size(a->v_type);
	const size_t main = a->main ? mfk_dtype_size(a->main_type) : 0;
	/* Fp32 weights without main parameters are read, too. */
	const size_t weight = mfk_dtype_size(a->weight_type) * (a->main ? 1 : 2);

	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_MEMORY,
					       .name = "adamw",
					       .bytes = (uint64_t)a->count *
							(mfk_dtype_size(a->grad_type) +
							 2 * (moments + main) + weight)});
}

static void sgd(struct mfk_ctx *c, const struct mfk_sgd *a)
{
	const size_t moment = a->m ? mfk_dtype_size(a->m_type) : 0;
	const size_t main = a->main ? mfk_dtype_size(a->main_type) : 0;
	const size_t weight = mfk_dtype_size(a->weight_type) * (a->main ? 1 : 2);

	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_MEMORY,
				     .name = "sgd",
				     .bytes = (uint64_t)a->count * (mfk_dtype_size(a->grad_type) +
								    2 * (moment + main) + weight)});
}

static void momentum(struct mfk_ctx *c, const struct mfk_momentum *a)
{
	mfk_record_submit(
		c, (struct mfk_work){.kind = MFK_WORK_MEMORY,
				     .name = "momentum",
				     .bytes = (uint64_t)a->count *
					      (mfk_dtype_size(a->grad_type) + 3 * sizeof(float))});
}

static void copy_rows(struct mfk_ctx *c, const struct mfk_copy_rows *a)
{
	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_MEMORY,
					       .name = "copy_rows",
					       .bytes = (uint64_t)(a->rows * a->cols) *
							(mfk_dtype_size(a->from_type) +
							 mfk_dtype_size(a->to_type))});
}

/* ---- 8 bits ---- */

static void amax(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	memory(c, "amax", times(a->rows, a->cols, 1), a->from);
}

static void quantise(struct mfk_ctx *c, const struct mfk_quantise *a)
{
	const size_t each = mfk_dtype_size(a->from) + (a->q != NULL) + (a->qt != NULL);

	mfk_record_submit(c, (struct mfk_work){.kind = MFK_WORK_MEMORY,
					       .name = "quantise",
					       .bytes = (uint64_t)(a->rows * a->cols) * each});
}

static void update_scales(struct mfk_ctx *c, const struct mfk_update_scales *a)
{
	memory(c, "update_scales", times(a->count, 2 * a->length + 16, 1), MFK_F32);
}

const struct mfk_ops mfk_record_ops = {
#define OP(name) .name = name,
	MFK_OPS(OP)
#undef OP
};
