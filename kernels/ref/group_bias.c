/* Biases of experts, of rows that are sorted by expert. */
#include "kernels/ref/ref_i.h"

/* The group of a row; there is one. */
static int64_t group_of(const struct mfk_group_bias *a, int64_t row)
{
	int64_t low = 0, high = a->groups;

	while (high - low > 1) {
		const int64_t middle = (low + high) / 2;

		if (a->offsets[middle] <= row)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static const float *bias_of(const struct mfk_group_bias *a, int64_t row, float *buf)
{
	return mfk_load(a->dtype, a->bias, group_of(a, row) * a->stride, a->cols, buf);
}

MFK_SIMD static void add(float *y, const float *x, const float *bias, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = x[i] + scale * bias[i];
}

MFK_SIMD static float product(const float *x, const float *y, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += x[i] * y[i];
	return sum;
}

static void add_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_group_bias *a = arg;
	const int64_t n = a->cols;

	for (int64_t row = begin; row < end; row++) {
		const float *bias = bias_of(a, row, scratch);
		const float *x = mfk_load(a->dtype, a->y, row * n, n, scratch + n);
		float *y = mfk_begin(a->dtype, a->y, row * n, scratch + n);

		add(y, x, bias, a->scale ? a->scale[row] : 1, n);
		mfk_end(a->dtype, a->y, row * n, n, y);
	}
}

static void dscale_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_group_bias *a = arg;
	const int64_t n = a->cols;

	for (int64_t row = begin; row < end; row++)
		a->dscale[row] += product(mfk_load(a->dtype, a->dy, row * n, n, scratch + n),
					  bias_of(a, row, scratch), n);
}

static int64_t rows_of(const struct mfk_group_bias *a)
{
	return a->offsets[a->groups];
}

void mfk_ref_group_bias(struct mfk_ctx *c, const struct mfk_group_bias *a)
{
	mfk_parallel(c, rows_of(a), mfk_row_grain(a->cols), 2 * (size_t)a->cols, add_part, a);
}

void mfk_ref_group_bias_backward(struct mfk_ctx *c, const struct mfk_group_bias *a)
{
	if (a->dscale)
		mfk_parallel(c, rows_of(a), mfk_row_grain(a->cols), 2 * (size_t)a->cols,
			     dscale_part, a);
	for (int64_t g = 0; g < a->groups; g++) {
		const int64_t first = a->offsets[g];

		mfk_add_rows(c, a->dtype, a->grad, mfk_at(a->grad, a->dbias, g * a->stride),
			     mfk_at(a->dtype, a->dy, first * a->cols),
			     a->scale ? a->scale + first : NULL, a->offsets[g + 1] - first,
			     a->cols);
	}
}
