/* Sums and maxima over a block's threads, in an order that depends on nothing but their number. */
#ifndef MFK_CUDA_REDUCE_CUH
#define MFK_CUDA_REDUCE_CUH

#include <stdint.h>

/* Over neighbours of lanes: groups of width lanes, a power of two. All of the warp call it. */
template <typename T> static __device__ __forceinline__ T lane_sum(T x, int width)
{
	for (int i = width / 2; i > 0; i /= 2)
		x += __shfl_xor_sync(0xffffffffu, x, i);
	return x;
}

static __device__ __forceinline__ float lane_max(float x)
{
	for (int i = 16; i > 0; i /= 2)
		x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
	return x;
}

/*
 * Over the threads of one row of the block (blockDim.x of them, a power of two or a multiple of
 * 32): each gets the sum. room: shared, one T for each warp of the block, which nobody reads any
 * more. All of the block call it.
 */
template <typename T> static __device__ __forceinline__ T row_sum_once(T x, T *room)
{
	unsigned width = blockDim.x, warps = width / 32;
	unsigned warp = threadIdx.x / 32;
	T *mine = room + threadIdx.y * warps;
	T all = 0;

	if (width < 32)
		return lane_sum(x, width);
	x = lane_sum(x, 32);
	if (warps == 1)
		return x;
	if (threadIdx.x % 32 == 0)
		mine[warp] = x;
	__syncthreads();
	for (unsigned i = 0; i < warps; i++)
		all += mine[i];
	return all;
}

/* The same; the room may be used again and again. */
template <typename T> static __device__ __forceinline__ T row_sum(T x, T *room)
{
	if (blockDim.x > 32)
		__syncthreads();
	return row_sum_once(x, room);
}

#endif
