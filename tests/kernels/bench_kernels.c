/* Times operations on random data. Buffers are larger than a GPU's cache. */
#include "tests/kernels/bench_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/array.h"

#define TOKENS	   8192
#define HIDDEN	   4096
#define FFN	   14336
#define VOCAB	   128256
#define ROWS	   1024 /* of logits */
#define HEADS	   32
#define GROUPS	   8
#define DIM	   128
#define PARAMS	   (64LL << 20)
#define ROUNDS	   10
#define EXPERTS	   64 /* small ones; and large ones of LARGE_ROWS each */
#define LARGE	   2
#define LARGE_ROWS 1024
#define TALL_ROWS  4096 /* of each large one, in tall products */
#define IDLE_ROWS  64	/* of each small one, where weights are all there is */

/* Memory for what an operation reads, writes and adds to; each size is the largest's. */
struct buffers {
	void *io[6];	/* bf16 or fp16, BIG elements */
	float *f32[4];	/* PARAMS elements */
	float *rows[4]; /* statistics, TOKENS * HEADS */
	int32_t *ids, *order, *positions;
	int32_t *expert, *row, *from; /* choices: the router's, and what dispatch makes of them */
	int64_t *offsets;
	double *sums;
	int64_t *first_rows; /* of small, large, tall and idle experts, one after the other */
};

#define BIG ((int64_t)TOKENS * 2 * FFN)

struct bench {
	const struct mfk_backend *backend;
	const struct mfk_ops *ops;
	struct mfk_device *device;
	struct mfk_ctx *ctx;
	struct buffers b;
	double copy;	  /* bytes per second, read and written */
	double product;	  /* operations per second of the fastest product so far */
	double end;	  /* no measurement begins later */
	const char *only; /* those whose names contain it */
	int64_t first_rows[2 * (EXPERTS + 1) + 2 * (LARGE + 1)]; /* the same here */
	struct eight {
		int64_t m, n, k;
		enum mfk_dtype type, out;
		bool fast;
	} eight; /* of the product that is measured */
	int failures;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool synced(struct bench *s, const char *name)
{
	char why[MFK_WHY];

	if (!s->backend->device->sync(s->ctx, why))
		return true;
	printf("bench %-22s FAILED: %s\n", name, why);
	s->failures++;
	return false;
}

typedef void operation(struct bench *s);

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Seconds of one call: the median of three times ROUNDS calls, or what the second took if that is
 * long. 0: it failed, or time is over. */
static double seconds_of(struct bench *s, const char *name, operation *op)
{
	double times[3], second;

	if (now() > s->end || !strstr(name, s->only))
		return 0;
	op(s); /* may build what later calls keep */
	if (!synced(s, name))
		return 0;
	second = now();
	op(s);
	if (!synced(s, name))
		return 0;
	second = now() - second;
	if (second > 0.2)
		return second;
	for (int i = 0; i < 3; i++) {
		double begin = now();

		for (int k = 0; k < ROUNDS; k++)
			op(s);
		if (!synced(s, name))
			return 0;
		times[i] = (now() - begin) / ROUNDS;
	}
	qsort(times, 3, sizeof(double), compare);
	return times[1];
}

static void memory_bound(struct bench *s, const char *name, operation *op, double bytes)
{
	double t = seconds_of(s, name, op);

	if (t <= 0)
		return;
	if (s->copy == 0)
		s->copy = bytes / t;
	printf("bench %-22s %8.1f us %7.0f GB/s  %5.1f %% of a copy\n", name, t * 1e6,
	       bytes / t * 1e-9, 100 * bytes / t / s->copy);
	fflush(stdout);
}

static void compute_bound(struct bench *s, const char *name, operation *op, double operations)
{
	double t = seconds_of(s, name, op);

	if (t <= 0)
		return;
	if (operations / t > s->product)
		s->product = operations / t;
	printf("bench %-22s %8.1f us %7.1f TFLOP/s %5.1f %% of the best product\n", name, t * 1e6,
	       operations / t * 1e-12, 100 * operations / t / s->product);
	fflush(stdout);
}

/* ---- operations ---- */

static void copy(struct bench *s)
{
	s->backend->device->copy(s->ctx, s->b.io[1], s->b.io[0], BIG * 2);
}

static void product(struct bench *s, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
		    enum mfk_dtype out, float beta)
{
	struct mfk_gemm g = {.m = m,
			     .n = n,
			     .k = k,
			     .trans_a = ta,
			     .trans_b = tb,
			     .dtype_a = MFK_BF16,
			     .dtype_b = MFK_BF16,
			     .dtype_c = out,
			     .a = s->b.io[0],
			     .b = s->b.io[1],
			     .c = out == MFK_F32 ? (void *)s->b.f32[0] : s->b.io[2],
			     .lda = ta ? m : k,
			     .ldb = tb ? k : n,
			     .ldc = n,
			     .alpha = 1,
			     .beta = beta};

	s->ops->gemm(s->ctx, &g);
}

static void product_square(struct bench *s)
{
	product(s, 8192, 8192, 8192, false, true, MFK_BF16, 0);
}

static void product_forward(struct bench *s)
{
	product(s, TOKENS, FFN, HIDDEN, false, true, MFK_BF16, 0);
}

static void product_backward(struct bench *s)
{
	product(s, TOKENS, HIDDEN, FFN, false, false, MFK_BF16, 0);
}

static void product_weights(struct bench *s)
{
	product(s, FFN, HIDDEN, TOKENS, true, false, MFK_F32, 1);
}

static void product_weights_new(struct bench *s)
{
	product(s, FFN, HIDDEN, TOKENS, true, false, MFK_F32, 0);
}

static void product_weights_half(struct bench *s)
{
	product(s, FFN, HIDDEN, TOKENS / 2, true, false, MFK_F32, 1);
}

static void product_weights_half_new(struct bench *s)
{
	product(s, FFN, HIDDEN, TOKENS / 2, true, false, MFK_F32, 0);
}

static void product_narrow(struct bench *s)
{
	product(s, TOKENS, 6144, HIDDEN, false, true, MFK_BF16, 0);
}

static void product_biased(struct bench *s)
{
	struct mfk_gemm g = {.m = TOKENS,
			     .n = HIDDEN,
			     .k = HIDDEN,
			     .trans_b = true,
			     .dtype_a = MFK_BF16,
			     .dtype_b = MFK_BF16,
			     .dtype_c = MFK_BF16,
			     .dtype_bias = MFK_BF16,
			     .a = s->b.io[0],
			     .b = s->b.io[1],
			     .c = s->b.io[2],
			     .bias = s->b.io[3],
			     .lda = HIDDEN,
			     .ldb = HIDDEN,
			     .ldc = HIDDEN,
			     .alpha = 1};

	s->ops->gemm(s->ctx, &g);
}

/* Experts of so many columns to so many. */
struct experts {
	int64_t wide, narrow;
	int first, count; /* in first_rows */
};

static const struct experts small = {2048, 1408, 0, EXPERTS};
static const struct experts large = {4096, 2 * FFN, EXPERTS + 1, LARGE};
static const struct experts tall = {4096, 2 * FFN, EXPERTS + 1 + LARGE + 1, LARGE};
static const struct experts idle = {2048, 1408, EXPERTS + 1 + 2 * (LARGE + 1), EXPERTS};

static int64_t expert_rows(int i)
{
	return 500 + i * 37 % 100;
}

static double grouped_rows(void)
{
	double rows = 0;

	for (int i = 0; i < EXPERTS; i++)
		rows += (double)expert_rows(i);
	return rows;
}

static void make_first_rows(struct bench *s)
{
	int64_t *x = s->first_rows, *y = x + large.first, *z = x + tall.first;
	int64_t *w = x + idle.first;

	for (int i = 0; i < EXPERTS; i++) {
		x[i + 1] = x[i] + expert_rows(i);
		w[i + 1] = w[i] + IDLE_ROWS;
	}
	for (int i = 0; i < LARGE; i++) {
		y[i + 1] = y[i] + LARGE_ROWS;
		z[i + 1] = z[i] + TALL_ROWS;
	}
	s->backend->device->copy_in(s->ctx, s->b.first_rows, x, sizeof(s->first_rows));
	synced(s, "first rows");
}

/* Experts, or their gradients; adds: to those of weights. */
static void grouped(struct bench *s, const struct experts *e, bool weights, bool trans_b, bool adds)
{
	const int64_t *first = s->first_rows + e->first;
	const int64_t rows = first[e->count], wide = e->wide, narrow = e->narrow;
	const int64_t out = trans_b ? narrow : wide, in = trans_b ? wide : narrow;
	const struct mfk_gemm_grouped g = {.base = {.m = weights ? narrow : rows,
						    .n = out,
						    .k = weights ? rows : in,
						    .trans_a = weights,
						    .trans_b = trans_b,
						    .dtype_a = MFK_BF16,
						    .dtype_b = MFK_BF16,
						    .dtype_c = weights ? MFK_F32 : MFK_BF16,
						    .a = s->b.io[0],
						    .b = s->b.io[1],
						    .c = weights ? (void *)s->b.f32[0] : s->b.io[2],
						    .lda = in,
						    .ldb = trans_b ? in : out,
						    .ldc = out,
						    .alpha = 1,
						    .beta = adds},
					   .groups = e->count,
					   .offsets = s->b.first_rows + e->first,
					   .host_offsets = first,
					   .stride = wide * narrow};

	s->ops->gemm_grouped(s->ctx, &g);
}

static void grouped_forward(struct bench *s)
{
	grouped(s, &small, false, true, false);
}

static void grouped_inputs(struct bench *s)
{
	grouped(s, &small, false, false, false);
}

static void grouped_weights(struct bench *s)
{
	grouped(s, &small, true, false, true);
}

static void large_forward(struct bench *s)
{
	grouped(s, &large, false, true, false);
}

static void large_inputs(struct bench *s)
{
	grouped(s, &large, false, false, false);
}

static void large_weights(struct bench *s)
{
	grouped(s, &large, true, false, true);
}

static void large_weights_new(struct bench *s)
{
	grouped(s, &large, true, false, false);
}

static void tall_forward(struct bench *s)
{
	grouped(s, &tall, false, true, false);
}

static void tall_inputs(struct bench *s)
{
	grouped(s, &tall, false, false, false);
}

static void tall_weights(struct bench *s)
{
	grouped(s, &tall, true, false, true);
}

static void idle_weights(struct bench *s)
{
	grouped(s, &idle, true, false, true);
}

static void bias_backward(struct bench *s)
{
	s->ops->bias_backward(s->ctx, MFK_BF16, MFK_F32, s->b.f32[0], s->b.io[0], TOKENS, FFN);
}

static void norm(struct bench *s)
{
	struct mfk_norm a = {.dtype = MFK_BF16,
			     .rows = 2 * TOKENS,
			     .cols = HIDDEN,
			     .eps = 1e-5f,
			     .x = s->b.io[0],
			     .residual = s->b.io[1],
			     .weight = s->b.io[2],
			     .sum = s->b.io[3],
			     .y = s->b.io[4],
			     .rstd = s->b.rows[0]};

	s->ops->norm(s->ctx, &a);
}

static void norm_layer(struct bench *s)
{
	struct mfk_norm a = {.dtype = MFK_BF16,
			     .rows = 2 * TOKENS,
			     .cols = HIDDEN,
			     .layernorm = true,
			     .eps = 1e-5f,
			     .x = s->b.io[0],
			     .weight = s->b.io[2],
			     .bias = s->b.io[3],
			     .y = s->b.io[4],
			     .mean = s->b.rows[1],
			     .rstd = s->b.rows[0]};

	s->ops->norm(s->ctx, &a);
}

static void norm_backward(struct bench *s)
{
	struct mfk_norm_backward a = {.dtype = MFK_BF16,
				      .grad = MFK_F32,
				      .rows = 2 * TOKENS,
				      .cols = HIDDEN,
				      .x = s->b.io[0],
				      .weight = s->b.io[2],
				      .dy = s->b.io[1],
				      .dresidual = s->b.io[3],
				      .rstd = s->b.rows[0],
				      .dx = s->b.io[3],
				      .dweight = s->b.f32[0]};

	s->ops->norm_backward(s->ctx, &a);
}

static void norm_narrow_backward(struct bench *s)
{
	struct mfk_norm_backward a = {.dtype = MFK_BF16,
				      .grad = MFK_F32,
				      .rows = 8 * TOKENS,
				      .cols = 1024,
				      .x = s->b.io[0],
				      .weight = s->b.io[2],
				      .dy = s->b.io[1],
				      .dresidual = s->b.io[3],
				      .rstd = s->b.rows[0],
				      .dx = s->b.io[3],
				      .dweight = s->b.f32[0]};

	s->ops->norm_backward(s->ctx, &a);
}

/* GPT-2 1558M's rows. */
static void norm_layer_1600(struct bench *s)
{
	struct mfk_norm a = {.dtype = MFK_BF16,
			     .rows = 4 * TOKENS,
			     .cols = 1600,
			     .layernorm = true,
			     .eps = 1e-5f,
			     .x = s->b.io[0],
			     .residual = s->b.io[1],
			     .weight = s->b.io[2],
			     .bias = s->b.io[3],
			     .sum = s->b.io[4],
			     .y = s->b.io[5],
			     .mean = s->b.rows[1],
			     .rstd = s->b.rows[0]};

	s->ops->norm(s->ctx, &a);
}

static void norm_layer_1600_backward(struct bench *s)
{
	struct mfk_norm_backward a = {.dtype = MFK_BF16,
				      .grad = MFK_F32,
				      .rows = 4 * TOKENS,
				      .cols = 1600,
				      .layernorm = true,
				      .x = s->b.io[0],
				      .weight = s->b.io[2],
				      .dy = s->b.io[1],
				      .dresidual = s->b.io[3],
				      .mean = s->b.rows[1],
				      .rstd = s->b.rows[0],
				      .dx = s->b.io[3],
				      .dweight = s->b.f32[0],
				      .dbias = s->b.f32[1]};

	s->ops->norm_backward(s->ctx, &a);
}

static struct mfk_qkv qkv_of(struct bench *s, bool normed)
{
	struct mfk_qkv a = {.dtype = MFK_BF16,
			    .grad = MFK_F32,
			    .tokens = TOKENS,
			    .groups = GROUPS,
			    .heads_per_group = HEADS / GROUPS,
			    .dim = DIM,
			    .rotary_dim = DIM,
			    .cos = s->b.f32[0],
			    .sin = s->b.f32[1],
			    .positions = s->b.positions,
			    .eps = 1e-6f,
			    .q_rstd = s->b.rows[0],
			    .k_rstd = s->b.rows[1],
			    .qkv = s->b.io[0],
			    .q = s->b.io[1],
			    .k = s->b.io[2],
			    .v = s->b.io[3],
			    .dq = s->b.io[1],
			    .dk = s->b.io[2],
			    .dv = s->b.io[3],
			    .dqkv = s->b.io[4],
			    .dq_norm = s->b.f32[2],
			    .dk_norm = s->b.f32[3]};

	if (normed)
		a.q_norm = a.k_norm = s->b.io[5];
	return a;
}

static void qkv(struct bench *s)
{
	struct mfk_qkv a = qkv_of(s, false);

	s->ops->qkv(s->ctx, &a);
}

static void qkv_backward(struct bench *s)
{
	struct mfk_qkv a = qkv_of(s, false);

	s->ops->qkv_backward(s->ctx, &a);
}

static void qkv_normed(struct bench *s)
{
	struct mfk_qkv a = qkv_of(s, true);

	s->ops->qkv(s->ctx, &a);
}

static void qkv_normed_backward(struct bench *s)
{
	struct mfk_qkv a = qkv_of(s, true);

	s->ops->qkv_backward(s->ctx, &a);
}

#define MLA_HEADS 64
#define NOPE	  128
#define ROPE	  64
#define V_DIM	  128

static struct mfk_mla mla_of(struct bench *s)
{
	return (struct mfk_mla){.dtype = MFK_BF16,
				.tokens = TOKENS,
				.heads = MLA_HEADS,
				.nope = NOPE,
				.rope = ROPE,
				.rotary_dim = ROPE,
				.v_dim = V_DIM,
				.cos = s->b.f32[0],
				.sin = s->b.f32[1],
				.positions = s->b.positions,
				.q_up = s->b.io[0],
				.kv_up = s->b.io[1],
				.k_rope = s->b.io[5],
				.q = s->b.io[2],
				.k = s->b.io[3],
				.v = s->b.io[4],
				.dq = s->b.io[2],
				.dk = s->b.io[3],
				.dv = s->b.io[4],
				.dq_up = s->b.io[0],
				.dkv_up = s->b.io[1],
				.dk_rope = s->b.io[5]};
}

static void mla(struct bench *s)
{
	struct mfk_mla a = mla_of(s);

	s->ops->mla(s->ctx, &a);
}

static void mla_backward(struct bench *s)
{
	struct mfk_mla a = mla_of(s);

	s->ops->mla_backward(s->ctx, &a);
}

/* ---- experts ---- */

#define ROUTED 256 /* experts */
#define TOP_K  8

static struct mfk_route route_of(struct bench *s)
{
	return (struct mfk_route){.dtype = MFK_BF16,
				  .score = MFK_SCORE_SIGMOID,
				  .tokens = TOKENS,
				  .experts = ROUTED,
				  .top_k = TOP_K,
				  .groups = 8,
				  .group_top_k = 4,
				  .scale = 2.5f,
				  .logits = s->b.io[0],
				  .expert = s->b.expert,
				  .prob = s->b.rows[0],
				  .dprob = s->b.rows[0],
				  .row = s->b.row,
				  .dlogits = s->b.io[1]};
}

static void route(struct bench *s)
{
	struct mfk_route a = route_of(s);

	s->ops->route(s->ctx, &a);
}

static void dispatch(struct bench *s)
{
	struct mfk_dispatch a = {.tokens = TOKENS,
				 .experts = ROUTED,
				 .top_k = TOP_K,
				 .expert = s->b.expert,
				 .prob = s->b.rows[0],
				 .offsets = s->b.offsets,
				 .row = s->b.row,
				 .from = s->b.from,
				 .row_prob = s->b.rows[1]};

	s->ops->dispatch(s->ctx, &a);
}

static void route_backward(struct bench *s)
{
	struct mfk_route a = route_of(s);

	s->ops->route_backward(s->ctx, &a);
}

static void gather(struct bench *s)
{
	struct mfk_rows a = {.dtype = MFK_BF16,
			     .rows = TOKENS * TOP_K,
			     .cols = 2048,
			     .each = TOP_K,
			     .map = s->b.from,
			     .x = s->b.io[0],
			     .y = s->b.io[1]};

	s->ops->gather(s->ctx, &a);
}

static void combine(struct bench *s)
{
	struct mfk_rows a = {.dtype = MFK_BF16,
			     .rows = TOKENS,
			     .cols = 2048,
			     .each = TOP_K,
			     .map = s->b.row,
			     .x = s->b.io[1],
			     .y = s->b.io[2]};

	s->ops->combine(s->ctx, &a);
}

static struct mfk_act act_of(struct bench *s, bool gated)
{
	return (struct mfk_act){.dtype = MFK_BF16,
				.kind = gated ? MFK_SILU : MFK_GELU_TANH,
				.gated = gated,
				.rows = TOKENS,
				.cols = FFN,
				.x = s->b.io[0],
				.y = s->b.io[1],
				.dy = s->b.io[2],
				.dx = s->b.io[3]};
}

static void swiglu(struct bench *s)
{
	struct mfk_act a = act_of(s, true);

	s->ops->act(s->ctx, &a);
}

static void swiglu_backward(struct bench *s)
{
	struct mfk_act a = act_of(s, true);

	s->ops->act_backward(s->ctx, &a);
}

static void gelu(struct bench *s)
{
	struct mfk_act a = act_of(s, false);

	s->ops->act(s->ctx, &a);
}

static void gelu_backward(struct bench *s)
{
	struct mfk_act a = act_of(s, false);

	s->ops->act_backward(s->ctx, &a);
}

static struct mfk_embedding embedding_of(struct bench *s)
{
	return (struct mfk_embedding){.dtype = MFK_BF16,
				      .grad = MFK_F32,
				      .tokens = TOKENS,
				      .cols = HIDDEN,
				      .vocab = TOKENS,
				      .ids = s->b.ids,
				      .wte = s->b.io[0],
				      .y = s->b.io[1],
				      .order = s->b.order,
				      .dy = s->b.io[2],
				      .dwte = s->b.f32[0]};
}

static void embedding(struct bench *s)
{
	struct mfk_embedding a = embedding_of(s);

	s->ops->embedding(s->ctx, &a);
}

static void embedding_backward(struct bench *s)
{
	struct mfk_embedding a = embedding_of(s);

	s->ops->embedding_backward(s->ctx, &a);
}

static void cross_entropy(struct bench *s)
{
	struct mfk_cross_entropy a = {.dtype = MFK_BF16,
				      .rows = ROWS,
				      .vocab = VOCAB,
				      .ld = VOCAB,
				      .logits = s->b.io[0],
				      .labels = s->b.ids,
				      .scale = s->b.f32[0],
				      .loss = s->b.rows[0],
				      .dlogits = s->b.io[1]};

	s->ops->cross_entropy(s->ctx, &a);
}

static void dropout(struct bench *s)
{
	struct mfk_dropout a = {.dtype = MFK_BF16,
				.count = PARAMS,
				.p = 0.1f,
				.seed = 1,
				.x = s->b.io[0],
				.residual = s->b.io[1],
				.y = s->b.io[2]};

	s->ops->dropout(s->ctx, &a);
}

static void add(struct bench *s)
{
	s->ops->add(s->ctx, MFK_BF16, s->b.io[2], s->b.io[0], s->b.io[1], BIG);
}

static void cast(struct bench *s)
{
	s->ops->cast(s->ctx, MFK_BF16, s->b.io[0], MFK_F32, s->b.f32[0], PARAMS);
}

static void fill(struct bench *s)
{
	s->ops->fill(s->ctx, MFK_BF16, s->b.io[5], BIG, 0.5f);
}

static void fill_normal(struct bench *s)
{
	s->ops->fill_normal(s->ctx, MFK_BF16, s->b.io[5], PARAMS, 0, 1, 1, 0);
}

static void sum_squares(struct bench *s)
{
	s->ops->sum_squares(s->ctx, MFK_F32, s->b.f32[0], PARAMS, s->b.sums);
}

static void adamw(struct bench *s)
{
	struct mfk_adamw a = {.weight_type = MFK_BF16,
			      .grad_type = MFK_F32,
			      .main_type = MFK_F32,
			      .m_type = MFK_F32,
			      .v_type = MFK_F32,
			      .count = PARAMS,
			      .weight = s->b.io[5],
			      .main = s->b.f32[1],
			      .m = s->b.f32[2],
			      .v = s->b.f32[3],
			      .grad = s->b.f32[0],
			      .lr = 1e-5f,
			      .beta1 = 0.9f,
			      .beta2 = 0.95f,
			      .eps = 1e-8f,
			      .wd = 0.1f,
			      .correction1 = 1,
			      .correction2 = 1,
			      .grad_scale = 1};

	s->ops->adamw(s->ctx, &a);
}

static struct mfk_attention attention_of(struct bench *s, int64_t batch, int64_t heads,
					 int64_t kv_heads, int64_t dim)
{
	return (struct mfk_attention){.dtype = MFK_BF16,
				      .batch = batch,
				      .seq = 4096,
				      .heads = heads,
				      .kv_heads = kv_heads,
				      .qk_dim = dim,
				      .v_dim = dim,
				      .scale = 0.088f,
				      .causal = true,
				      .q = s->b.io[0],
				      .k = s->b.io[1],
				      .v = s->b.io[2],
				      .out = s->b.io[3],
				      .lse = s->b.f32[0],
				      .dout = s->b.io[4],
				      .dq = s->b.io[5],
				      .dk = (char *)s->b.io[5] + ((size_t)256 << 20),
				      .dv = (char *)s->b.io[5] + ((size_t)384 << 20)};
}

static void attend(struct bench *s, struct mfk_attention a, bool backward)
{
	size_t bytes = s->ops->attention_scratch(s->device, &a, backward);

	/* What the largest shape needs is far less than there is. */
	a.scratch = s->b.f32[1];
	if (bytes > 3 * PARAMS * sizeof(float)) {
		printf("bench attention: %zu bytes of scratch\n", bytes);
		s->failures++;
	} else if (backward) {
		s->ops->attention_backward(s->ctx, &a);
	} else {
		s->ops->attention(s->ctx, &a);
	}
}

static void attention(struct bench *s)
{
	attend(s, attention_of(s, 2, HEADS, GROUPS, DIM), false);
}

static void attention_backward(struct bench *s)
{
	attend(s, attention_of(s, 2, HEADS, GROUPS, DIM), true);
}

static void attention_narrow(struct bench *s)
{
	attend(s, attention_of(s, 2, HEADS, GROUPS, 64), false);
}

static void attention_narrow_backward(struct bench *s)
{
	attend(s, attention_of(s, 2, HEADS, GROUPS, 64), true);
}

/* ---- memory ---- */

static void *allocate(struct bench *s, size_t bytes)
{
	void *p = s->backend->device->alloc(s->device, bytes);

	if (!p) {
		printf("bench: no device memory for %zu bytes\n", bytes);
		s->failures++;
	}
	return p;
}

/* Each id once, in an order that jumps; positions of two sequences. */
static void make_ids(struct bench *s)
{
	const struct mfk_device_ops *d = s->backend->device;
	int32_t *x = calloc(3 * TOKENS, sizeof(*x));

	if (!x)
		abort();
	for (int32_t i = 0; i < TOKENS; i++) {
		int32_t id = i * 1237 % TOKENS;

		x[i] = id;
		x[TOKENS + id] = i;
		x[2 * TOKENS + i] = i % 4096;
	}
	d->copy_in(s->ctx, s->b.ids, x, TOKENS * sizeof(*x));
	d->copy_in(s->ctx, s->b.order, x + TOKENS, TOKENS * sizeof(*x));
	d->copy_in(s->ctx, s->b.positions, x + 2 * TOKENS, TOKENS * sizeof(*x));
	synced(s, "ids");
	free(x);
}

static bool prepare(struct bench *s)
{
	struct buffers *b = &s->b;

	for (int i = 0; i < 6; i++)
		b->io[i] = allocate(s, BIG * 2 + ((size_t)256 << 20));
	/* One after the other: attention's scratch may be all but the first. */
	b->f32[0] = allocate(s, 4 * PARAMS * sizeof(float));
	for (int i = 1; i < 4; i++)
		b->f32[i] = b->f32[0] ? b->f32[0] + i * PARAMS : NULL;
	for (int i = 0; i < 4; i++)
		b->rows[i] = allocate(s, (size_t)TOKENS * 2 * HEADS * sizeof(float));
	b->ids = allocate(s, TOKENS * sizeof(int32_t));
	b->order = allocate(s, TOKENS * sizeof(int32_t));
	b->positions = allocate(s, TOKENS * sizeof(int32_t));
	b->expert = allocate(s, (size_t)TOKENS * TOP_K * sizeof(int32_t));
	b->row = allocate(s, (size_t)TOKENS * TOP_K * sizeof(int32_t));
	b->from = allocate(s, (size_t)TOKENS * TOP_K * sizeof(int32_t));
	b->offsets = allocate(s, (ROUTED + 1) * sizeof(int64_t));
	b->sums = allocate(s, 2 * sizeof(double));
	b->first_rows = allocate(s, sizeof(s->first_rows));
	if (s->failures)
		return false;
	for (int i = 0; i < 6; i++)
		s->ops->fill_normal(s->ctx, MFK_BF16, b->io[i], BIG, 0, 1, (uint64_t)i, 0);
	s->ops->fill_normal(s->ctx, MFK_F32, b->f32[0], 4 * PARAMS, 1, 0.1f, 7, 0);
	for (int i = 0; i < 4; i++)
		s->ops->fill(s->ctx, MFK_F32, b->rows[i], (int64_t)TOKENS * 2 * HEADS, 1);
	s->backend->device->zero(s->ctx, b->sums, 2 * sizeof(double));
	make_ids(s);
	make_first_rows(s);
	return !s->failures;
}

static void release(struct bench *s)
{
	const struct mfk_device_ops *d = s->backend->device;

	for (int i = 0; i < 6; i++)
		d->free(s->device, s->b.io[i]);
	d->free(s->device, s->b.f32[0]);
	for (int i = 0; i < 4; i++)
		d->free(s->device, s->b.rows[i]);
	d->free(s->device, s->b.ids);
	d->free(s->device, s->b.order);
	d->free(s->device, s->b.positions);
	d->free(s->device, s->b.expert);
	d->free(s->device, s->b.row);
	d->free(s->device, s->b.from);
	d->free(s->device, s->b.offsets);
	d->free(s->device, s->b.sums);
	d->free(s->device, s->b.first_rows);
}

/* ---- the table ---- */

static void measure_memory(struct bench *s)
{
	const double th = (double)TOKENS * HIDDEN, tf = (double)TOKENS * FFN;
	const double heads = (double)TOKENS * (HEADS + 2 * GROUPS) * DIM;
	const double normed = (double)TOKENS * (HEADS + GROUPS) * DIM;
	const double choices = (double)TOKENS * TOP_K;
	/* q_up, q and k; kv_up and v */
	const double split =
		2.0 * TOKENS * MLA_HEADS * (3 * (NOPE + ROPE) + (NOPE + V_DIM) + V_DIM);

	memory_bound(s, "copy", copy, 4.0 * BIG);
	memory_bound(s, "add", add, 6.0 * BIG);
	memory_bound(s, "fill", fill, 2.0 * BIG);
	memory_bound(s, "cast", cast, 6.0 * PARAMS);
	memory_bound(s, "fill_normal", fill_normal, 2.0 * PARAMS);
	memory_bound(s, "norm residual", norm, 16 * th);
	memory_bound(s, "norm LayerNorm", norm_layer, 8 * th);
	memory_bound(s, "norm LayerNorm residual 1600", norm_layer_1600, 8.0 * 4 * TOKENS * 1600);
	memory_bound(s, "norm_backward LayerNorm 1600", norm_layer_1600_backward,
		     8.0 * 4 * TOKENS * 1600);
	memory_bound(s, "norm_backward", norm_backward, 16 * th);
	memory_bound(s, "norm_backward 1024", norm_narrow_backward, 16 * th);
	memory_bound(s, "bias_backward", bias_backward, 2 * tf);
	memory_bound(s, "qkv", qkv, 4 * heads);
	memory_bound(s, "qkv_backward", qkv_backward, 4 * heads);
	memory_bound(s, "qkv normed", qkv_normed, 4 * heads);
	memory_bound(s, "qkv_backward normed", qkv_normed_backward, 4 * heads + 2 * normed);
	if (s->ops->mla) {
		memory_bound(s, "mla", mla, split);
		memory_bound(s, "mla_backward", mla_backward, split);
	}
	if (s->ops->route && s->ops->dispatch) {
		/* dispatch needs what route has chosen, and the others what dispatch has made */
		memory_bound(s, "route", route, 2.0 * TOKENS * ROUTED + 8 * choices);
		memory_bound(s, "dispatch", dispatch, 20 * choices);
		memory_bound(s, "route_backward", route_backward, 4.0 * TOKENS * ROUTED);
		memory_bound(s, "gather", gather, 2 * (choices + TOKENS) * 2048);
		memory_bound(s, "combine", combine, 2 * (choices + TOKENS) * 2048);
	}
	memory_bound(s, "act SwiGLU", swiglu, 6 * tf);
	memory_bound(s, "act_backward SwiGLU", swiglu_backward, 10 * tf);
	memory_bound(s, "act GELU", gelu, 4 * tf);
	memory_bound(s, "act_backward GELU", gelu_backward, 6 * tf);
	memory_bound(s, "embedding", embedding, 4 * th);
	memory_bound(s, "embedding_backward", embedding_backward, 10 * th);
	memory_bound(s, "cross_entropy", cross_entropy, 4.0 * ROWS * VOCAB);
	memory_bound(s, "dropout", dropout, 6.0 * PARAMS);
	memory_bound(s, "sum_squares", sum_squares, 4.0 * PARAMS);
	memory_bound(s, "adamw", adamw, 30.0 * PARAMS);
}

static void measure_products(struct bench *s)
{
	const double ffn = 2.0 * TOKENS * HIDDEN * FFN, rows = grouped_rows();
	const double of_large = 2.0 * LARGE * LARGE_ROWS * 4096 * 2 * FFN;
	const double of_tall = of_large / LARGE_ROWS * TALL_ROWS;
	/* Causal: half of the scores. Backward has five products for forward's two. */
	const double attended = 2.0 * 2 * 2 * HEADS * 4096.0 * 4096 * DIM / 2;

	compute_bound(s, "gemm 8192^3", product_square, 2.0 * 8192 * 8192 * 8192);
	compute_bound(s, "gemm forward", product_forward, ffn);
	compute_bound(s, "gemm backward", product_backward, ffn);
	compute_bound(s, "gemm weights fp32 +=", product_weights, ffn);
	compute_bound(s, "gemm weights fp32", product_weights_new, ffn);
	compute_bound(s, "gemm weights 4096 +=", product_weights_half, ffn / 2);
	compute_bound(s, "gemm weights 4096", product_weights_half_new, ffn / 2);
	compute_bound(s, "gemm qkv", product_narrow, 2.0 * TOKENS * 6144 * HIDDEN);
	compute_bound(s, "gemm bias", product_biased, 2.0 * TOKENS * HIDDEN * HIDDEN);
	compute_bound(s, "grouped", grouped_forward, 2 * rows * 2048 * 1408);
	compute_bound(s, "grouped inputs", grouped_inputs, 2 * rows * 2048 * 1408);
	compute_bound(s, "grouped weights+", grouped_weights, 2 * rows * 2048 * 1408);
	compute_bound(s, "grouped large", large_forward, of_large);
	compute_bound(s, "grouped large inputs", large_inputs, of_large);
	compute_bound(s, "grouped large weights+", large_weights, of_large);
	compute_bound(s, "grouped large weights", large_weights_new, of_large);
	memory_bound(s, "grouped idle weights+", idle_weights, 8.0 * EXPERTS * 2048 * 1408);
	compute_bound(s, "grouped tall", tall_forward, of_tall);
	compute_bound(s, "grouped tall inputs", tall_inputs, of_tall);
	compute_bound(s, "grouped tall weights+", tall_weights, of_tall);
	if (!s->ops->attention)
		return;
	compute_bound(s, "attention 128", attention, attended);
	compute_bound(s, "attention_backward 128", attention_backward, 2.5 * attended);
	compute_bound(s, "attention 64", attention_narrow, attended / 2);
	compute_bound(s, "attention_backward 64", attention_narrow_backward, 2.5 * attended / 2);
}

/* ---- 8 bits ---- */

/* Of numbers in io[i]: elements lie in io[i + 3], transposed ones after them. */
static struct mfk_quantise quantised(struct bench *s, int i)
{
	return (struct mfk_quantise){
		.from = MFK_BF16,
		.to = MFK_E4M3,
		.rows = TOKENS,
		.cols = 2 * FFN,
		.ld = 2 * FFN,
		.x = s->b.io[i],
		.q = s->b.io[i + 3],
		.qt = (char *)s->b.io[i + 3] + BIG,
		.ld_qt = TOKENS,
		.scales = (struct mfk_scale *)s->b.rows[i],
	};
}

static void amax(struct bench *s)
{
	const struct mfk_quantise a = quantised(s, 0);

	s->ops->amax(s->ctx, &a);
}

static void quantise(struct bench *s)
{
	const struct mfk_quantise a = quantised(s, 0);

	s->ops->quantise(s->ctx, &a);
}

static void quantise_rows(struct bench *s)
{
	struct mfk_quantise a = quantised(s, 0);

	a.qt = NULL;
	s->ops->quantise(s->ctx, &a);
}

static void product_eight(struct bench *s)
{
	const struct eight *e = &s->eight;
	const bool eight = e->type != MFK_BF16;
	const struct mfk_gemm g = {
		.m = e->m,
		.n = e->n,
		.k = e->k,
		.trans_b = true,
		.dtype_a = e->type,
		.dtype_b = eight ? MFK_E4M3 : e->type,
		.dtype_c = e->out,
		.a = eight ? s->b.io[3] : s->b.io[0],
		.b = eight ? s->b.io[4] : s->b.io[1],
		.c = e->out == MFK_F32 ? (void *)s->b.f32[0] : s->b.io[2],
		.lda = e->k,
		.ldb = e->k,
		.ldc = e->n,
		.alpha = 1,
		.beta = e->out == MFK_F32,
		.scaling = eight ? MFK_SCALING_TENSOR : MFK_SCALING_NONE,
		.scale_a = (struct mfk_scale *)s->b.rows[0],
		.scale_b = (struct mfk_scale *)s->b.rows[1],
		.fast_accumulate = e->fast,
	};

	s->ops->gemm(s->ctx, &g);
}

/* A linear of so many columns to so many, in the three products of a step. */
static void measure_linear(struct bench *s, const char *name, int64_t out, int64_t in)
{
	const struct {
		const char *what;
		struct eight e;
	} all[] = {
		{"bf16", {TOKENS, out, in, MFK_BF16, MFK_BF16, false}},
		{"fast", {TOKENS, out, in, MFK_E4M3, MFK_BF16, true}},
		{"split", {TOKENS, out, in, MFK_E4M3, MFK_BF16, false}},
		{"inputs", {TOKENS, in, out, MFK_E5M2, MFK_BF16, false}},
		{"weights+", {out, in, TOKENS, MFK_E5M2, MFK_F32, false}},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(all); i++) {
		char text[64];

		snprintf(text, sizeof(text), "eight %s %s", name, all[i].what);
		s->eight = all[i].e;
		compute_bound(s, text, product_eight, 2.0 * TOKENS * (double)out * (double)in);
	}
}

/* Last: other numbers than before lie in io[3] and io[4] then. */
static void measure_eight(struct bench *s)
{
	static const struct {
		const char *name;
		int64_t out, in;
	} linears[] = {
		{"8B qkv", 6144, 4096},	   {"8B proj", 4096, 4096},  {"8B fc1", 2 * FFN, 4096},
		{"8B fc2", 4096, FFN},	   {"1B fc1", 16384, 2048},  {"1B fc2", 2048, 8192},
		{"1.5B fc1", 17920, 1536}, {"1.5B fc2", 1536, 8960}, {"0.5B fc1", 9728, 896},
		{"0.5B fc2", 896, 4864},
	};

	if (!s->ops->quantise)
		return;
	for (int i = 0; i < 2; i++) {
		const struct mfk_quantise a = quantised(s, i);

		s->ops->amax(s->ctx, &a);
		s->ops->quantise(s->ctx, &a);
	}
	memory_bound(s, "amax", amax, 2.0 * BIG);
	memory_bound(s, "quantise", quantise, 4.0 * BIG);
	memory_bound(s, "quantise rows", quantise_rows, 3.0 * BIG);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(linears); i++)
		measure_linear(s, linears[i].name, linears[i].out, linears[i].in);
}

int bench_kernels(const struct mfk_backend *b, double seconds, const char *only)
{
	struct bench s = {.backend = b, .ops = b->ops, .end = now() + seconds, .only = only};
	char why[MFK_WHY];

	if (b->device->open(0, 0, &s.device, why)) {
		printf("bench: %s\n", why);
		return 1;
	}
	if (b->device->ctx_new(s.device, false, &s.ctx, why)) {
		printf("bench: %s\n", why);
		b->device->close(s.device);
		return 1;
	}
	if (prepare(&s)) {
		measure_memory(&s);
		measure_products(&s);
		measure_eight(&s);
	}
	release(&s);
	b->device->ctx_free(s.ctx);
	b->device->close(s.device);
	return s.failures;
}
