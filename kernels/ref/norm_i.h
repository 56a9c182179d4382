/* Normalisation of one row in fp32: of the hidden size (norm.c), or of a head (qkv.c). */
#ifndef MFK_REF_NORM_I_H
#define MFK_REF_NORM_I_H

#include <math.h>

#include "kernels/ref/ref_i.h"

/* y = (x - mean) rstd weight (+ bias); mean of LayerNorm alone, else 0. y may be x. */
MFK_INLINE void mfk_norm_row(bool layernorm, bool zero_centered, float eps, int64_t n,
			     const float *x, const float *weight, const float *bias, float *y,
			     float *ret_mean, float *ret_rstd)
{
	float mean = 0, squares = 0, rstd, one = zero_centered ? 1 : 0;

	if (layernorm) {
#pragma omp simd reduction(+ : mean)
		for (int64_t i = 0; i < n; i++)
			mean += x[i];
		mean /= (float)n;
	}
#pragma omp simd reduction(+ : squares)
	for (int64_t i = 0; i < n; i++)
		squares += (x[i] - mean) * (x[i] - mean);
	rstd = 1 / sqrtf(squares / (float)n + eps);
	if (bias) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			y[i] = (x[i] - mean) * rstd * (weight[i] + one) + bias[i];
	} else {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			y[i] = (x[i] - mean) * rstd * (weight[i] + one);
	}
	*ret_mean = mean;
	*ret_rstd = rstd;
}

/*
 * With h = (x - mean) rstd and g = dy weight:
 *   dx = rstd (g - h avg(g h)), LayerNorm also - rstd avg(g); dweight += dy h; dbias += dy
 * dbias NULL: not wanted. dx may be dy.
 */
MFK_INLINE void mfk_norm_row_backward(bool layernorm, bool zero_centered, int64_t n, const float *x,
				      float mean, float rstd, const float *weight, const float *dy,
				      float *dx, float *dweight, float *dbias)
{
	float one = zero_centered ? 1 : 0, gh = 0, g = 0;

#pragma omp simd reduction(+ : gh, g)
	for (int64_t i = 0; i < n; i++) {
		float w = dy[i] * (weight[i] + one);

		g += w;
		gh += w * ((x[i] - mean) * rstd);
	}
	g = layernorm ? g / (float)n : 0;
	gh /= (float)n;
	if (dbias) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			dbias[i] += dy[i];
	}
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float h = (x[i] - mean) * rstd, d = dy[i];

		dweight[i] += d * h;
		dx[i] = rstd * (d * (weight[i] + one) - g - h * gh);
	}
}

#endif
