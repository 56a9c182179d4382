/*
 * What the rule of a gated delta net starts from, a token at a time: convolutions of queries, keys
 * and values, the lengths of queries and keys, decay and beta; and back.
 *
 * Backward takes blocks of tokens. The gradient of a token's element is a sum over the tokens that
 * it was convolved to, so a block also computes what the width - 1 tokens after it pass on.
 */
#include <string.h>

#include "kernels/ref/math_i.h"

/* Elements of a token: of q or k, of v, of what is convolved, of all. */
struct widths {
	int64_t k, v, conv, all;
};

static struct widths widths_of(const struct mfk_delta *a)
{
	const int64_t k = a->key_heads * a->key_dim, v = a->value_heads * a->value_dim;

	return (struct widths){k, v, 2 * k + v, 2 * (k + v + a->value_heads)};
}

/* Where b and a begin in a token's row. */
static int64_t first_b(const struct mfk_delta *a)
{
	return widths_of(a).all - 2 * a->value_heads;
}

/* ---- convolutions ---- */

/* conv as [width, columns], so that a step of a convolution is a walk over columns. rows: room. */
static void load_conv(const struct mfk_delta *a, float *rows, float *ret)
{
	const int64_t cols = widths_of(a).conv;
	const float *conv = mfk_load(a->dtype, a->conv, 0, cols * a->width, rows);

	for (int64_t i = 0; i < cols; i++)
		for (int64_t j = 0; j < a->width; j++)
			ret[j * cols + i] = conv[i * a->width + j];
}

MFK_SIMD static void add_product(int64_t n, const float *x, const float *y, float *sum)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		sum[i] += x[i] * y[i];
}

/* The tokens before a token that it is convolved with, or those after it that are convolved with
 * it: of the same sequence. */
static int64_t before(const struct mfk_delta *a, int64_t token)
{
	const int64_t at = token % a->seq;

	return at < a->width - 1 ? at : a->width - 1;
}

static int64_t after(const struct mfk_delta *a, int64_t token)
{
	const int64_t left = a->seq - 1 - token % a->seq;

	return left < a->width - 1 ? left : a->width - 1;
}

/* What a token's columns are before SiLU. buf: room for a row. */
static void convolve(const struct mfk_delta *a, const float *conv, int64_t token, float *buf,
		     float *ret)
{
	const struct widths w = widths_of(a);

	memset(ret, 0, (size_t)w.conv * sizeof(float));
	for (int64_t back = before(a, token); back >= 0; back--)
		add_product(w.conv, conv + (a->width - 1 - back) * w.conv,
			    mfk_load(a->dtype, a->packed, (token - back) * w.all, w.conv, buf),
			    ret);
}

MFK_SIMD static void silu(int64_t n, const float *x, float *y)
{
	float rest;

#pragma omp simd private(rest)
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * mfk_sigmoid(x[i], &rest);
}

/* d, of SiLU's output, becomes that of x. */
MFK_SIMD static void silu_backward(int64_t n, const float *x, float *d)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float rest, s = mfk_sigmoid(x[i], &rest);

		d[i] *= s + x[i] * s * rest;
	}
}

/* ---- lengths ---- */

MFK_SIMD static void shorten(int64_t n, const float *x, float *y)
{
	float squares = 0, by;

#pragma omp simd reduction(+ : squares)
	for (int64_t i = 0; i < n; i++)
		squares += x[i] * x[i];
	by = 1 / sqrtf(squares + MFK_DELTA_EPS);
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * by;
}

/* With y = x r, where r is one by x's length: dx = r (dy - y (y dy)). */
MFK_SIMD static void shorten_backward(int64_t n, const float *x, const float *dy, float *dx)
{
	float squares = 0, product = 0, by;

#pragma omp simd reduction(+ : squares, product)
	for (int64_t i = 0; i < n; i++) {
		squares += x[i] * x[i];
		product += x[i] * dy[i];
	}
	by = 1 / sqrtf(squares + MFK_DELTA_EPS);
	product *= by * by;
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		dx[i] = by * (dy[i] - x[i] * product);
}

/* ---- decay and beta ---- */

static float softplus(float x)
{
	return x > 20 ? x : log1pf(expf(x));
}

static float sigmoid(float x)
{
	float rest;

	return mfk_sigmoid(x, &rest);
}

/* What all tokens share, as fp32. */
struct shared {
	float *conv;	/* [width, columns] */
	float *rate;	/* [value_heads]: -exp(a_log) */
	float *dt_bias; /* [value_heads] */
};

static size_t shared_floats(const struct mfk_delta *a)
{
	return (size_t)(widths_of(a).conv * a->width + 2 * a->value_heads);
}

/* at: room; buf: room for conv. */
static struct shared load_shared(const struct mfk_delta *a, float *at, float *buf)
{
	struct shared s = {.rate = at, .dt_bias = at + a->value_heads};

	s.conv = s.dt_bias + a->value_heads;
	load_conv(a, buf, s.conv);
	mfk_to_f32(a->dtype, a->a_log, a->value_heads, s.rate);
	mfk_to_f32(a->dtype, a->dt_bias, a->value_heads, s.dt_bias);
	for (int64_t h = 0; h < a->value_heads; h++)
		s.rate[h] = -expf(s.rate[h]);
	return s;
}

static void rates_forward(const struct mfk_delta *a, const struct shared *s, int64_t token,
			  float *buf)
{
	const int64_t n = a->value_heads, at = token * widths_of(a).all + first_b(a);
	const float *b = mfk_load(a->dtype, a->packed, at, 2 * n, buf);

	for (int64_t h = 0; h < n; h++) {
		a->decay[token * n + h] = s->rate[h] * softplus(b[n + h] + s->dt_bias[h]);
		a->beta[token * n + h] = sigmoid(b[h]);
	}
}

/* sums: of a_log's gradient, and of dt_bias'. buf: room for two rows of b and a. */
static void rates_backward(const struct mfk_delta *a, const struct shared *s, int64_t token,
			   float *sums, float *buf)
{
	const int64_t n = a->value_heads, at = token * widths_of(a).all + first_b(a);
	const float *b = mfk_load(a->dtype, a->packed, at, 2 * n, buf);
	float *db = mfk_begin(a->dtype, a->dpacked, at, buf + 2 * n);

	for (int64_t h = 0; h < n; h++) {
		const float ddecay = a->ddecay[token * n + h], beta = sigmoid(b[h]);
		const float x = b[n + h] + s->dt_bias[h];
		const float dx = ddecay * s->rate[h] * sigmoid(x);

		sums[h] += ddecay * s->rate[h] * softplus(x);
		sums[n + h] += dx;
		db[h] = a->dbeta[token * n + h] * beta * (1 - beta);
		db[n + h] = dx;
	}
	mfk_end(a->dtype, a->dpacked, at, 2 * n, db);
}

/* ---- forward ---- */

static void shorten_heads(const struct mfk_delta *a, const float *x, float *y)
{
	for (int64_t h = 0; h < a->key_heads; h++)
		shorten(a->key_dim, x + h * a->key_dim, y + h * a->key_dim);
}

static void forward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_delta *a = arg;
	const struct widths w = widths_of(a);
	float *buf = scratch + shared_floats(a), *row = buf + w.conv * a->width;
	const struct shared s = load_shared(a, scratch, buf);

	for (int64_t t = begin; t < end; t++) {
		float *q, *k;

		convolve(a, s.conv, t, buf, row);
		silu(w.conv, row, row);
		q = mfk_begin(a->dtype, a->q, t * w.k, buf);
		shorten_heads(a, row, q);
		mfk_end(a->dtype, a->q, t * w.k, w.k, q);
		k = mfk_begin(a->dtype, a->k, t * w.k, buf);
		shorten_heads(a, row + w.k, k);
		mfk_end(a->dtype, a->k, t * w.k, w.k, k);
		mfk_from_f32(a->dtype, row + 2 * w.k, w.v, mfk_at(a->dtype, a->v, t * w.v));
		rates_forward(a, &s, t, buf);
	}
}

/* Room for conv, for a row of what is convolved, and for b and a twice. */
static size_t buffer_floats(const struct mfk_delta *a)
{
	return (size_t)(widths_of(a).conv * a->width + 4 * a->value_heads);
}

void mfk_ref_delta_inputs(struct mfk_ctx *c, const struct mfk_delta *a)
{
	const struct widths w = widths_of(a);

	mfk_parallel(c, a->batch * a->seq, mfk_row_grain(w.all),
		     shared_floats(a) + buffer_floats(a) + (size_t)w.conv, forward_part, a);
}

/* ---- backward ---- */

struct backward {
	const struct mfk_delta *a;
	int64_t block;
	float *sums; /* [blocks, sums_of()]: of conv, of a_log, of dt_bias */
};

static int64_t sums_of(const struct mfk_delta *a)
{
	return widths_of(a).conv * a->width + 2 * a->value_heads;
}

/* The gradient of a token's columns before SiLU. buf, x: room for a row each. */
static void columns_backward(const struct mfk_delta *a, const float *conv, int64_t token,
			     float *buf, float *x, float *ret)
{
	const struct widths w = widths_of(a);
	float *active = buf + w.conv; /* q and k alone */
	const float *d;

	convolve(a, conv, token, buf, x);
	silu(2 * w.k, x, active);
	d = mfk_load(a->dtype, a->dq, token * w.k, w.k, buf);
	for (int64_t i = 0; i < w.k; i += a->key_dim)
		shorten_backward(a->key_dim, active + i, d + i, ret + i);
	d = mfk_load(a->dtype, a->dk, token * w.k, w.k, buf);
	for (int64_t i = 0; i < w.k; i += a->key_dim)
		shorten_backward(a->key_dim, active + w.k + i, d + i, ret + w.k + i);
	mfk_to_f32(a->dtype, mfk_at(a->dtype, a->dv, token * w.v), w.v, ret + 2 * w.k);
	silu_backward(w.conv, x, ret);
}

/* The gradient of a token's columns: of it and of the tokens after it. d: of the token's columns
 * before SiLU, then those of the tokens after it. */
static void input_backward(const struct mfk_delta *a, const float *conv, int64_t token,
			   const float *d, float *buf)
{
	const struct widths w = widths_of(a);
	float *dx = mfk_begin(a->dtype, a->dpacked, token * w.all, buf);

	memset(dx, 0, (size_t)w.conv * sizeof(float));
	for (int64_t ahead = 0; ahead <= after(a, token); ahead++)
		add_product(w.conv, conv + (a->width - 1 - ahead) * w.conv, d + ahead * w.conv, dx);
	mfk_end(a->dtype, a->dpacked, token * w.all, w.conv, dx);
}

/* Adds the gradient of conv, [width, columns], that a token gives. */
static void conv_backward(const struct mfk_delta *a, int64_t token, const float *d, float *buf,
			  float *sums)
{
	const struct widths w = widths_of(a);

	for (int64_t back = before(a, token); back >= 0; back--)
		add_product(w.conv, d,
			    mfk_load(a->dtype, a->packed, (token - back) * w.all, w.conv, buf),
			    sums + (a->width - 1 - back) * w.conv);
}

/* [width, columns] as [columns, width] */
static void transpose(const struct mfk_delta *a, const float *from, float *to)
{
	const int64_t cols = widths_of(a).conv;

	for (int64_t i = 0; i < cols; i++)
		for (int64_t j = 0; j < a->width; j++)
			to[i * a->width + j] = from[j * cols + i];
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct backward *b = arg;
	const struct mfk_delta *a = b->a;
	const struct widths w = widths_of(a);
	const int64_t all = a->batch * a->seq;
	float *buf = scratch + shared_floats(a), *x = buf + buffer_floats(a) + w.conv;
	float *dconv = x + w.conv, *d = dconv + w.conv * a->width;
	float *sums = b->sums + begin / b->block * sums_of(a);
	const struct shared s = load_shared(a, scratch, buf);

	memset(sums, 0, (size_t)sums_of(a) * sizeof(float));
	memset(dconv, 0, (size_t)(w.conv * a->width) * sizeof(float));
	for (int64_t t = begin; t < end + a->width - 1 && t < all; t++)
		columns_backward(a, s.conv, t, buf, x, d + (t - begin) * w.conv);
	for (int64_t t = begin; t < end; t++, d += w.conv) {
		input_backward(a, s.conv, t, d, buf);
		conv_backward(a, t, d, buf, dconv);
		rates_backward(a, &s, t, sums + w.conv * a->width, buf);
	}
	transpose(a, dconv, sums);
}

void mfk_ref_delta_inputs_backward(struct mfk_ctx *c, const struct mfk_delta *a)
{
	const struct widths w = widths_of(a);
	const int64_t tokens = a->batch * a->seq, n = sums_of(a), heads = a->value_heads;
	const int64_t block = mfk_block_rows(tokens, w.all), blocks = (tokens + block - 1) / block;
	struct backward b = {a, block, mfk_sums(c, (size_t)(blocks * n) * sizeof(float))};

	if (!b.sums || tokens <= 0)
		return;
	mfk_parallel(c, tokens, block,
		     shared_floats(a) + buffer_floats(a) +
			     (size_t)(w.conv * (2 * a->width + block + 1)),
		     backward_part, &b);
	mfk_add_blocks(c, a->grad, a->dconv, n - 2 * heads, b.sums, blocks, n);
	mfk_add_blocks(c, a->grad, a->da_log, heads, b.sums + n - 2 * heads, blocks, n);
	mfk_add_blocks(c, a->grad, a->ddt_bias, heads, b.sums + n - heads, blocks, n);
}
