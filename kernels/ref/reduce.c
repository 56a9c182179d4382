/* Sums: over the rows of a matrix, and of all elements of a vector. */
#include "kernels/ref/ref_i.h"

#include <math.h>
#include <string.h>

#define BLOCKS_MAX 32

int64_t mfk_block_rows(int64_t rows, int64_t cols)
{
	int64_t least = mfk_row_grain(cols), even = (rows + BLOCKS_MAX - 1) / BLOCKS_MAX;

	return even > least ? even : least;
}

MFK_SIMD static void add_row(float *sum, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		sum[i] += x[i];
}

struct blocks {
	enum mfk_dtype type;
	void *base;
	const float *sums;
	int64_t blocks, stride;
};

#define COLUMNS 1024

static void add_columns(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct blocks *b = arg;
	int64_t n = end - begin;
	float *buf = scratch + COLUMNS;

	memcpy(scratch, b->sums + begin, (size_t)n * sizeof(float));
	for (int64_t i = 1; i < b->blocks; i++)
		add_row(scratch, b->sums + i * b->stride + begin, n);
	mfk_add_to(b->type, b->base, begin, n, scratch, buf);
}

void mfk_add_blocks(struct mfk_ctx *c, enum mfk_dtype type, void *base, int64_t cols,
		    const float *sums, int64_t blocks, int64_t stride)
{
	struct blocks b = {type, base, sums, blocks, stride};

	if (base)
		mfk_parallel(c, cols, COLUMNS, 2 * COLUMNS, add_columns, &b);
}

/* ---- bias gradients ---- */

struct rows {
	enum mfk_dtype dtype;
	const void *dy;
	const float *scale;
	int64_t cols, block;
	float *sums;
};

MFK_SIMD static void add_scaled_row(float *sum, const float *x, float scale, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		sum[i] += scale * x[i];
}

static void sum_block(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct rows *r = arg;
	float *sum = r->sums + begin / r->block * r->cols;

	memset(sum, 0, (size_t)r->cols * sizeof(float));
	for (int64_t i = begin; i < end; i++) {
		const float *dy = mfk_load(r->dtype, r->dy, i * r->cols, r->cols, scratch);

		if (r->scale)
			add_scaled_row(sum, dy, r->scale[i], r->cols);
		else
			add_row(sum, dy, r->cols);
	}
}

void mfk_add_rows(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *base,
		  const void *dy, const float *scale, int64_t rows, int64_t cols)
{
	int64_t block = mfk_block_rows(rows, cols), blocks = (rows + block - 1) / block;
	struct rows r = {dtype, dy,    scale,
			 cols,	block, mfk_sums(c, (size_t)(blocks * cols) * sizeof(float))};

	if (!r.sums || rows <= 0)
		return;
	mfk_parallel(c, rows, block, (size_t)cols, sum_block, &r);
	mfk_add_blocks(c, grad, base, cols, r.sums, blocks, cols);
}

void mfk_ref_bias_backward(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *db,
			   const void *dy, int64_t rows, int64_t cols)
{
	mfk_add_rows(c, dtype, grad, db, dy, NULL, rows, cols);
}

/* ---- sums of vectors, in doubles ---- */

struct vector {
	enum mfk_dtype dtype;
	const void *x;
	const float *weight;
	double *sums; /* of each part */
};

MFK_SIMD static double squares(const float *x, int64_t n)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	return sum;
}

MFK_SIMD static double products(const float *x, const float *weight, int64_t n)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * weight[i];
	return sum;
}

MFK_SIMD static double sum_of(const float *x, int64_t n)
{
	double sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += x[i];
	return sum;
}

MFK_SIMD static int64_t zeros_of(const float *x, int64_t n)
{
	int64_t count = 0;

#pragma omp simd reduction(+ : count)
	for (int64_t i = 0; i < n; i++)
		count += x[i] == 0;
	return count;
}

static void squares_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct vector *v = arg;

	v->sums[begin / MFK_GRAIN] =
		squares(mfk_load(v->dtype, v->x, begin, end - begin, scratch), end - begin);
}

static void zeros_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct vector *v = arg;

	v->sums[begin / MFK_GRAIN] = (double)zeros_of(
		mfk_load(v->dtype, v->x, begin, end - begin, scratch), end - begin);
}

static void products_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct vector *v = arg;
	const float *x = (const float *)v->x + begin;

	(void)scratch;
	v->sums[begin / MFK_GRAIN] =
		v->weight ? products(x, v->weight + begin, end - begin) : sum_of(x, end - begin);
}

static double sum_parts(struct mfk_ctx *c, struct vector *v, int64_t count, mfk_part *part)
{
	int64_t parts = (count + MFK_GRAIN - 1) / MFK_GRAIN;
	double sum = 0;

	v->sums = mfk_sums(c, (size_t)parts * sizeof(double));
	if (!v->sums)
		return 0;
	mfk_parallel(c, count, MFK_GRAIN, mfk_is_exact(v->dtype) ? 0 : MFK_GRAIN, part, v);
	for (int64_t i = 0; i < parts && !c->failed; i++)
		sum += v->sums[i];
	return sum;
}

void mfk_ref_sum_squares(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			 double *sums)
{
	struct vector v = {.dtype = dtype, .x = x};
	double sum = sum_parts(c, &v, count, squares_part);

	sums[0] += sum;
	/* The square of no finite float is infinite as double. */
	if (!isfinite(sum))
		sums[1] = 1;
}

void mfk_ref_count_zeros(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			 double *zeros)
{
	struct vector v = {.dtype = dtype, .x = x};

	*zeros += sum_parts(c, &v, count, zeros_part);
}

void mfk_ref_weighted_sum(struct mfk_ctx *c, const float *x, const float *weight, int64_t count,
			  double *sum)
{
	struct vector v = {.dtype = MFK_F32, .x = x, .weight = weight};

	*sum += sum_parts(c, &v, count, products_part);
}
