/* Activations, alone or gated, and their gradients. */
#include "kernels/ref/math_i.h"

#define SQRT_2_OVER_PI 0.797884561f
#define INV_SQRT_2PI   0.398942280f
#define GELU_CUBIC     0.044715f
#define QUICK_GELU     1.702f

/*
 * Phi(x), the normal distribution, with e = e^(-x^2/2) at hand. e^(x^2/2) Phi(-|x|) is smooth: a
 * polynomial in t = 1 / (1 + 0.3 |x|) that is exact at Chebyshev's points of |x| < 7. Error 2e-7 of
 * the value there, also where it is small.
 */
MFK_INLINE float normal_cdf(float x, float e)
{
	float t = 1.0f / (1.0f + 0.3f * fabsf(x));
	float p = 0.0370636684f;
	float tail;

	p = p * t - 0.162817367f;
	p = p * t + 0.215652907f;
	p = p * t - 0.0617942538f;
	p = p * t + 0.132532626f;
	p = p * t + 0.0988452768f;
	p = p * t + 0.120894009f;
	p = p * t + 0.119623154f;
	tail = p * t * e;
	return x > 0 ? 1.0f - tail : tail;
}

/* f(x), and f'(x) if it is wanted. GELU's 0.5 (1 + tanh(u)) is sigmoid(2u). */
MFK_INLINE float activation(enum mfk_activation kind, float x, float *slope)
{
	float s, rest, e;

	switch (kind) {
	case MFK_GELU_TANH:
		s = mfk_sigmoid(2 * SQRT_2_OVER_PI * (x + GELU_CUBIC * x * x * x), &rest);
		*slope = s + x * s * rest * 2 * SQRT_2_OVER_PI * (1 + 3 * GELU_CUBIC * x * x);
		return x * s;
	case MFK_GELU_ERF:
		e = mfk_exp(-0.5f * x * x);
		s = normal_cdf(x, e);
		*slope = s + x * INV_SQRT_2PI * e;
		return x * s;
	case MFK_SILU:
		s = mfk_sigmoid(x, &rest);
		*slope = s + x * s * rest;
		return x * s;
	case MFK_RELU_SQUARED:
		s = x > 0 ? x : 0;
		*slope = 2 * s;
		return s * s;
	case MFK_QUICK_GELU:
		s = mfk_sigmoid(QUICK_GELU * x, &rest);
		*slope = s + x * s * rest * QUICK_GELU;
		return x * s;
	}
	return 0;
}

/* One loop for each kind, so that a loop knows its own. */
#define EACH_KIND(LOOP)                                                                            \
	switch (kind) {                                                                            \
	case MFK_GELU_TANH:                                                                        \
		LOOP(MFK_GELU_TANH);                                                               \
		break;                                                                             \
	case MFK_GELU_ERF:                                                                         \
		LOOP(MFK_GELU_ERF);                                                                \
		break;                                                                             \
	case MFK_SILU:                                                                             \
		LOOP(MFK_SILU);                                                                    \
		break;                                                                             \
	case MFK_RELU_SQUARED:                                                                     \
		LOOP(MFK_RELU_SQUARED);                                                            \
		break;                                                                             \
	case MFK_QUICK_GELU:                                                                       \
		LOOP(MFK_QUICK_GELU);                                                              \
		break;                                                                             \
	}

MFK_INLINE void forward_loop(enum mfk_activation kind, int64_t n, const float *x, const float *up,
			     float scale, float *y)
{
	float slope;

	if (up) {
#pragma omp simd private(slope)
		for (int64_t i = 0; i < n; i++)
			y[i] = activation(kind, x[i], &slope) * up[i] * scale;
	} else {
#pragma omp simd private(slope)
		for (int64_t i = 0; i < n; i++)
			y[i] = activation(kind, x[i], &slope) * scale;
	}
}

MFK_SIMD static void forward(enum mfk_activation kind, int64_t n, const float *x, const float *up,
			     float scale, float *y){
#define FORWARD(KIND) forward_loop(KIND, n, x, up, scale, y)
	EACH_KIND(FORWARD)}

/* Returns the gradient of scale: the sum of dy times the output without scale. */
MFK_INLINE float backward_loop(enum mfk_activation kind, int64_t n, const float *x, const float *up,
			       float scale, const float *dy, float *dx, float *dup)
{
	float sum = 0;

	if (up) {
#pragma omp simd reduction(+ : sum)
		for (int64_t i = 0; i < n; i++) {
			float slope, f = activation(kind, x[i], &slope), u = up[i], d = dy[i];

			sum += d * f * u;
			dx[i] = d * scale * u * slope;
			dup[i] = d * scale * f;
		}
	} else {
#pragma omp simd reduction(+ : sum)
		for (int64_t i = 0; i < n; i++) {
			float slope, f = activation(kind, x[i], &slope), d = dy[i];

			sum += d * f;
			dx[i] = d * scale * slope;
		}
	}
	return sum;
}

MFK_SIMD static float backward(enum mfk_activation kind, int64_t n, const float *x, const float *up,
			       float scale, const float *dy, float *dx, float *dup)
{
	float sum = 0;

#define BACKWARD(KIND) sum = backward_loop(KIND, n, x, up, scale, dy, dx, dup)
	EACH_KIND(BACKWARD)
	return sum;
}

static void act_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_act *a = arg;
	int64_t n = a->cols, width = a->gated ? 2 * n : n;

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->x, row * width, width, scratch);
		float *y = mfk_begin(a->dtype, a->y, row * n, scratch + 2 * n);

		forward(a->kind, n, x, a->gated ? x + n : NULL,
			a->row_scale ? a->row_scale[row] : 1, y);
		mfk_end(a->dtype, a->y, row * n, n, y);
	}
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_act *a = arg;
	int64_t n = a->cols, width = a->gated ? 2 * n : n;

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->x, row * width, width, scratch);
		const float *dy = mfk_load(a->dtype, a->dy, row * n, n, scratch + 2 * n);
		float *dx = mfk_begin(a->dtype, a->dx, row * width, scratch + 3 * n);
		float sum = backward(a->kind, n, x, a->gated ? x + n : NULL,
				     a->row_scale ? a->row_scale[row] : 1, dy, dx,
				     a->gated ? dx + n : NULL);

		mfk_end(a->dtype, a->dx, row * width, width, dx);
		if (a->drow_scale)
			a->drow_scale[row] = sum;
	}
}

void mfk_ref_act(struct mfk_ctx *c, const struct mfk_act *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols), 3 * (size_t)a->cols, act_part, a);
}

void mfk_ref_act_backward(struct mfk_ctx *c, const struct mfk_act *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols), 5 * (size_t)a->cols, backward_part, a);
}

void mfk_ref_gemm_act(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a)
{
	mfk_ref_gemm(c, g);
	mfk_ref_act(c, a);
}

void mfk_ref_gemm_act_backward(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a)
{
	mfk_ref_gemm(c, g);
	mfk_ref_act_backward(c, a);
}
