/* Gates of outputs, a row at a time. */
#include "kernels/ref/math_i.h"

/* f(x), and f'(x). */
MFK_INLINE float function(bool silu, float x, float *slope)
{
	float rest, s = mfk_sigmoid(x, &rest);

	*slope = silu ? s + x * s * rest : s * rest;
	return silu ? x * s : s;
}

MFK_INLINE void forward_loop(bool silu, int64_t n, const float *x, const float *gate, float *y)
{
	float slope;

#pragma omp simd private(slope)
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] * function(silu, gate[i], &slope);
}

MFK_INLINE void backward_loop(bool silu, int64_t n, const float *x, const float *gate, float *d,
			      float *dgate)
{
	float slope;

#pragma omp simd private(slope)
	for (int64_t i = 0; i < n; i++) {
		float f = function(silu, gate[i], &slope), dy = d[i];

		dgate[i] = dy * x[i] * slope;
		d[i] = dy * f;
	}
}

/* One loop for each function, so that a loop knows its own. */
MFK_SIMD static void forward(bool silu, int64_t n, const float *x, const float *gate, float *y)
{
	if (silu)
		forward_loop(true, n, x, gate, y);
	else
		forward_loop(false, n, x, gate, y);
}

/* d is dy, and becomes dx. */
MFK_SIMD static void backward(bool silu, int64_t n, const float *x, const float *gate, float *d,
			      float *dgate)
{
	if (silu)
		backward_loop(true, n, x, gate, d, dgate);
	else
		backward_loop(false, n, x, gate, d, dgate);
}

static void gate_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_gate *a = arg;
	const int64_t n = a->cols;

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->x, row * n, n, scratch);
		const float *gate = mfk_load(a->dtype, a->gate, row * a->ld, n, scratch + n);
		float *y = mfk_begin(a->dtype, a->y, row * n, scratch + 2 * n);

		forward(a->silu, n, x, gate, y);
		mfk_end(a->dtype, a->y, row * n, n, y);
	}
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_gate *a = arg;
	const int64_t n = a->cols;
	float *d = scratch + 2 * n;

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->x, row * n, n, scratch);
		const float *gate = mfk_load(a->dtype, a->gate, row * a->ld, n, scratch + n);
		float *dgate = mfk_begin(a->dtype, a->dgate, row * a->ld, scratch + 3 * n);

		mfk_to_f32(a->dtype, mfk_at(a->dtype, a->dy, row * n), n, d);
		backward(a->silu, n, x, gate, d, dgate);
		mfk_end(a->dtype, a->dgate, row * a->ld, n, dgate);
		mfk_from_f32(a->dtype, d, n, mfk_at(a->dtype, a->dx, row * n));
	}
}

void mfk_ref_gate(struct mfk_ctx *c, const struct mfk_gate *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols), 3 * (size_t)a->cols, gate_part, a);
}

void mfk_ref_gate_backward(struct mfk_ctx *c, const struct mfk_gate *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols), 4 * (size_t)a->cols, backward_part, a);
}
