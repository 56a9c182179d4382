/*
 * Biases of experts, of rows that are sorted by expert. How many rows an expert has is known to the
 * device alone: a gradient is added up in a fixed number of parts of each expert's rows.
 */
#include "kernels/cuda/base/operations.h"
#include "kernels/cuda/ops/columns.cuh"
#include "kernels/cuda/base/reduce.cuh"

/* The group of a row; there is one. */
static __device__ __forceinline__ int64_t group_of(const mfk_group_bias &a, int64_t row)
{
	int64_t low = 0, high = a.groups;

	while (high - low > 1) {
		int64_t middle = (low + high) / 2;

		if (a.offsets[middle] <= row)
			low = middle;
		else
			high = middle;
	}
	return low;
}

template <typename T> static __global__ void add_kernel(mfk_group_bias a, bool wide)
{
	int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
	const T *bias;
	T *y = static_cast<T *>(a.y) + row * a.cols;
	float scale;

	if (row >= a.offsets[a.groups])
		return;
	bias = static_cast<const T *>(a.bias) + group_of(a, row) * a.stride;
	scale = a.scale ? a.scale[row] : 1.f;
	for (int64_t col = threadIdx.x * MFK_N; col < a.cols; col += blockDim.x * MFK_N) {
		float v[MFK_N], b[MFK_N];

		load(v, y + col, a.cols - col, wide);
		load(b, bias + col, a.cols - col, wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			v[k] += scale * b[k];
		store(y + col, v, a.cols - col, wide);
	}
}

template <typename T> static __global__ void dscale_kernel(mfk_group_bias a, bool wide)
{
	__shared__ float room[MFK_THREADS / 32];
	int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
	bool exists = row < a.offsets[a.groups]; /* all threads stay for the sum */
	int64_t cols = exists ? a.cols : 0, group = exists ? group_of(a, row) : 0;
	const T *bias = static_cast<const T *>(a.bias) + group * a.stride;
	const T *dy = static_cast<const T *>(a.dy) + row * a.cols;
	float sum = 0;

	for (int64_t col = threadIdx.x * MFK_N; col < cols; col += blockDim.x * MFK_N) {
		float d[MFK_N], b[MFK_N];

		load(d, dy + col, cols - col, wide);
		load(b, bias + col, cols - col, wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			sum += d[k] * b[k];
	}
	sum = row_sum(sum, room);
	if (threadIdx.x == 0 && exists)
		a.dscale[row] += sum;
}

/* Block (x, y, z) adds up part y of the rows of group z, of 256 columns: sums are [groups][parts]
 * [cols]. */
template <typename T>
static __global__ void sum_kernel(mfk_group_bias a, float *sums, int64_t parts, bool wide)
{
	int64_t group = blockIdx.z, first = a.offsets[group];
	int64_t rows = a.offsets[group + 1] - first, each = (rows + parts - 1) / parts;
	int64_t begin = first + blockIdx.y * each;

	sum_rows(sums + (group * parts + blockIdx.y) * a.cols, static_cast<const T *>(a.dy), begin,
		 min(first + rows, begin + each), a.cols, wide,
		 [&](int64_t row) { return a.scale ? a.scale[row] : 1.f; });
}

/* A thread has a column of a group. */
static __global__ void add_sums_kernel(mfk_group_bias a, const float *sums, int64_t parts)
{
	int64_t col = blockIdx.x * static_cast<int64_t>(MFK_THREADS) + threadIdx.x;
	int64_t group = blockIdx.y, to = group * a.stride + col;
	float sum = 0;

	if (col >= a.cols || a.offsets[group] == a.offsets[group + 1])
		return;
	for (int64_t i = 0; i < parts; i++)
		sum += sums[(group * parts + i) * a.cols + col];
	store_one(a.grad, a.dbias, to, load_one(a.grad, a.dbias, to) + sum);
}

/* Rows of biases and of the rest allow 16-byte accesses. */
static bool is_wide(const struct mfk_group_bias *a, const void *rows)
{
	return aligned(a->bias, rows) && a->cols % MFK_N == 0 && a->stride % MFK_N == 0;
}

void mfk_cuda_group_bias(struct mfk_ctx *c, const struct mfk_group_bias *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		add_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, is_wide(a, a->y));
	});
	mfk_cuda_end(c, "biases of experts");
}

void mfk_cuda_group_bias_backward(struct mfk_ctx *c, const struct mfk_group_bias *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);
	unsigned groups = static_cast<unsigned>(a->groups);
	int64_t across = ceil_div(a->cols, 32 * MFK_N), parts;
	float *sums;

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	/* Eight blocks a multiprocessor, but at least 32 rows for a block if groups are alike. */
	parts = min(ceil_div(8LL * c->device->multiprocessors, across * a->groups),
		    ceil_div(a->rows, 32 * a->groups));
	sums = static_cast<float *>(mfk_cuda_scratch(
		c, static_cast<size_t>(a->groups * parts * a->cols) * sizeof(float),
		"gradients of biases of experts"));
	if (!sums)
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		if (a->dscale)
			dscale_kernel<T>
				<<<b.blocks, b.threads, 0, c->stream>>>(*a, is_wide(a, a->dy));
		sum_kernel<T><<<dim3(static_cast<unsigned>(across), static_cast<unsigned>(parts),
				     groups),
				dim3(32, SUM_WARPS), 0, c->stream>>>(
			*a, sums, parts, aligned(a->dy) && a->cols % MFK_N == 0);
	});
	add_sums_kernel<<<dim3(static_cast<unsigned>(ceil_div(a->cols, MFK_THREADS)), groups),
			  MFK_THREADS, 0, c->stream>>>(*a, sums, parts);
	mfk_cuda_end(c, "gradients of biases of experts");
}
