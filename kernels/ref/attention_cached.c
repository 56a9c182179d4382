/*
 * Attention to cached keys: a thread has one token and one of its heads of keys, whose scores it
 * holds for the group of heads that shares them.
 */
#include "kernels/ref/math_i.h"

MFK_SIMD static float dot(const float *x, const float *y, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += x[i] * y[i];
	return sum;
}

MFK_SIMD static void add_times(float *x, const float *y, float by, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] += by * y[i];
}

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

MFK_SIMD static void scale(float *x, float by, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] *= by;
}

/* ---- the cache ---- */

/* The row of the cache that a position of the token's sequence has, in rows of a head. */
static int64_t cached_row(const struct mfk_attention_cached *a, int64_t t, int64_t position)
{
	return ((int64_t)a->sequence[t] * a->length + position) * a->kv_heads;
}

static void store_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_attention_cached *a = arg;
	const size_t size = mfk_dtype_size(a->dtype);
	const int64_t k = a->kv_heads * a->qk_dim, v = a->kv_heads * a->v_dim;

	(void)scratch;
	for (int64_t t = begin; t < end; t++) {
		const int64_t row = a->sequence[t] < 0 ? 0 : cached_row(a, t, a->position[t]);

		if (a->sequence[t] < 0)
			continue;
		memcpy(mfk_at(a->dtype, a->keys, row * a->qk_dim), mfk_at(a->dtype, a->k, t * k),
		       (size_t)k * size);
		memcpy(mfk_at(a->dtype, a->values, row * a->v_dim), mfk_at(a->dtype, a->v, t * v),
		       (size_t)v * size);
	}
}

/* ---- a token and a head of keys ---- */

struct task {
	const struct mfk_attention_cached *a;
	int64_t token, kv_head, group; /* heads that share the keys */
	int64_t first, count;	       /* positions that the token sees */
};

static struct task task_at(const struct mfk_attention_cached *a, int64_t number)
{
	struct task s = {a, number / a->kv_heads, number % a->kv_heads, a->heads / a->kv_heads, 0,
			 0};
	const int64_t end = (int64_t)a->position[s.token] + 1;

	s.first = a->window && end > a->window ? end - a->window : 0;
	s.count = end - s.first;
	return s;
}

static const float *cached(const struct task *s, const void *cache, int64_t i, int64_t dim,
			   float *buf)
{
	const int64_t row = cached_row(s->a, s->token, s->first + i) + s->kv_head;

	return mfk_load(s->a->dtype, cache, row * dim, dim, buf);
}

/* scores [group, count] of q [group, qk_dim]. */
static void score(const struct task *s, const float *q, float *scores, float *buf)
{
	const struct mfk_attention_cached *a = s->a;

	for (int64_t j = 0; j < s->count; j++) {
		const float *k = cached(s, a->keys, j, a->qk_dim, buf);

		for (int64_t h = 0; h < s->group; h++)
			scores[h * s->count + j] = a->scale * dot(q + h * a->qk_dim, k, a->qk_dim);
	}
}

/* out [group, v_dim]: values times exponentials of scores. */
static void add_values(const struct task *s, const float *scores, float *out, float *buf)
{
	const struct mfk_attention_cached *a = s->a;

	memset(out, 0, (size_t)(s->group * a->v_dim) * sizeof(*out));
	for (int64_t j = 0; j < s->count; j++) {
		const float *v = cached(s, a->values, j, a->v_dim, buf);

		for (int64_t h = 0; h < s->group; h++)
			add_times(out + h * a->v_dim, v, scores[h * s->count + j], a->v_dim);
	}
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void attend(const struct task *s, float *scratch)
{
	const struct mfk_attention_cached *a = s->a;
	const int64_t head = s->token * a->heads + s->kv_head * s->group;
	float *scores = scratch, *out = scores + s->group * s->count;
	float *q_buf = out + s->group * a->v_dim, *buf = q_buf + s->group * a->qk_dim;
	const float *q = mfk_load(a->dtype, a->q, head * a->qk_dim, s->group * a->qk_dim, q_buf);

	score(s, q, scores, buf);
	for (int64_t h = 0; h < s->group; h++) {
		float *x = scores + h * s->count;

		scale(x, 1 / exponentials(x, maximum(x, s->count), s->count), s->count);
	}
	add_values(s, scores, out, buf);
	mfk_from_f32(a->dtype, out, s->group * a->v_dim, mfk_at(a->dtype, a->out, head * a->v_dim));
}

static void attend_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_attention_cached *a = arg;

	for (int64_t i = begin; i < end; i++) {
		const struct task s = task_at(a, i);
		const int64_t each = s.group * a->v_dim;

		if (a->sequence[s.token] < 0)
			memset(mfk_at(a->dtype, a->out, i * each), 0,
			       (size_t)each * mfk_dtype_size(a->dtype));
		else
			attend(&s, scratch);
	}
}

void mfk_ref_attention_cached(struct mfk_ctx *c, const struct mfk_attention_cached *a)
{
	const int64_t group = a->heads / a->kv_heads;
	const int64_t each = group * (a->length + a->qk_dim + a->v_dim);

	mfk_parallel(c, a->tokens, 16, 0, store_part, a);
	mfk_parallel(c, a->tokens * a->kv_heads, 1, (size_t)(each + larger(a->qk_dim, a->v_dim)),
		     attend_part, a);
}
