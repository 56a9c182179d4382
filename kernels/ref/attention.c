/*
 * Attention, a block of queries of one head at a time: their scores with all keys that one of them
 * sees, softmax, and the values' sum. A thread holds BLOCK rows of scores; there is no [seq, keys].
 *
 * Forward, blocks are independent. Backward, the gradients of keys and values are sums over the
 * queries of a group's heads: a group is one thread's, and walks its blocks in order.
 */
#include "kernels/ref/math_i.h"

#define BLOCK 128 /* queries */

/* A matrix of a head: rows are positions of a sequence. */
struct matrix {
	const float *p;
	int64_t ld;
};

/* Queries [q0, q0 + rows) of a head and the keys that they see: [k0, k0 + keys). Rows of scores are
 * ld apart. */
struct block {
	const struct mfk_attention *a;
	int64_t batch, head, q0, rows, k0, keys, ld;
};

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t blocks_of(const struct mfk_attention *a)
{
	return (a->seq + BLOCK - 1) / BLOCK;
}

/* With sizes that were left out. */
static struct mfk_attention whole_of(const struct mfk_attention *a)
{
	struct mfk_attention all = *a;

	all.keys = a->keys ? a->keys : a->seq;
	all.whole = a->whole ? a->whole : a->seq;
	return all;
}

static int64_t query_position(const struct mfk_attention *a, int64_t i)
{
	return a->query_at ? a->query_at[i] : i;
}

static int64_t key_position(const struct mfk_attention *a, int64_t j)
{
	return a->key_at ? a->key_at[j] : j;
}

/* How many keys lie before a position. */
static int64_t keys_before(const struct mfk_attention *a, int64_t position)
{
	int64_t low = 0, high = a->keys;

	if (!a->key_at)
		return smaller(position, a->keys);
	while (low < high) {
		int64_t middle = (low + high) / 2;

		if (a->key_at[middle] < position)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The first key that query i of a sequence sees, and the end of those. */
static int64_t first_key(const struct mfk_attention *a, int64_t batch, int64_t i)
{
	return a->causal && a->first_key ? keys_before(a, a->first_key[batch * a->seq + i]) : 0;
}

static int64_t end_key(const struct mfk_attention *a, int64_t i)
{
	return a->causal ? keys_before(a, query_position(a, i) + 1) : a->keys;
}

static struct block block_at(const struct mfk_attention *a, int64_t batch, int64_t head,
			     int64_t number)
{
	struct block b = {a, batch, head, number * BLOCK, 0, a->keys, 0, 0};
	int64_t end = 0;

	b.rows = smaller(BLOCK, a->seq - b.q0);
	for (int64_t i = b.q0; i < b.q0 + b.rows; i++) {
		b.k0 = smaller(b.k0, first_key(a, batch, i));
		end = -smaller(-end, -end_key(a, i));
	}
	b.keys = end > b.k0 ? end - b.k0 : 0;
	b.ld = b.keys > 0 ? b.keys : 1;
	return b;
}

/* Rows [begin, begin + rows) of a head of base [batch, seq, heads, dim], as fp32. */
static struct matrix head_rows(const struct mfk_attention *a, const void *base, int64_t batch,
			       int64_t seq, int64_t heads, int64_t head, int64_t dim, int64_t begin,
			       int64_t rows, float *buf)
{
	int64_t at = ((batch * seq + begin) * heads + head) * dim, ld = heads * dim;

	if (mfk_is_exact(a->dtype))
		return (struct matrix){mfk_at(a->dtype, base, at), ld};
	for (int64_t i = 0; i < rows; i++)
		mfk_to_f32(a->dtype, mfk_at(a->dtype, base, at + i * ld), dim, buf + i * dim);
	return (struct matrix){buf, dim};
}

static void store_rows(const struct mfk_attention *a, void *base, int64_t batch, int64_t seq,
		       int64_t heads, int64_t head, int64_t dim, int64_t begin, int64_t rows,
		       const float *from)
{
	int64_t at = ((batch * seq + begin) * heads + head) * dim;

	for (int64_t i = 0; i < rows; i++)
		mfk_from_f32(a->dtype, from + i * dim, dim,
			     mfk_at(a->dtype, base, at + i * heads * dim));
}

static int64_t lse_at(const struct block *b, int64_t row)
{
	return (b->batch * b->a->heads + b->head) * b->a->seq + b->q0 + row;
}

/* What dropout does to each key of a row of the block. */
static void keep_row(const struct block *b, int64_t row, float *keep)
{
	const struct mfk_attention *a = b->a;
	uint64_t head = (uint64_t)(b->batch * a->heads + b->head), whole = (uint64_t)a->whole;
	uint64_t query = head * whole + (uint64_t)query_position(a, b->q0 + row);

	for (int64_t j = 0, end; j < b->keys; j = end) {
		const int64_t position = key_position(a, b->k0 + j);

		/* Keys whose positions follow one another have numbers that do. */
		end = a->key_at ? j + 1 : b->keys;
		while (end < b->keys && key_position(a, b->k0 + end) == position + end - j)
			end++;
		mfk_keep(a->seed, a->offset + query * whole + (uint64_t)position, end - j,
			 a->dropout, keep + j);
	}
}

/* ---- forward ---- */

MFK_SIMD static float maximum(const float *x, int64_t n)
{
	float most = -INFINITY;

#pragma omp simd reduction(max : most)
	for (int64_t i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	return most;
}

/* x becomes e^(x - most); returns their sum. */
MFK_SIMD static float exponentials(float *x, float most, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++) {
		x[i] = mfk_exp(x[i] - most);
		sum += x[i];
	}
	return sum;
}

MFK_SIMD static void multiply(float *x, const float *by, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] *= by[i];
}

MFK_SIMD static void scale(float *x, float by, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] *= by;
}

/* Scores of a row become exponentials, 0 where the query sees nothing; returns 1 / their sum. */
static float softmax_row(const struct block *b, int64_t row, float *x, float *keep)
{
	const struct mfk_attention *a = b->a;
	int64_t begin = first_key(a, b->batch, b->q0 + row) - b->k0;
	int64_t end = end_key(a, b->q0 + row) - b->k0;
	float most, sum;

	if (begin >= end) {
		memset(x, 0, (size_t)b->keys * sizeof(float));
		a->lse[lse_at(b, row)] = -INFINITY;
		return 0;
	}
	memset(x, 0, (size_t)begin * sizeof(float));
	memset(x + end, 0, (size_t)(b->keys - end) * sizeof(float));
	most = maximum(x + begin, end - begin);
	sum = exponentials(x + begin, most, end - begin);
	a->lse[lse_at(b, row)] = most + logf(sum);
	if (a->dropout > 0) {
		keep_row(b, row, keep);
		multiply(x + begin, keep + begin, end - begin);
	}
	return 1 / sum;
}

static void forward_block(const struct block *b, float *scratch)
{
	const struct mfk_attention *a = b->a;
	int64_t kv_head = b->head / (a->heads / a->kv_heads);
	float *scores = scratch, *keep = scores + BLOCK * a->keys, *out = keep + a->keys;
	float *q_buf = out + BLOCK * a->v_dim, *k_buf = q_buf + BLOCK * a->qk_dim;
	float *v_buf = k_buf + a->keys * a->qk_dim;
	struct matrix q = head_rows(a, a->q, b->batch, a->seq, a->heads, b->head, a->qk_dim, b->q0,
				    b->rows, q_buf);
	struct matrix k = head_rows(a, a->k, b->batch, a->keys, a->kv_heads, kv_head, a->qk_dim,
				    b->k0, b->keys, k_buf);
	struct matrix v = head_rows(a, a->v, b->batch, a->keys, a->kv_heads, kv_head, a->v_dim,
				    b->k0, b->keys, v_buf);
	float by[BLOCK];

	mfk_sgemm(false, true, b->rows, b->keys, a->qk_dim, a->scale, q.p, q.ld, k.p, k.ld, 0,
		  scores, b->ld);
	for (int64_t i = 0; i < b->rows; i++)
		by[i] = softmax_row(b, i, scores + i * b->ld, keep);
	mfk_sgemm(false, false, b->rows, a->v_dim, b->keys, 1, scores, b->ld, v.p, v.ld, 0, out,
		  a->v_dim);
	for (int64_t i = 0; i < b->rows; i++)
		scale(out + i * a->v_dim, by[i], a->v_dim);
	store_rows(a, a->out, b->batch, a->seq, a->heads, b->head, a->v_dim, b->q0, b->rows, out);
}

static void forward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_attention *a = arg;
	int64_t blocks = blocks_of(a);

	for (int64_t i = begin; i < end; i++) {
		struct block b =
			block_at(a, i / blocks / a->heads, i / blocks % a->heads, i % blocks);

		forward_block(&b, scratch);
	}
}

void mfk_ref_attention(struct mfk_ctx *c, const struct mfk_attention *a)
{
	const struct mfk_attention all = whole_of(a);
	int64_t dims = a->qk_dim + a->v_dim;

	mfk_parallel(c, a->batch * a->heads * blocks_of(a), 1,
		     (size_t)((BLOCK + 1) * all.keys + BLOCK * dims + all.keys * dims),
		     forward_part, &all);
}

/* ---- backward ---- */

/* Of a group: keys, values and the sums of their gradients, of all positions. */
struct group {
	struct matrix k, v;
	float *dk, *dv; /* [keys, dim] */
};

MFK_SIMD static float dot(const float *x, const float *y, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += x[i] * y[i];
	return sum;
}

/* p = e^(score - lse); ds = p (dp - D) */
MFK_SIMD static void gradients(float *p, float *dp, float lse, float d, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		p[i] = mfk_exp(p[i] - lse);
		dp[i] = p[i] * (dp[i] - d);
	}
}

/* The same with dropout: p, which sums the values' gradients, is what was kept. */
MFK_SIMD static void gradients_kept(float *p, float *dp, const float *keep, float lse, float d,
				    int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float value = mfk_exp(p[i] - lse);

		p[i] = value * keep[i];
		dp[i] = value * (dp[i] * keep[i] - d);
	}
}

/* Scores p and gradients of what the values' sums are made of become probabilities and gradients of
 * scores. d: the sum of dout * out. */
static void gradients_row(const struct block *b, int64_t row, float d, float *p, float *dp,
			  float *keep)
{
	const struct mfk_attention *a = b->a;
	int64_t begin = first_key(a, b->batch, b->q0 + row) - b->k0;
	int64_t end = end_key(a, b->q0 + row) - b->k0;
	float lse = a->lse[lse_at(b, row)];

	if (begin >= end)
		begin = end = 0;
	for (int i = 0; i < 2; i++) {
		float *x = i ? dp : p;

		memset(x, 0, (size_t)begin * sizeof(float));
		memset(x + end, 0, (size_t)(b->keys - end) * sizeof(float));
	}
	if (a->dropout > 0) {
		keep_row(b, row, keep);
		gradients_kept(p + begin, dp + begin, keep + begin, lse, d, end - begin);
	} else {
		gradients(p + begin, dp + begin, lse, d, end - begin);
	}
}

static void backward_block(const struct block *b, const struct group *g, float *scratch)
{
	const struct mfk_attention *a = b->a;
	int64_t n = a->qk_dim, m = a->v_dim, keys = b->keys;
	float *p = scratch, *dp = p + BLOCK * a->keys, *keep = dp + BLOCK * a->keys;
	float *dq = keep + a->keys, *q_buf = dq + BLOCK * n, *dout_buf = q_buf + BLOCK * n;
	float *out_buf = dout_buf + BLOCK * m;
	struct matrix q =
		head_rows(a, a->q, b->batch, a->seq, a->heads, b->head, n, b->q0, b->rows, q_buf);
	struct matrix out = head_rows(a, a->out, b->batch, a->seq, a->heads, b->head, m, b->q0,
				      b->rows, out_buf);
	struct matrix dout = head_rows(a, a->dout, b->batch, a->seq, a->heads, b->head, m, b->q0,
				       b->rows, dout_buf);
	const float *k = g->k.p + b->k0 * g->k.ld, *v = g->v.p + b->k0 * g->v.ld;

	mfk_sgemm(false, true, b->rows, keys, n, a->scale, q.p, q.ld, k, g->k.ld, 0, p, b->ld);
	mfk_sgemm(false, true, b->rows, keys, m, 1, dout.p, dout.ld, v, g->v.ld, 0, dp, b->ld);
	for (int64_t i = 0; i < b->rows; i++)
		gradients_row(b, i, dot(dout.p + i * dout.ld, out.p + i * out.ld, m), p + i * b->ld,
			      dp + i * b->ld, keep);
	mfk_sgemm(true, false, keys, m, b->rows, 1, p, b->ld, dout.p, dout.ld, 1, g->dv + b->k0 * m,
		  m);
	mfk_sgemm(true, false, keys, n, b->rows, a->scale, dp, b->ld, q.p, q.ld, 1,
		  g->dk + b->k0 * n, n);
	mfk_sgemm(false, false, b->rows, n, keys, a->scale, dp, b->ld, k, g->k.ld, 0, dq, n);
	store_rows(a, a->dq, b->batch, a->seq, a->heads, b->head, n, b->q0, b->rows, dq);
}

static void backward_group(const struct mfk_attention *a, int64_t batch, int64_t kv_head,
			   float *scratch)
{
	int64_t heads = a->heads / a->kv_heads, n = a->qk_dim, m = a->v_dim;
	float *dk = scratch, *dv = dk + a->keys * n, *k_buf = dv + a->keys * m;
	float *v_buf = k_buf + a->keys * n, *rest = v_buf + a->keys * m;
	struct group g = {
		head_rows(a, a->k, batch, a->keys, a->kv_heads, kv_head, n, 0, a->keys, k_buf),
		head_rows(a, a->v, batch, a->keys, a->kv_heads, kv_head, m, 0, a->keys, v_buf), dk,
		dv};

	memset(dk, 0, (size_t)(a->keys * (n + m)) * sizeof(float));
	for (int64_t head = kv_head * heads; head < (kv_head + 1) * heads; head++)
		for (int64_t i = 0; i < blocks_of(a); i++) {
			struct block b = block_at(a, batch, head, i);

			backward_block(&b, &g, rest);
		}
	store_rows(a, a->dk, batch, a->keys, a->kv_heads, kv_head, n, 0, a->keys, dk);
	store_rows(a, a->dv, batch, a->keys, a->kv_heads, kv_head, m, 0, a->keys, dv);
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_attention *a = arg;

	for (int64_t i = begin; i < end; i++)
		backward_group(a, i / a->kv_heads, i % a->kv_heads, scratch);
}

void mfk_ref_attention_backward(struct mfk_ctx *c, const struct mfk_attention *a)
{
	const struct mfk_attention all = whole_of(a);
	int64_t dims = a->qk_dim + a->v_dim;

	mfk_parallel(c, a->batch * a->kv_heads, 1,
		     (size_t)(2 * all.keys * dims + (2 * BLOCK + 1) * all.keys + 2 * BLOCK * dims),
		     backward_part, &all);
}

/* Threads have scratch of their own. */
size_t mfk_ref_attention_scratch(struct mfk_device *d, const struct mfk_attention *a, bool backward)
{
	(void)d;
	(void)a;
	(void)backward;
	return 0;
}

/* ---- parts ---- */

/* One row of one head. */
static void join_row(const struct mfk_attention_join *a, int64_t row, float *buf)
{
	int64_t i = row / a->heads % a->seq, batch = row / a->heads / a->seq, head = row % a->heads;
	int64_t at = (batch * a->heads + head) * a->seq + i;
	float *out = a->out + row * a->v_dim, before = a->lse[at], more = a->part_lse[at];
	float most = before > more ? before : more, lse, keep, add;
	const float *part = mfk_load(a->dtype, a->part, row * a->v_dim, a->v_dim, buf);

	if (most == -INFINITY) { /* no keys yet */
		memset(out, 0, (size_t)a->v_dim * sizeof(float));
		return;
	}
	lse = most + logf(expf(before - most) + expf(more - most));
	keep = expf(before - lse);
	add = expf(more - lse);
	for (int64_t d = 0; d < a->v_dim; d++)
		out[d] = (keep > 0 ? keep * out[d] : 0) + add * part[d];
	a->lse[at] = lse;
}

static void join_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	for (int64_t row = begin; row < end; row++)
		join_row(arg, row, scratch);
}

void mfk_ref_attention_join(struct mfk_ctx *c, const struct mfk_attention_join *a)
{
	mfk_parallel(c, a->batch * a->seq * a->heads, 64, (size_t)a->v_dim, join_part, a);
}
