/* LayerNorm and RMSNorm of rows, with the sum of the residual stream before them. */
#include "kernels/ref/norm_i.h"

#include <string.h>

MFK_SIMD static void add(const float *a, const float *b, float *y, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

MFK_SIMD static void forward(const struct mfk_norm *a, const float *x, const float *weight,
			     const float *bias, float *y, float *mean, float *rstd)
{
	mfk_norm_row(a->layernorm, a->zero_centered, a->eps, a->cols, x, weight, bias, y, mean,
		     rstd);
}

/* The row that is normalised: x, or the sum as it is stored. */
static const float *input_row(const struct mfk_norm *a, int64_t at, float *buf, float *other)
{
	const float *x = mfk_load(a->dtype, a->x, at, a->cols, buf);
	float *sum;

	if (!a->residual)
		return x;
	sum = mfk_begin(a->dtype, a->sum, at, buf);
	add(x, mfk_load(a->dtype, a->residual, at, a->cols, other), sum, a->cols);
	mfk_end(a->dtype, a->sum, at, a->cols, sum);
	return mfk_load(a->dtype, a->sum, at, a->cols, buf);
}

static void norm_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_norm *a = arg;
	int64_t n = a->cols;
	const float *weight = mfk_load(a->dtype, a->weight, 0, n, scratch);
	const float *bias = a->bias ? mfk_load(a->dtype, a->bias, 0, n, scratch + n) : NULL;

	for (int64_t row = begin; row < end; row++) {
		const float *x = input_row(a, row * n, scratch + 2 * n, scratch + 3 * n);
		float *y = mfk_begin(a->dtype, a->y, row * n, scratch + 3 * n);
		float mean;

		forward(a, x, weight, bias, y, &mean, &a->rstd[row]);
		mfk_end(a->dtype, a->y, row * n, n, y);
		if (a->layernorm)
			a->mean[row] = mean;
	}
}

void mfk_ref_norm(struct mfk_ctx *c, const struct mfk_norm *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(a->cols), 4 * (size_t)a->cols, norm_part, a);
}

/* ---- backward ---- */

struct backward {
	const struct mfk_norm_backward *a;
	int64_t block;
	float *sums; /* of each block of rows: dweight, dbias */
};

MFK_SIMD static void backward(const struct mfk_norm_backward *a, int64_t row, const float *x,
			      const float *weight, const float *dy, float *dx, float *dweight,
			      float *dbias)
{
	mfk_norm_row_backward(a->layernorm, a->zero_centered, a->cols, x,
			      a->layernorm ? a->mean[row] : 0, a->rstd[row], weight, dy, dx,
			      dweight, dbias);
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct backward *b = arg;
	const struct mfk_norm_backward *a = b->a;
	int64_t n = a->cols;
	const float *weight = mfk_load(a->dtype, a->weight, 0, n, scratch);
	float *x_buf = scratch + n, *dy_buf = scratch + 2 * n, *dx = scratch + 3 * n;
	float *dweight = b->sums + begin / b->block * 2 * n;

	memset(dweight, 0, 2 * (size_t)n * sizeof(float));
	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->x, row * n, n, x_buf);
		const float *dy = mfk_load(a->dtype, a->dy, row * n, n, dy_buf);
		float *out;

		backward(a, row, x, weight, dy, dx, dweight, a->dbias ? dweight + n : NULL);
		out = mfk_begin(a->dtype, a->dx, row * n, dx);
		if (a->dresidual)
			add(dx, mfk_load(a->dtype, a->dresidual, row * n, n, x_buf), out, n);
		else if (out != dx)
			memcpy(out, dx, (size_t)n * sizeof(float));
		mfk_end(a->dtype, a->dx, row * n, n, out);
	}
}

void mfk_ref_norm_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a)
{
	int64_t block = mfk_block_rows(a->rows, a->cols), blocks = (a->rows + block - 1) / block;
	struct backward b = {a, block, mfk_sums(c, (size_t)(blocks * 2 * a->cols) * sizeof(float))};

	if (!b.sums || a->rows <= 0)
		return;
	mfk_parallel(c, a->rows, block, 4 * (size_t)a->cols, backward_part, &b);
	mfk_add_blocks(c, a->grad, a->dweight, a->cols, b.sums, blocks, 2 * a->cols);
	mfk_add_blocks(c, a->grad, a->dbias, a->cols, b.sums + a->cols, blocks, 2 * a->cols);
}
