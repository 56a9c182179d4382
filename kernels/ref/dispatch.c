/* Rows of tokens to experts and back. */
#include <string.h>

#include "kernels/ref/ref_i.h"

/* A counting sort, of a few numbers for each token: one thread's work. */
void mfk_ref_dispatch(struct mfk_ctx *c, const struct mfk_dispatch *a)
{
	const int64_t choices = a->tokens * a->top_k;
	int64_t *offsets = a->offsets, first = 0;

	(void)c;
	memset(offsets, 0, (size_t)(a->experts + 1) * sizeof(*offsets));
	for (int64_t i = 0; i < choices; i++)
		offsets[a->expert[i]]++;
	for (int64_t e = 0; e < a->experts; e++) {
		const int64_t count = offsets[e];

		if (a->totals)
			a->totals[e] += (int32_t)count;
		offsets[e] = first;
		first += count;
	}
	for (int64_t i = 0; i < choices; i++) {
		const int64_t r = offsets[a->expert[i]]++;

		a->row[i] = (int32_t)r;
		a->from[r] = (int32_t)i;
		a->row_prob[r] = a->prob[i];
	}
	/* Each is now where the next one begins. */
	memmove(offsets + 1, offsets, (size_t)a->experts * sizeof(*offsets));
	offsets[0] = 0;
}

static void gather_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_rows *a = arg;
	const size_t bytes = (size_t)a->cols * mfk_dtype_size(a->dtype);

	(void)scratch;
	for (int64_t r = begin; r < end; r++)
		memcpy(mfk_at(a->dtype, a->y, r * a->cols),
		       mfk_at(a->dtype, a->x, a->map[r] / a->each * a->cols), bytes);
}

void mfk_ref_gather(struct mfk_ctx *c, const struct mfk_rows *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols), 0, gather_part, a);
}

MFK_SIMD static void add(float *sum, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		sum[i] += x[i];
}

static void combine_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_rows *a = arg;
	const int64_t n = a->cols;
	float *sum = scratch, *buf = scratch + n;

	for (int64_t r = begin; r < end; r++) {
		memset(sum, 0, (size_t)n * sizeof(float));
		if (a->residual)
			mfk_to_f32(a->dtype, mfk_at(a->dtype, a->residual, r * n), n, sum);
		for (int64_t k = 0; k < a->each; k++)
			add(sum, mfk_load(a->dtype, a->x, a->map[r * a->each + k] * n, n, buf), n);
		mfk_from_f32(a->dtype, sum, n, mfk_at(a->dtype, a->y, r * n));
	}
}

void mfk_ref_combine(struct mfk_ctx *c, const struct mfk_rows *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols * (a->each + 1)), 2 * (size_t)a->cols,
		     combine_part, a);
}
