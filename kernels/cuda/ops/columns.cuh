/* Sums of columns: gradients of weights and biases, first by blocks of rows, then over the blocks.
 */
#ifndef MFK_CUDA_COLUMNS_CUH
#define MFK_CUDA_COLUMNS_CUH

#include "kernels/cuda/base/vec.cuh"

#define SUM_WARPS 8 /* of a block that adds up rows: each has every eighth */

/*
 * to[cols] = the sum of rows [begin, end), each times weight(row): by a block of 32 x SUM_WARPS
 * threads, of the 256 columns that are block.x's. wide: rows allow 16-byte accesses.
 */
template <typename T, typename F>
static __device__ __forceinline__ void sum_rows(float *to, const T *rows, int64_t begin,
						int64_t end, int64_t cols, bool wide, F weight)
{
	__shared__ float sums[SUM_WARPS][32 * MFK_N + 4];
	int64_t col = (blockIdx.x * 32LL + threadIdx.x) * MFK_N;
	float sum[MFK_N] = {}, v[MFK_N];

	if (col < cols)
#pragma unroll 4
		for (int64_t row = begin + threadIdx.y; row < end; row += SUM_WARPS) {
			float w = weight(row);

			load(v, rows + row * cols + col, cols - col, wide);
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				sum[k] += w * v[k];
		}
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		sums[threadIdx.y][threadIdx.x * MFK_N + k] = sum[k];
	__syncthreads();
	for (int k = threadIdx.y; k < MFK_N; k += SUM_WARPS) {
		int mine = k * 32 + threadIdx.x;
		float all = 0;

		col = blockIdx.x * (32LL * MFK_N) + mine;
		for (int i = 0; i < SUM_WARPS; i++)
			all += sums[i][mine];
		if (col < cols)
			to[col] = all;
	}
}

/* to[cols] += sum over parts [count, cols], in the order of the parts. */
void mfk_cuda_add_columns(struct mfk_ctx *c, enum mfk_dtype type, void *to, const float *parts,
			  int64_t count, int64_t cols);

#endif
