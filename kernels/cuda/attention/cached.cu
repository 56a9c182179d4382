/*
 * Attention to cached keys, in fp32 without tensor cores: a block has one token and one of its
 * heads, and goes over the keys in tiles of one a thread; first each thread has a score, then each
 * thread has columns of the result. Heads that share keys find them in the second-level cache.
 */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>

#define THREADS 128
#define COLUMNS 8 /* of a thread, so a head has at most 1024 elements */
#define MAX_DIM (THREADS * COLUMNS)

/* The row of the cache that a position of the token's sequence has, in rows of a head. */
static __device__ __forceinline__ int64_t cached_row(const mfk_attention_cached &a, int64_t t,
						     int64_t position)
{
	return (static_cast<int64_t>(a.sequence[t]) * a.length + position) * a.kv_heads;
}

template <typename T>
static __device__ __forceinline__ void copy(void *to, int64_t at, const void *from, int64_t first,
					    int64_t count)
{
	for (int64_t i = threadIdx.x; i < count; i += THREADS)
		static_cast<T *>(to)[at + i] = static_cast<const T *>(from)[first + i];
}

/* Block t. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) store_tokens(mfk_attention_cached a)
{
	const int64_t t = blockIdx.x, k = a.kv_heads * a.qk_dim, v = a.kv_heads * a.v_dim;
	int64_t row;

	if (a.sequence[t] < 0)
		return;
	row = cached_row(a, t, a.position[t]);
	copy<T>(a.keys, row * a.qk_dim, a.k, t * k, k);
	copy<T>(a.values, row * a.v_dim, a.v, t * v, v);
}

/* The greatest of the block's threads; room of one float a warp. */
static __device__ __forceinline__ float block_max(float x, float *room)
{
	float all;

	x = lane_max(x);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		room[threadIdx.x / 32] = x;
	__syncthreads();
	all = room[0];
	for (int i = 1; i < THREADS / 32; i++)
		all = fmaxf(all, room[i]);
	return all;
}

template <typename T>
static __device__ __forceinline__ float dot(const float *a, const T *b, int64_t count)
{
	float sum = 0;

#pragma unroll 2
	for (int64_t i = 0; i < count; i++)
		sum += a[i] * to_float(b[i]);
	return sum;
}

/* Block (t, head). */
template <typename T>
static __global__ void __launch_bounds__(THREADS) attend(mfk_attention_cached a)
{
	extern __shared__ float query[];
	__shared__ float weights[THREADS], room[THREADS / 32];
	const int64_t t = blockIdx.x, head = blockIdx.y, kv = head / (a.heads / a.kv_heads);
	const int64_t end = static_cast<int64_t>(a.position[t]) + 1;
	const int64_t first = a.window && end > a.window ? end - a.window : 0;
	const bool none = a.sequence[t] < 0;
	const T *q = static_cast<const T *>(a.q) + (t * a.heads + head) * a.qk_dim;
	T *out = static_cast<T *>(a.out) + (t * a.heads + head) * a.v_dim;
	float most = -INFINITY, sum = 0, acc[COLUMNS] = {};

	for (int64_t i = threadIdx.x; i < a.qk_dim; i += THREADS)
		query[i] = to_float(q[i]) * a.scale;
	for (int64_t tile = first; tile < end && !none; tile += THREADS) {
		const int64_t row = cached_row(a, t, tile) + kv, j = tile + threadIdx.x;
		const int64_t count = min(end - tile, static_cast<int64_t>(THREADS));
		const T *keys = static_cast<const T *>(a.keys) + row * a.qk_dim;
		const T *values = static_cast<const T *>(a.values) + row * a.v_dim;
		float score = -INFINITY, now, p, shrink;

		__syncthreads();
		if (j < end)
			score = dot(query, keys + threadIdx.x * a.kv_heads * a.qk_dim, a.qk_dim);
		now = fmaxf(most, block_max(score, room));
		shrink = most == -INFINITY ? 0.f : expf(most - now);
		p = j < end && now > -INFINITY ? expf(score - now) : 0.f;
		most = now;
		sum = sum * shrink + row_sum(p, room);
		weights[threadIdx.x] = p;
		__syncthreads();
#pragma unroll
		for (int k = 0; k < COLUMNS; k++) {
			const int64_t col = k * THREADS + threadIdx.x;

			if (col >= a.v_dim)
				break;
			acc[k] *= shrink;
#pragma unroll 1
			for (int64_t n = 0; n < count; n++)
				acc[k] += weights[n] *
					  to_float(values[n * a.kv_heads * a.v_dim + col]);
		}
	}
#pragma unroll
	for (int k = 0; k < COLUMNS; k++) {
		const int64_t col = k * THREADS + threadIdx.x;

		if (col < a.v_dim)
			out[col] = from_float<T>(sum > 0.f ? acc[k] / sum : 0.f);
	}
}

static bool possible(struct mfk_ctx *c, const struct mfk_attention_cached *a)
{
	if (a->qk_dim <= MAX_DIM && a->v_dim <= MAX_DIM && a->heads < 65536)
		return true;
	mfk_cuda_fail(c, -EINVAL,
		      "attention to cached keys: %lld heads of %lld and %lld elements, at most "
		      "65535 of %d are possible",
		      (long long)a->heads, (long long)a->qk_dim, (long long)a->v_dim, MAX_DIM);
	return false;
}

void mfk_cuda_attention_cached(struct mfk_ctx *c, const struct mfk_attention_cached *a)
{
	const unsigned tokens = static_cast<unsigned>(a->tokens);
	const dim3 blocks(tokens, static_cast<unsigned>(a->heads));

	if (a->tokens <= 0 || !mfk_cuda_begin(c) || !possible(c, a))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		store_tokens<T><<<tokens, THREADS, 0, c->stream>>>(*a);
		attend<T><<<blocks, THREADS, a->qk_dim * sizeof(float), c->stream>>>(*a);
	});
	mfk_cuda_end(c, "attention to cached keys");
}
