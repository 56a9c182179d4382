/* Gradients of biases, and the second half of those of norms. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/ops/columns.cuh"

#define ROWS 32 /* threads of a column; thread i adds up the rows i, i + 32, ... */

static __global__ void add_columns_kernel(enum mfk_dtype type, void *to, const float *parts,
					  int64_t count, int64_t cols)
{
	__shared__ float sums[ROWS][32];
	int64_t col = blockIdx.x * 32LL + threadIdx.x;
	float sum = 0;

	if (col < cols)
#pragma unroll 4
		for (int64_t i = threadIdx.y; i < count; i += ROWS)
			sum += parts[i * cols + col];
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y || col >= cols)
		return;
	sum = 0;
	for (int i = 0; i < ROWS; i++)
		sum += sums[i][threadIdx.x];
	store_one(type, to, col, load_one(type, to, col) + sum);
}

void mfk_cuda_add_columns(struct mfk_ctx *c, enum mfk_dtype type, void *to, const float *parts,
			  int64_t count, int64_t cols)
{
	if (cols <= 0 || !mfk_cuda_begin(c))
		return;
	add_columns_kernel<<<static_cast<unsigned>(ceil_div(cols, 32)), dim3(32, ROWS), 0,
			     c->stream>>>(type, to, parts, count, cols);
	mfk_cuda_end(c, "a sum of columns");
}

/* Block (x, y) adds up rows [y rows_each, (y + 1) rows_each) of 256 columns. */
template <typename T>
static __global__ void bias_kernel(float *parts, const T *dy, int64_t rows, int64_t cols,
				   int64_t rows_each, bool wide)
{
	sum_rows(parts + blockIdx.y * cols, dy, blockIdx.y * rows_each,
		 min(rows, (blockIdx.y + 1) * rows_each), cols, wide, [](int64_t) { return 1.f; });
}

void mfk_cuda_bias_backward(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *db,
			    const void *dy, int64_t rows, int64_t cols)
{
	int64_t across = ceil_div(cols, 32 * MFK_N), down, rows_each;
	float *parts;

	if (rows <= 0 || cols <= 0 || !mfk_cuda_begin(c))
		return;
	/* Eight blocks a multiprocessor, but at least 32 rows for a block. */
	down = ceil_div(8LL * c->device->multiprocessors, across);
	rows_each = ceil_div(rows, down);
	if (rows_each < 32)
		rows_each = 32;
	down = ceil_div(rows, rows_each);
	parts = static_cast<float *>(mfk_cuda_scratch(
		c, static_cast<size_t>(down * cols) * sizeof(float), "gradient of a bias"));
	if (!parts)
		return;
	with_type(dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		bias_kernel<<<dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)),
			      dim3(32, SUM_WARPS), 0, c->stream>>>(
			parts, static_cast<const T *>(dy), rows, cols, rows_each,
			aligned(dy) && cols % MFK_N == 0);
	});
	mfk_cuda_end(c, "gradient of a bias");
	mfk_cuda_add_columns(c, grad, db, parts, down, cols);
}
