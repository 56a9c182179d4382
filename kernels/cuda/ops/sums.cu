/*
 * Sums of all elements, as doubles. The number of blocks is the same on every GPU, and so is which
 * elements a thread adds up: the result has the same bits everywhere.
 */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#define BLOCKS 1024

static __device__ __forceinline__ void keep(double sum, double *parts)
{
	__shared__ double room[MFK_THREADS / 32];

	sum = row_sum(sum, room);
	if (threadIdx.x == 0)
		parts[blockIdx.x] = sum;
}

static __global__ void squares_kernel(enum mfk_dtype t, const void *x, int64_t count, double *parts,
				      bool wide)
{
	double sum = 0;

#pragma unroll 2
	for (int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * MFK_N;
	     i < count; i += static_cast<int64_t>(BLOCKS) * MFK_THREADS * MFK_N) {
		float v[MFK_N];

		load_any(v, t, x, i, count - i, wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			sum += static_cast<double>(v[k]) * v[k];
	}
	keep(sum, parts);
}

static __global__ void zeros_kernel(enum mfk_dtype t, const void *x, int64_t count, double *parts,
				    bool wide)
{
	int64_t zeros = 0;

	for (int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * MFK_N;
	     i < count; i += static_cast<int64_t>(BLOCKS) * MFK_THREADS * MFK_N) {
		float v[MFK_N];

		load_any(v, t, x, i, count - i, wide);
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			zeros += k < count - i && v[k] == 0;
	}
	keep(static_cast<double>(zeros), parts);
}

static __global__ void products_kernel(const float *x, const float *weight, int64_t count,
				       double *parts)
{
	double sum = 0;

	for (int64_t i = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x; i < count;
	     i += static_cast<int64_t>(BLOCKS) * MFK_THREADS)
		sum += static_cast<double>(x[i]) * (weight ? weight[i] : 1.f);
	keep(sum, parts);
}

/* One block: to[0] += the parts; with flag, to[1] = 1 if they are no number. */
static __global__ void add_parts_kernel(double *to, const double *parts, bool flag)
{
	__shared__ double room[MFK_THREADS / 32];
	double sum = 0;

	for (int i = threadIdx.x; i < BLOCKS; i += MFK_THREADS)
		sum += parts[i];
	sum = row_sum(sum, room);
	if (threadIdx.x)
		return;
	to[0] += sum;
	/* The square of no finite float is infinite as double. */
	if (flag && !isfinite(sum))
		to[1] = 1;
}

static double *parts_of(struct mfk_ctx *c)
{
	return static_cast<double *>(mfk_cuda_scratch(c, BLOCKS * sizeof(double), "a sum"));
}

void mfk_cuda_sum_squares(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			  double *sums)
{
	double *parts;

	if (count <= 0 || !mfk_cuda_begin(c) || !(parts = parts_of(c)))
		return;
	squares_kernel<<<BLOCKS, MFK_THREADS, 0, c->stream>>>(dtype, x, count, parts, aligned(x));
	add_parts_kernel<<<1, MFK_THREADS, 0, c->stream>>>(sums, parts, true);
	mfk_cuda_end(c, "sum of squares");
}

void mfk_cuda_count_zeros(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			  double *zeros)
{
	double *parts;

	if (count <= 0 || !mfk_cuda_begin(c) || !(parts = parts_of(c)))
		return;
	zeros_kernel<<<BLOCKS, MFK_THREADS, 0, c->stream>>>(dtype, x, count, parts, aligned(x));
	add_parts_kernel<<<1, MFK_THREADS, 0, c->stream>>>(zeros, parts, false);
	mfk_cuda_end(c, "count of zeros");
}

void mfk_cuda_weighted_sum(struct mfk_ctx *c, const float *x, const float *weight, int64_t count,
			   double *sum)
{
	double *parts;

	if (count <= 0 || !mfk_cuda_begin(c) || !(parts = parts_of(c)))
		return;
	products_kernel<<<BLOCKS, MFK_THREADS, 0, c->stream>>>(x, weight, count, parts);
	add_parts_kernel<<<1, MFK_THREADS, 0, c->stream>>>(sum, parts, false);
	mfk_cuda_end(c, "weighted sum");
}
