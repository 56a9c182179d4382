/*
 * Rows of tokens to experts and back.
 *
 * Choices are sorted by counting: a block has an expert, and walks through all choices twice, first
 * to count its own, then to give them places. Choices are small compared with rows, so this is
 * short.
 */
#include "kernels/cuda/base/operations.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#define SORTERS 1024 /* threads */
#define EACH	4    /* choices of a thread, one after the other */
#define FULL	0xffffffffu
#define BYTE	256

/* Counts the thread's choices in the tile from `base` on that are expert e's. If e follows the last
 * expert, counts those that were dropped. mine: which ones they are. */
static __device__ __forceinline__ int count_tile(const mfk_dispatch &a, int64_t choices,
						 int64_t base, int e, bool mine[EACH])
{
	int count = 0;

#pragma unroll
	for (int k = 0; k < EACH; k++) {
		int64_t i = base + threadIdx.x * EACH + k;

		mine[k] = i < choices && (a.expert[i] == e || (e == a.experts && a.expert[i] < 0));
		count += mine[k];
	}
	return count;
}

static __global__ void __launch_bounds__(SORTERS) count_kernel(mfk_dispatch a, int64_t choices)
{
	__shared__ int room[SORTERS / 32];
	int e = blockIdx.x, count = 0;
	bool mine[EACH];

	for (int64_t base = 0; base < choices; base += SORTERS * EACH)
		count += count_tile(a, choices, base, e, mine);
	count = row_sum(count, room);
	if (threadIdx.x == 0)
		a.offsets[e + 1] = count;
}

/* One thread: counts become places. */
static __global__ void offsets_kernel(mfk_dispatch a)
{
	int64_t sum = 0;

	a.offsets[0] = 0;
	for (int64_t e = 0; e < a.experts; e++) {
		int64_t count = a.offsets[e + 1];

		if (a.totals)
			a.totals[e] += static_cast<int32_t>(count);
		sum += count;
		a.offsets[e + 1] = sum;
	}
}

/* The sum of counts of the threads before this one; *all: of all threads. All of the block call
 * it. */
static __device__ int before(int count, int *room, int *all)
{
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = count, mine;

	for (int step = 1; step < 32; step *= 2) {
		int other = __shfl_up_sync(FULL, sum, step);

		sum += lane >= step ? other : 0;
	}
	__syncthreads();
	if (lane == 31)
		room[warp] = sum;
	__syncthreads();
	mine = sum - count;
	*all = 0;
	for (int i = 0; i < SORTERS / 32; i++) {
		mine += i < warp ? room[i] : 0;
		*all += room[i];
	}
	return mine;
}

static __global__ void __launch_bounds__(SORTERS) place_kernel(mfk_dispatch a, int64_t choices)
{
	__shared__ int room[SORTERS / 32];
	int e = blockIdx.x, all;
	int64_t next = a.offsets[e];
	bool mine[EACH];

	for (int64_t base = 0; base < choices; base += SORTERS * EACH) {
		int count = count_tile(a, choices, base, e, mine);
		int64_t r = next + before(count, room, &all);

#pragma unroll
		for (int k = 0; k < EACH; k++) {
			int64_t i = base + threadIdx.x * EACH + k;

			if (!mine[k])
				continue;
			a.row[i] = e < a.experts ? static_cast<int32_t>(r) : -1;
			a.from[r] = e < a.experts ? static_cast<int32_t>(i) : -1;
			a.row_prob[r++] = e < a.experts ? a.prob[i] : 0;
		}
		next += all;
	}
}

void mfk_cuda_dispatch(struct mfk_ctx *c, const struct mfk_dispatch *a)
{
	int64_t choices = a->tokens * a->top_k;
	unsigned experts = static_cast<unsigned>(a->experts);

	if (a->experts <= 0 || !mfk_cuda_begin(c))
		return;
	count_kernel<<<experts, SORTERS, 0, c->stream>>>(*a, choices);
	offsets_kernel<<<1, 1, 0, c->stream>>>(*a);
	place_kernel<<<experts + 1, SORTERS, 0, c->stream>>>(*a, choices);
	mfk_cuda_end(c, "dispatch");
}

/* ---- what experts have room for ---- */

/* The choice of expert e that token j of a group has made; -1: it has not. */
static __device__ __forceinline__ int64_t choice_of(const mfk_drop &a, int64_t group, int64_t j,
						    int e)
{
	int64_t position = group * (a.length / a.groups) + j / a.sequences;
	int64_t first = (j % a.sequences * a.length + position) * a.top_k;

	for (int64_t k = 0; k < a.top_k; k++)
		if (a.expert[first + k] == e)
			return first + k;
	return -1;
}

/* Greater numbers for greater probabilities; one for all, where the first ones are taken. */
static __device__ __forceinline__ unsigned key_of(const mfk_drop &a, int64_t choice)
{
	unsigned bits = __float_as_uint(a.by_prob ? a.prob[choice] : 0.f);

	return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The number whose choices are the last ones that there is room for, byte by byte from the highest
 * one on; *left: of how many of these. The expert has more choices than it takes. All of the block
 * call it. */
static __device__ unsigned find_least(const mfk_drop &a, int64_t group, int64_t tokens, int e,
				      int64_t *left)
{
	__shared__ unsigned counts[BYTE];
	unsigned found = 0, known = 0;

	*left = a.capacity;
	for (int shift = 24; shift >= 0; shift -= 8) {
		unsigned byte = BYTE - 1;

		__syncthreads();
		if (threadIdx.x < BYTE)
			counts[threadIdx.x] = 0;
		__syncthreads();
		for (int64_t j = threadIdx.x; j < tokens; j += SORTERS) {
			int64_t choice = choice_of(a, group, j, e);
			unsigned key = choice < 0 ? 0 : key_of(a, choice);

			if (choice >= 0 && (key & known) == found)
				atomicAdd(&counts[key >> shift & (BYTE - 1)], 1u);
		}
		__syncthreads();
		while (byte > 0 && *left > counts[byte])
			*left -= counts[byte--];
		found |= byte << shift;
		known |= (BYTE - 1u) << shift;
	}
	return found;
}

/* A block has an expert and a group of tokens. */
static __global__ void __launch_bounds__(SORTERS) drop_kernel(mfk_drop a)
{
	__shared__ int room[SORTERS / 32];
	int64_t group = blockIdx.y, tokens = a.sequences * (a.length / a.groups), left;
	int e = blockIdx.x, count = 0, all;
	unsigned least = 0;

	for (int64_t j = threadIdx.x; j < tokens; j += SORTERS)
		count += choice_of(a, group, j, e) >= 0;
	before(count, room, &all);
	left = all;
	if (all > a.capacity)
		least = find_least(a, group, tokens, e, &left);
	for (int64_t base = 0; base < tokens; base += SORTERS) {
		int64_t j = base + threadIdx.x;
		int64_t choice = j < tokens ? choice_of(a, group, j, e) : -1;
		unsigned key = choice < 0 ? 0 : key_of(a, choice);
		bool equal = choice >= 0 && key == least;
		int64_t rank = before(equal, room, &all);

		if (choice >= 0)
			a.taken[choice] = key > least || (equal && rank < left) ? e : -1;
		left -= all;
	}
}

void mfk_cuda_drop(struct mfk_ctx *c, const struct mfk_drop *a)
{
	dim3 blocks(static_cast<unsigned>(a->experts), static_cast<unsigned>(a->groups));

	if (a->experts <= 0 || a->groups <= 0 || !mfk_cuda_begin(c))
		return;
	drop_kernel<<<blocks, SORTERS, 0, c->stream>>>(*a);
	mfk_cuda_end(c, "drop");
}

/* ---- rows ---- */

template <typename T> static __global__ void gather_kernel(mfk_rows a, bool wide)
{
	int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
	const T *x;
	T *y = static_cast<T *>(a.y) + r * a.cols;

	if (r >= a.rows || a.map[r] < 0)
		return;
	x = static_cast<const T *>(a.x) + a.map[r] / a.each * a.cols;
	for (int64_t col = threadIdx.x * MFK_N; col < a.cols; col += blockDim.x * MFK_N)
		store_raw(y + col, load_raw(x + col, a.cols - col, wide), a.cols - col, wide);
}

template <typename T> static __global__ void combine_kernel(mfk_rows a, bool wide)
{
	int64_t r = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;

	if (r >= a.rows)
		return;
	for (int64_t col = threadIdx.x * MFK_N; col < a.cols; col += blockDim.x * MFK_N) {
		const int64_t left = a.cols - col;
		float sum[MFK_N] = {}, v[MFK_N];

		if (a.residual)
			load(sum, static_cast<const T *>(a.residual) + r * a.cols + col, left,
			     wide);
		for (int64_t k = 0; k < a.each; k++) {
			int64_t from = a.map[r * a.each + k];

			if (from < 0)
				continue;
			load(v, static_cast<const T *>(a.x) + from * a.cols + col, left, wide);
#pragma unroll
			for (int i = 0; i < MFK_N; i++)
				sum[i] += v[i];
		}
		store(static_cast<T *>(a.y) + r * a.cols + col, sum, left, wide);
	}
}

void mfk_cuda_gather(struct mfk_ctx *c, const struct mfk_rows *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);
	bool wide = aligned(a->x, a->y) && a->cols % MFK_N == 0;

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		gather_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, wide);
	});
	mfk_cuda_end(c, "gather");
}

void mfk_cuda_combine(struct mfk_ctx *c, const struct mfk_rows *a)
{
	row_block b = rows_of_threads(a->rows, a->cols);
	bool wide = aligned(a->x, a->y, a->residual) && a->cols % MFK_N == 0;

	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		combine_kernel<T><<<b.blocks, b.threads, 0, c->stream>>>(*a, wide);
	});
	mfk_cuda_end(c, "combine");
}
