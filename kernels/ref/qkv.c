/* Megatron's packed qkv, a token at a time: split, the norms of q and k, RoPE, and back. */
#include "kernels/ref/norm_i.h"

#include <string.h>

/* What normalises the heads of q, or of k; weight NULL: nothing does. */
struct head_norm {
	const float *weight, *bias;
	float *mean, *rstd; /* of the first head of token 0 */
};

/* Turns a head by cos and sin; back by -1 as direction. */
MFK_INLINE void turn(const struct mfk_qkv *a, const float *cos, const float *sin, float direction,
		     float *x)
{
	int64_t half = a->rotary_dim / 2;
	int64_t step = a->interleaved ? 2 : 1, second = a->interleaved ? 1 : half;

#pragma omp simd
	for (int64_t i = 0; i < half; i++) {
		float x1 = x[i * step], x2 = x[i * step + second];
		float c = cos[i], s = sin[i] * direction;

		x[i * step] = x1 * c - x2 * s;
		x[i * step + second] = x2 * c + x1 * s;
	}
}

MFK_SIMD static void head_forward(const struct mfk_qkv *a, const struct head_norm *norm,
				  int64_t head, const float *cos, const float *sin, const float *x,
				  float *y)
{
	float mean;

	if (norm->weight) {
		mfk_norm_row(a->layernorm, a->zero_centered, a->eps, a->dim, x, norm->weight,
			     norm->bias, y, &mean, &norm->rstd[head]);
		if (a->layernorm)
			norm->mean[head] = mean;
	} else {
		memcpy(y, x, (size_t)a->dim * sizeof(float));
	}
	turn(a, cos, sin, 1, y);
}

/* sums: dweight and dbias, [dim] each. */
MFK_SIMD static void head_backward(const struct mfk_qkv *a, const struct head_norm *norm,
				   int64_t head, const float *cos, const float *sin, const float *x,
				   const float *dy, float *dx, float *sums)
{
	memcpy(dx, dy, (size_t)a->dim * sizeof(float));
	turn(a, cos, sin, -1, dx);
	if (norm->weight)
		mfk_norm_row_backward(a->layernorm, a->zero_centered, a->dim, x,
				      a->layernorm ? norm->mean[head] : 0, norm->rstd[head],
				      norm->weight, dx, dx, sums, sums + a->dim);
}

static const float *optional(const struct mfk_qkv *a, const void *weight, float *buf)
{
	return weight ? mfk_load(a->dtype, weight, 0, a->dim, buf) : NULL;
}

/* buf: [4, dim] */
static void load_norms(const struct mfk_qkv *a, float *buf, struct head_norm *q,
		       struct head_norm *k)
{
	*q = (struct head_norm){optional(a, a->q_norm, buf),
				optional(a, a->q_norm_bias, buf + a->dim), a->q_mean, a->q_rstd};
	*k = (struct head_norm){optional(a, a->k_norm, buf + 2 * a->dim),
				optional(a, a->k_norm_bias, buf + 3 * a->dim), a->k_mean,
				a->k_rstd};
}

/* Elements of a token's q, of its k or v, and of all; and of the gates of one group. */
struct widths {
	int64_t q, k, all, gates;
};

static struct widths widths_of(const struct mfk_qkv *a)
{
	int64_t k = a->groups * a->dim, q = k * a->heads_per_group;

	return (struct widths){q, k, q + 2 * k + k * a->gates, a->gates * a->dim};
}

static const float *angles(const struct mfk_qkv *a, const float *table, int64_t token)
{
	return a->rotary_dim ? table + a->positions[token] * (a->rotary_dim / 2) : NULL;
}

static void forward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_qkv *a = arg;
	struct widths w = widths_of(a);
	float *in_buf = scratch + 4 * a->dim, *q_buf = in_buf + w.all, *k_buf = q_buf + w.q;
	float *v_buf = k_buf + w.k;
	struct head_norm q_norm, k_norm;

	load_norms(a, scratch, &q_norm, &k_norm);
	for (int64_t t = begin; t < end; t++) {
		const float *x = mfk_load(a->dtype, a->qkv, t * w.all, w.all, in_buf);
		const float *cos = angles(a, a->cos, t), *sin = angles(a, a->sin, t);
		float *q = mfk_begin(a->dtype, a->q, t * w.q, q_buf);
		float *k = mfk_begin(a->dtype, a->k, t * w.k, k_buf);
		float *v = mfk_begin(a->dtype, a->v, t * w.k, v_buf);

		for (int64_t g = 0; g < a->groups; g++) {
			for (int64_t h = g * a->heads_per_group; h < (g + 1) * a->heads_per_group;
			     h++, x += a->dim)
				head_forward(a, &q_norm, t * (w.q / a->dim) + h, cos, sin, x,
					     q + h * a->dim);
			x += w.gates;
			head_forward(a, &k_norm, t * a->groups + g, cos, sin, x, k + g * a->dim);
			memcpy(v + g * a->dim, x + a->dim, (size_t)a->dim * sizeof(float));
			x += 2 * a->dim;
		}
		mfk_end(a->dtype, a->q, t * w.q, w.q, q);
		mfk_end(a->dtype, a->k, t * w.k, w.k, k);
		mfk_end(a->dtype, a->v, t * w.k, w.k, v);
	}
}

void mfk_ref_qkv(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	struct widths w = widths_of(a);

	mfk_parallel(c, a->tokens, mfk_row_grain(w.all), (size_t)(2 * w.all + 4 * a->dim),
		     forward_part, a);
}

/* ---- backward ---- */

struct backward {
	const struct mfk_qkv *a;
	int64_t block;
	float *sums; /* [blocks, 4, dim]: gradients of q's weight and bias, of k's */
};

/* Stores a token's gradients, but for those of gates. */
static void end_row(const struct mfk_qkv *a, const struct widths *w, int64_t token,
		    const float *row)
{
	const int64_t queries = a->heads_per_group * a->dim, group = w->all / a->groups;

	for (int64_t g = 0, at = 0; g < a->groups; g++, at += group) {
		const int64_t keys = at + queries + w->gates;

		mfk_end(a->dtype, a->dqkv, token * w->all + at, queries, row + at);
		mfk_end(a->dtype, a->dqkv, token * w->all + keys, 2 * a->dim, row + keys);
	}
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct backward *b = arg;
	const struct mfk_qkv *a = b->a;
	struct widths w = widths_of(a);
	float *x_buf = scratch + 4 * a->dim, *out_buf = x_buf + w.all, *q_buf = out_buf + w.all;
	float *k_buf = q_buf + w.q, *v_buf = k_buf + w.k;
	float *sums = b->sums + begin / b->block * 4 * a->dim;
	struct head_norm q_norm, k_norm;

	load_norms(a, scratch, &q_norm, &k_norm);
	memset(sums, 0, 4 * (size_t)a->dim * sizeof(float));
	for (int64_t t = begin; t < end; t++) {
		const float *x = mfk_load(a->dtype, a->qkv, t * w.all, w.all, x_buf);
		const float *q = mfk_load(a->dtype, a->dq, t * w.q, w.q, q_buf);
		const float *k = mfk_load(a->dtype, a->dk, t * w.k, w.k, k_buf);
		const float *v = mfk_load(a->dtype, a->dv, t * w.k, w.k, v_buf);
		const float *cos = angles(a, a->cos, t), *sin = angles(a, a->sin, t);
		float *out = mfk_begin(a->dtype, a->dqkv, t * w.all, out_buf), *dx = out;

		for (int64_t g = 0; g < a->groups; g++) {
			for (int64_t h = g * a->heads_per_group; h < (g + 1) * a->heads_per_group;
			     h++, x += a->dim, dx += a->dim)
				head_backward(a, &q_norm, t * (w.q / a->dim) + h, cos, sin, x,
					      q + h * a->dim, dx, sums);
			x += w.gates;
			dx += w.gates;
			head_backward(a, &k_norm, t * a->groups + g, cos, sin, x, k + g * a->dim,
				      dx, sums + 2 * a->dim);
			memcpy(dx + a->dim, v + g * a->dim, (size_t)a->dim * sizeof(float));
			x += 2 * a->dim;
			dx += 2 * a->dim;
		}
		end_row(a, &w, t, out);
	}
}

void mfk_ref_qkv_backward(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	struct widths w = widths_of(a);
	int64_t block = mfk_block_rows(a->tokens, w.all);
	int64_t blocks = (a->tokens + block - 1) / block, n = a->dim;
	struct backward b = {a, block, mfk_sums(c, (size_t)(blocks * 4 * n) * sizeof(float))};

	if (!b.sums || a->tokens <= 0)
		return;
	mfk_parallel(c, a->tokens, block, (size_t)(3 * w.all + 4 * n), backward_part, &b);
	mfk_add_blocks(c, a->grad, a->q_norm ? a->dq_norm : NULL, n, b.sums, blocks, 4 * n);
	mfk_add_blocks(c, a->grad, a->q_norm ? a->dq_norm_bias : NULL, n, b.sums + n, blocks,
		       4 * n);
	mfk_add_blocks(c, a->grad, a->k_norm ? a->dk_norm : NULL, n, b.sums + 2 * n, blocks, 4 * n);
	mfk_add_blocks(c, a->grad, a->k_norm ? a->dk_norm_bias : NULL, n, b.sums + 3 * n, blocks,
		       4 * n);
}
