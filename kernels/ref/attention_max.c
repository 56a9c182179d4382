/* The largest score of each head: a thread has heads, and goes through blocks of queries. */
#include "kernels/ref/math_i.h"

#define BLOCK 128 /* queries */

/* Rows [begin, begin + rows) of a head of base [tokens, heads, dim], as fp32. */
static void load(const struct mfk_attention *a, const void *base, int64_t heads, int64_t head,
		 int64_t begin, int64_t rows, float *to)
{
	for (int64_t i = 0; i < rows; i++)
		mfk_to_f32(a->dtype,
			   mfk_at(a->dtype, base, ((begin + i) * heads + head) * a->qk_dim),
			   a->qk_dim, to + i * a->qk_dim);
}

MFK_SIMD static float maximum(const float *x, int64_t n)
{
	float most = 0;

#pragma omp simd reduction(max : most)
	for (int64_t i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	return most;
}

/* Of queries [q0, q0 + rows) of a sequence, whose keys are k. */
static float of_block(const struct mfk_attention *a, int64_t batch, int64_t head, int64_t q0,
		      const float *k, float *scratch)
{
	const int64_t rows = a->seq - q0 < BLOCK ? a->seq - q0 : BLOCK;
	const int64_t keys = a->causal ? q0 + rows : a->seq;
	float *q = scratch, *scores = q + BLOCK * a->qk_dim, most = 0;

	load(a, a->q, a->heads, head, batch * a->seq + q0, rows, q);
	mfk_sgemm(false, true, rows, keys, a->qk_dim, a->scale, q, a->qk_dim, k, a->qk_dim, 0,
		  scores, keys);
	for (int64_t i = 0; i < rows; i++) {
		const bool from = a->causal && a->first_key;
		const int64_t begin = from ? a->first_key[batch * a->seq + q0 + i] : 0;
		const int64_t end = a->causal ? q0 + i + 1 : keys;
		const float x = maximum(scores + i * keys + begin, end - begin);

		most = x > most ? x : most;
	}
	return most;
}

struct job {
	const struct mfk_attention *a;
	float *max;
};

static void max_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct job *job = arg;
	const struct mfk_attention *a = job->a;
	float *rest = scratch + a->seq * a->qk_dim;

	for (int64_t head = begin; head < end; head++)
		for (int64_t batch = 0; batch < a->batch; batch++) {
			load(a, a->k, a->kv_heads, head / (a->heads / a->kv_heads), batch * a->seq,
			     a->seq, scratch);
			for (int64_t q0 = 0; q0 < a->seq; q0 += BLOCK) {
				const float x = of_block(a, batch, head, q0, scratch, rest);

				job->max[head] = x > job->max[head] ? x : job->max[head];
			}
		}
}

void mfk_ref_attention_max(struct mfk_ctx *c, const struct mfk_attention *a, float *max)
{
	const struct job job = {a, max};

	mfk_parallel(c, a->heads, 1, (size_t)((a->seq + BLOCK) * a->qk_dim + BLOCK * a->seq),
		     max_part, &job);
}
