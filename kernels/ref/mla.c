/* Queries, keys and values of multi-latent attention, a token at a time, and back. */
#include <string.h>

#include "kernels/ref/ref_i.h"

/* Neighbours are turned, and come out in two halves; back by the transposed step. */
MFK_SIMD static void turn(const float *cos, const float *sin, int64_t half, const float *x,
			  float *y)
{
#pragma omp simd
	for (int64_t i = 0; i < half; i++) {
		y[i] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i];
		y[i + half] = x[2 * i + 1] * cos[i] + x[2 * i] * sin[i];
	}
}

MFK_SIMD static void turn_back(const float *cos, const float *sin, int64_t half, const float *dy,
			       float *dx)
{
#pragma omp simd
	for (int64_t i = 0; i < half; i++) {
		dx[2 * i] = dy[i] * cos[i] + dy[i + half] * sin[i];
		dx[2 * i + 1] = dy[i + half] * cos[i] - dy[i] * sin[i];
	}
}

/* What follows the turned elements is copied. */
static void turn_all(const struct mfk_mla *a, int64_t token, bool back, const float *x, float *y)
{
	const int64_t half = a->rotary_dim / 2, at = a->positions[token] * half;

	(back ? turn_back : turn)(a->cos + at, a->sin + at, half, x, y);
	memcpy(y + a->rotary_dim, x + a->rotary_dim,
	       (size_t)(a->rope - a->rotary_dim) * sizeof(float));
}

/* Elements of a token. */
struct widths {
	int64_t qk, kv, v, head, kv_head;
};

static struct widths widths_of(const struct mfk_mla *a)
{
	const int64_t head = a->nope + a->rope, kv_head = a->nope + a->v_dim;

	return (struct widths){a->heads * head, a->heads * kv_head, a->heads * a->v_dim, head,
			       kv_head};
}

static size_t scratch_of(const struct mfk_mla *a)
{
	const struct widths w = widths_of(a);

	return (size_t)(3 * w.qk + w.kv + w.v + 2 * a->rope);
}

static void copy(float *to, const float *from, int64_t count)
{
	memcpy(to, from, (size_t)count * sizeof(float));
}

static void forward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_mla *a = arg;
	const struct widths w = widths_of(a);
	float *q_buf = scratch, *k_buf = q_buf + w.qk, *up_buf = k_buf + w.qk;
	float *kv_buf = up_buf + w.qk, *v_buf = kv_buf + w.kv, *rope_buf = v_buf + w.v;
	float *turned = rope_buf + a->rope;

	for (int64_t t = begin; t < end; t++) {
		const float *up = mfk_load(a->dtype, a->q_up, t * w.qk, w.qk, up_buf);
		const float *kv = mfk_load(a->dtype, a->kv_up, t * w.kv, w.kv, kv_buf);
		float *q = mfk_begin(a->dtype, a->q, t * w.qk, q_buf);
		float *k = mfk_begin(a->dtype, a->k, t * w.qk, k_buf);
		float *v = mfk_begin(a->dtype, a->v, t * w.v, v_buf);

		turn_all(a, t, false, mfk_load(a->dtype, a->k_rope, t * a->rope, a->rope, rope_buf),
			 turned);
		for (int64_t h = 0; h < a->heads; h++) {
			copy(q + h * w.head, up + h * w.head, a->nope);
			turn_all(a, t, false, up + h * w.head + a->nope, q + h * w.head + a->nope);
			copy(k + h * w.head, kv + h * w.kv_head, a->nope);
			copy(k + h * w.head + a->nope, turned, a->rope);
			copy(v + h * a->v_dim, kv + h * w.kv_head + a->nope, a->v_dim);
		}
		mfk_end(a->dtype, a->q, t * w.qk, w.qk, q);
		mfk_end(a->dtype, a->k, t * w.qk, w.qk, k);
		mfk_end(a->dtype, a->v, t * w.v, w.v, v);
	}
}

void mfk_ref_mla(struct mfk_ctx *c, const struct mfk_mla *a)
{
	mfk_parallel(c, a->tokens, mfk_row_grain(4 * widths_of(a).qk), scratch_of(a), forward_part,
		     a);
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_mla *a = arg;
	const struct widths w = widths_of(a);
	float *q_buf = scratch, *k_buf = q_buf + w.qk, *up_buf = k_buf + w.qk;
	float *kv_buf = up_buf + w.qk, *v_buf = kv_buf + w.kv, *rope_buf = v_buf + w.v;
	float *sum = rope_buf + a->rope;

	for (int64_t t = begin; t < end; t++) {
		const float *q = mfk_load(a->dtype, a->dq, t * w.qk, w.qk, q_buf);
		const float *k = mfk_load(a->dtype, a->dk, t * w.qk, w.qk, k_buf);
		const float *v = mfk_load(a->dtype, a->dv, t * w.v, w.v, v_buf);
		float *up = mfk_begin(a->dtype, a->dq_up, t * w.qk, up_buf);
		float *kv = mfk_begin(a->dtype, a->dkv_up, t * w.kv, kv_buf);
		float *rope = mfk_begin(a->dtype, a->dk_rope, t * a->rope, rope_buf);

		memset(sum, 0, (size_t)a->rope * sizeof(float));
		for (int64_t h = 0; h < a->heads; h++) {
			copy(up + h * w.head, q + h * w.head, a->nope);
			turn_all(a, t, true, q + h * w.head + a->nope, up + h * w.head + a->nope);
			copy(kv + h * w.kv_head, k + h * w.head, a->nope);
			copy(kv + h * w.kv_head + a->nope, v + h * a->v_dim, a->v_dim);
			for (int64_t i = 0; i < a->rope; i++)
				sum[i] += k[h * w.head + a->nope + i];
		}
		turn_all(a, t, true, sum, rope);
		mfk_end(a->dtype, a->dq_up, t * w.qk, w.qk, up);
		mfk_end(a->dtype, a->dkv_up, t * w.kv, w.kv, kv);
		mfk_end(a->dtype, a->dk_rope, t * a->rope, a->rope, rope);
	}
}

void mfk_ref_mla_backward(struct mfk_ctx *c, const struct mfk_mla *a)
{
	mfk_parallel(c, a->tokens, mfk_row_grain(4 * widths_of(a).qk), scratch_of(a), backward_part,
		     a);
}
