/* Dropout, alone or on its way into the residual stream. */
#include "kernels/ref/ref_i.h"

MFK_SIMD static void multiply(float *y, const float *x, const float *keep, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * keep[i];
}

MFK_SIMD static void multiply_add(float *y, const float *x, const float *keep,
				  const float *residual, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = residual[i] + x[i] * keep[i];
}

static void dropout_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_dropout *a = arg;
	float *keep = scratch, *x_buf = keep + MFK_GRAIN, *residual_buf = x_buf + MFK_GRAIN;
	int64_t n = end - begin;
	const float *x = mfk_load(a->dtype, a->x, begin, n, x_buf);
	float *y = mfk_begin(a->dtype, a->y, begin, x_buf);

	mfk_keep(a->seed, a->offset + (uint64_t)begin, n, a->p, keep);
	if (a->residual)
		multiply_add(y, x, keep, mfk_load(a->dtype, a->residual, begin, n, residual_buf),
			     n);
	else
		multiply(y, x, keep, n);
	mfk_end(a->dtype, a->y, begin, n, y);
}

void mfk_ref_dropout(struct mfk_ctx *c, const struct mfk_dropout *a)
{
	mfk_parallel(c, a->count, MFK_GRAIN, 3 * MFK_GRAIN, dropout_part, a);
}

/* The same elements are kept; the residual's gradient is dy itself. */
void mfk_ref_dropout_backward(struct mfk_ctx *c, const struct mfk_dropout *a)
{
	struct mfk_dropout b = *a;

	b.residual = NULL;
	mfk_ref_dropout(c, &b);
}
