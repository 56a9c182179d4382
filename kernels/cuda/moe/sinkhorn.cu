/*
 * Keys by which tokens choose all experts alike. How many turns it takes is found out on the way,
 * so one block does it for a group of tokens: their numbers are small compared with rows.
 *
 * Neighbours of lanes have a token, each some of its experts; in every turn a thread sees the same
 * elements, so that nothing waits but for the sums over tokens.
 */
#include "kernels/cuda/base/operations.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>
#include <math.h>

#define THREADS_MOST 1024
#define ROOM_MOST    (49152 - THREADS_MOST / 32 * 4) /* bytes of shared memory, without sums' */

/* What a thread knows. */
struct place {
	int width, lane;	     /* of those that have a token */
	int64_t tokens, first, step; /* the thread's: first, first + step, ... */
	float *sums;	    /* shared, [step][experts]: over a token's place in the block */
	float *d1, *before; /* shared, [experts]; before: those of the turn before */
};

static __device__ place place_of(const mfk_sinkhorn &a, float *room, int width)
{
	place p;

	p.width = width;
	p.lane = threadIdx.x % width;
	p.tokens = a.sequences * (a.length / a.groups);
	p.first = threadIdx.x / width;
	p.step = blockDim.x / width;
	p.d1 = room;
	p.before = room + a.experts;
	p.sums = room + 2 * a.experts;
	return p;
}

/* Where the logits, or the keys, of a group's token j begin. */
static __device__ __forceinline__ int64_t row_of(const mfk_sinkhorn &a, int64_t j)
{
	int64_t position = blockIdx.x * (a.length / a.groups) + j / a.sequences;

	return (j % a.sequences * a.length + position) * a.experts;
}

/* d0 of token j. All of a warp call it; beyond the last token it is not used. */
static __device__ float d0_of(const mfk_sinkhorn &a, const place &p, int64_t j, const float *d1)
{
	const float *key = a.key + row_of(a, j);
	float sum = 0;

	for (int64_t e = p.lane; e < a.experts && j < p.tokens; e += p.width)
		sum += d1[e] * key[e];
	sum = lane_sum(sum, p.width);
	return 1.f / static_cast<float>(p.tokens) / (sum + MFK_SINKHORN_EPS);
}

template <typename T> static __device__ void begin(const mfk_sinkhorn &a, const place &p)
{
	const T *logits = static_cast<const T *>(a.logits);

	for (int64_t j = p.first; j < p.tokens; j += p.step)
		for (int64_t e = p.lane; e < a.experts; e += p.width)
			a.key[row_of(a, j) + e] = expf(to_float(logits[row_of(a, j) + e]));
	for (int64_t e = threadIdx.x; e < a.experts; e += blockDim.x)
		p.d1[e] = 1;
	__syncthreads();
}

/* Returns the mean of d1's changes, to all threads. */
static __device__ float turn(const mfk_sinkhorn &a, const place &p, float *room)
{
	float *sums = p.sums + p.first * a.experts, change = 0;

	for (int64_t e = p.lane; e < a.experts; e += p.width)
		sums[e] = 0;
	for (int64_t base = 0; base < p.tokens; base += p.step) {
		int64_t j = base + p.first;
		float d0 = d0_of(a, p, j, p.d1);

		for (int64_t e = p.lane; e < a.experts && j < p.tokens; e += p.width)
			sums[e] += d0 * a.key[row_of(a, j) + e];
	}
	__syncthreads();
	for (int64_t e = threadIdx.x; e < a.experts; e += blockDim.x) {
		float sum = 0;

		for (int64_t i = 0; i < p.step; i++)
			sum += p.sums[i * a.experts + e];
		p.before[e] = p.d1[e];
		p.d1[e] = 1.f / static_cast<float>(a.experts) / (sum + MFK_SINKHORN_EPS);
		change += fabsf(p.before[e] - p.d1[e]);
	}
	return row_sum(change, room) / static_cast<float>(a.experts);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS_MOST) sinkhorn_kernel(mfk_sinkhorn a, int width)
{
	extern __shared__ float shared[];
	__shared__ float room[THREADS_MOST / 32];
	const place p = place_of(a, shared, width);
	float change = INFINITY;

	begin<T>(a, p);
	for (int i = 0; i < MFK_SINKHORN_TURNS && change > MFK_SINKHORN_TOLERANCE; i++) {
		change = turn(a, p, room);
		__syncthreads();
	}
	for (int64_t base = 0; base < p.tokens; base += p.step) {
		int64_t j = base + p.first;
		float d0 = d0_of(a, p, j, p.before);

		for (int64_t e = p.lane; e < a.experts && j < p.tokens; e += p.width)
			a.key[row_of(a, j) + e] = p.d1[e] * a.key[row_of(a, j) + e] * d0;
	}
}

/* Bytes of shared memory of a block. */
static size_t room_of(const struct mfk_sinkhorn *a, unsigned threads, int width)
{
	return static_cast<size_t>(a->experts) * (threads / width + 2) * sizeof(float);
}

void mfk_cuda_sinkhorn(struct mfk_ctx *c, const struct mfk_sinkhorn *a)
{
	unsigned threads = THREADS_MOST;
	int width = 1;

	if (a->sequences * a->length <= 0 || !mfk_cuda_begin(c))
		return;
	while (width < a->experts && width < 32)
		width *= 2;
	while (threads > 32 && room_of(a, threads, width) > ROOM_MOST)
		threads /= 2;
	if (room_of(a, threads, width) > ROOM_MOST) {
		mfk_cuda_fail(c, -EINVAL, "sinkhorn: %lld experts are too many",
			      static_cast<long long>(a->experts));
		return;
	}
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		sinkhorn_kernel<T><<<static_cast<unsigned>(a->groups), threads,
				     room_of(a, threads, width), c->stream>>>(*a, width);
	});
	mfk_cuda_end(c, "sinkhorn");
}
