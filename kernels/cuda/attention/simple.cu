/*
 * Attention of any shape, with dropout, in fp32 without tensor cores: what the faster ones refuse.
 *
 * A block has one query (forward, dq) or one key (dk, dv), and goes over the others in tiles of one
 * a thread: first each thread has a score, then each thread has columns of the result.
 */
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/base/philox.cuh"
#include "kernels/cuda/base/reduce.cuh"
#include "kernels/cuda/base/vec.cuh"

#include <errno.h>

#define THREADS 128
#define COLUMNS 8 /* of a thread, so a head has at most 1024 elements */
#define MAX_DIM (THREADS * COLUMNS)

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

/* A row of elements into shared floats, times by. */
template <typename T>
static __device__ __forceinline__ void fetch(float *to, const T *from, int64_t count, float by)
{
	for (int64_t i = threadIdx.x; i < count; i += THREADS)
		to[i] = to_float(from[i]) * by;
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

static __device__ __forceinline__ int64_t query_position(const mfk_attention &a, int64_t i)
{
	return a.query_at ? a.query_at[i] : i;
}

static __device__ __forceinline__ int64_t key_position(const mfk_attention &a, int64_t j)
{
	return a.key_at ? a.key_at[j] : j;
}

/* 1 / (1 - p), or 0 for what is dropped: of query i, key j. */
static __device__ __forceinline__ float kept(const mfk_attention &a, int64_t bh, int64_t i,
					     int64_t j)
{
	uint64_t n;

	if (a.dropout <= 0)
		return 1.f;
	n = a.offset + static_cast<uint64_t>((bh * a.whole + query_position(a, i)) * a.whole +
					     key_position(a, j));
	return dropout_keeps(philox1(n, a.seed), a.dropout) ? 1.f / (1.f - a.dropout) : 0.f;
}

/* The row of token i of sequence b: of a head of q or out. */
template <typename T>
static __device__ __forceinline__ T *query_row(const mfk_attention &a, const void *p, int64_t b,
					       int64_t i, int64_t head, int64_t dim)
{
	return static_cast<T *>(const_cast<void *>(p)) + ((b * a.seq + i) * a.heads + head) * dim;
}

/* Of k or v. */
template <typename T>
static __device__ __forceinline__ T *key_row(const mfk_attention &a, const void *p, int64_t b,
					     int64_t j, int64_t kv, int64_t dim)
{
	return static_cast<T *>(const_cast<void *>(p)) + ((b * a.keys + j) * a.kv_heads + kv) * dim;
}

/* How many keys lie before a position. */
static __device__ __forceinline__ int64_t keys_before(const mfk_attention &a, int64_t position)
{
	int64_t low = 0, high = a.keys;

	if (!a.key_at)
		return min(position, a.keys);
	while (low < high) {
		int64_t middle = (low + high) / 2;

		if (a.key_at[middle] < position)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The first position that query i sees. */
static __device__ __forceinline__ int64_t first_position(const mfk_attention &a, int64_t b,
							 int64_t i)
{
	return a.causal && a.first_key ? a.first_key[b * a.seq + i] : 0;
}

/* The first key that query i sees, and the end of those. */
static __device__ __forceinline__ int64_t first_key(const mfk_attention &a, int64_t b, int64_t i)
{
	return keys_before(a, first_position(a, b, i));
}

static __device__ __forceinline__ int64_t end_key(const mfk_attention &a, int64_t i)
{
	return a.causal ? keys_before(a, query_position(a, i) + 1) : a.keys;
}

/* Block (i, bh). */
template <typename T> static __global__ void __launch_bounds__(THREADS) forward(mfk_attention a)
{
	extern __shared__ float query[];
	__shared__ float weights[THREADS], room[THREADS / 32];
	int64_t i = blockIdx.x, bh = blockIdx.y, b = bh / a.heads, head = bh % a.heads;
	int64_t kv = head / (a.heads / a.kv_heads), from = first_key(a, b, i);
	int64_t end = end_key(a, i);
	float most = -INFINITY, sum = 0, acc[COLUMNS] = {};
	T *out = query_row<T>(a, a.out, b, i, head, a.v_dim);

	fetch(query, query_row<T>(a, a.q, b, i, head, a.qk_dim), a.qk_dim, a.scale);
	for (int64_t tile = from; tile < end; tile += THREADS) {
		int64_t j = tile + threadIdx.x, count = min(end - tile, (int64_t)THREADS);
		float score = -INFINITY, now, p, shrink;

		__syncthreads();
		if (j < end)
			score = dot(query, key_row<T>(a, a.k, b, j, kv, a.qk_dim), a.qk_dim);
		now = fmaxf(most, block_max(score, room));
		shrink = most == -INFINITY ? 0.f : expf(most - now);
		p = j < end && now > -INFINITY ? expf(score - now) : 0.f;
		most = now;
		sum = sum * shrink + row_sum(p, room);
		weights[threadIdx.x] = p * (j < end ? kept(a, bh, i, j) : 0.f);
		__syncthreads();
#pragma unroll
		for (int k = 0; k < COLUMNS; k++) {
			int64_t col = k * THREADS + threadIdx.x;

			if (col >= a.v_dim)
				break;
			acc[k] *= shrink;
#pragma unroll 1
			for (int64_t n = 0; n < count; n++)
				acc[k] += weights[n] * to_float(key_row<T>(a, a.v, b, tile + n, kv,
									   a.v_dim)[col]);
		}
	}
#pragma unroll
	for (int k = 0; k < COLUMNS; k++) {
		int64_t col = k * THREADS + threadIdx.x;

		if (col < a.v_dim)
			out[col] = from_float<T>(sum > 0.f ? acc[k] / sum : 0.f);
	}
	if (threadIdx.x == 0)
		a.lse[bh * a.seq + i] = most + logf(sum);
}

/*
 * With p = e^(score - lse), d = dout v^T kept, and D = sum over keys of p d = dout out: the
 * gradient of a score is p (d - D). D of each query is in scratch.
 */
static __device__ __forceinline__ float *sums_of(const mfk_attention &a)
{
	return static_cast<float *>(a.scratch);
}

/* Block (i, bh): D, and dq from all keys. */
template <typename T> static __global__ void __launch_bounds__(THREADS) queries(mfk_attention a)
{
	extern __shared__ float query[];
	__shared__ float weights[THREADS], room[THREADS / 32];
	float *dout = query + a.qk_dim;
	int64_t i = blockIdx.x, bh = blockIdx.y, b = bh / a.heads, head = bh % a.heads;
	int64_t kv = head / (a.heads / a.kv_heads), from = first_key(a, b, i);
	int64_t end = end_key(a, i);
	float lse = a.lse[bh * a.seq + i], acc[COLUMNS] = {}, all = 0;
	const T *out = query_row<T>(a, a.out, b, i, head, a.v_dim);
	T *dq = query_row<T>(a, a.dq, b, i, head, a.qk_dim);

	fetch(query, query_row<T>(a, a.q, b, i, head, a.qk_dim), a.qk_dim, a.scale);
	fetch(dout, query_row<T>(a, a.dout, b, i, head, a.v_dim), a.v_dim, 1.f);
	__syncthreads();
	for (int64_t col = threadIdx.x; col < a.v_dim; col += THREADS)
		all += dout[col] * to_float(out[col]);
	all = row_sum(all, room);
	if (threadIdx.x == 0)
		sums_of(a)[bh * a.seq + i] = all;
	for (int64_t tile = from; tile < end; tile += THREADS) {
		int64_t j = tile + threadIdx.x, count = min(end - tile, (int64_t)THREADS);
		float ds = 0;

		__syncthreads();
		if (j < end) {
			float p = expf(
				dot(query, key_row<T>(a, a.k, b, j, kv, a.qk_dim), a.qk_dim) - lse);
			float d = dot(dout, key_row<T>(a, a.v, b, j, kv, a.v_dim), a.v_dim);

			ds = p * (d * kept(a, bh, i, j) - all) * a.scale;
		}
		weights[threadIdx.x] = ds;
		__syncthreads();
#pragma unroll
		for (int k = 0; k < COLUMNS; k++) {
			int64_t col = k * THREADS + threadIdx.x;

			if (col >= a.qk_dim)
				break;
#pragma unroll 1
			for (int64_t n = 0; n < count; n++)
				acc[k] += weights[n] * to_float(key_row<T>(a, a.k, b, tile + n, kv,
									   a.qk_dim)[col]);
		}
	}
#pragma unroll
	for (int k = 0; k < COLUMNS; k++) {
		int64_t col = k * THREADS + threadIdx.x;

		if (col < a.qk_dim)
			dq[col] = from_float<T>(acc[k]);
	}
}

/* Block (j, b kv): dk and dv from all queries of the heads that share the key. */
template <typename T> static __global__ void __launch_bounds__(THREADS) keys(mfk_attention a)
{
	extern __shared__ float key[];
	__shared__ float of_k[THREADS], of_v[THREADS];
	float *value = key + a.qk_dim;
	int64_t j = blockIdx.x, b = blockIdx.y / a.kv_heads, kv = blockIdx.y % a.kv_heads;
	int64_t group = a.heads / a.kv_heads, position = key_position(a, j);
	/* Queries of a whole sequence begin at the key. */
	int64_t begin = a.causal && !a.query_at && !a.key_at ? j : 0;
	float dk[COLUMNS] = {}, dv[COLUMNS] = {};
	T *to_k = key_row<T>(a, a.dk, b, j, kv, a.qk_dim);
	T *to_v = key_row<T>(a, a.dv, b, j, kv, a.v_dim);

	fetch(key, key_row<T>(a, a.k, b, j, kv, a.qk_dim), a.qk_dim, a.scale);
	fetch(value, key_row<T>(a, a.v, b, j, kv, a.v_dim), a.v_dim, 1.f);
	for (int64_t head = kv * group; head < (kv + 1) * group; head++) {
		int64_t bh = b * a.heads + head;

		for (int64_t tile = begin; tile < a.seq; tile += THREADS) {
			int64_t i = tile + threadIdx.x, count = min(a.seq - tile, (int64_t)THREADS);
			float ds = 0, weight = 0;

			__syncthreads();
			if (i < a.seq && first_position(a, b, i) <= position &&
			    (!a.causal || position <= query_position(a, i))) {
				const T *q = query_row<T>(a, a.q, b, i, head, a.qk_dim);
				const T *dout = query_row<T>(a, a.dout, b, i, head, a.v_dim);
				float p = expf(dot(key, q, a.qk_dim) - a.lse[bh * a.seq + i]);
				float keep = kept(a, bh, i, j);

				weight = p * keep;
				ds = p * (dot(value, dout, a.v_dim) * keep -
					  sums_of(a)[bh * a.seq + i]);
			}
			of_k[threadIdx.x] = ds * a.scale;
			of_v[threadIdx.x] = weight;
			__syncthreads();
#pragma unroll
			for (int k = 0; k < COLUMNS; k++) {
				int64_t col = k * THREADS + threadIdx.x;

#pragma unroll 1
				for (int64_t n = 0; n < count && col < a.qk_dim; n++)
					dk[k] += of_k[n] *
						 to_float(query_row<T>(a, a.q, b, tile + n, head,
								       a.qk_dim)[col]);
#pragma unroll 1
				for (int64_t n = 0; n < count && col < a.v_dim; n++)
					dv[k] += of_v[n] *
						 to_float(query_row<T>(a, a.dout, b, tile + n, head,
								       a.v_dim)[col]);
			}
		}
	}
#pragma unroll
	for (int k = 0; k < COLUMNS; k++) {
		int64_t col = k * THREADS + threadIdx.x;

		if (col < a.qk_dim)
			to_k[col] = from_float<T>(dk[k]);
		if (col < a.v_dim)
			to_v[col] = from_float<T>(dv[k]);
	}
}

static bool possible(struct mfk_ctx *c, const struct mfk_attention *a)
{
	if (a->qk_dim <= MAX_DIM && a->v_dim <= MAX_DIM && a->batch * a->heads < 65536)
		return true;
	mfk_cuda_fail(c, -EINVAL,
		      "attention: %lld sequences of %lld heads of %lld and %lld elements, at most "
		      "65535 heads in all of %d are possible",
		      (long long)a->batch, (long long)a->heads, (long long)a->qk_dim,
		      (long long)a->v_dim, MAX_DIM);
	return false;
}

size_t mfk_cuda_attention_simple_scratch(const struct mfk_attention *a, bool backward)
{
	return backward ? static_cast<size_t>(a->batch * a->heads * a->seq) * sizeof(float) : 0;
}

/* With sizes that were left out. */
static mfk_attention whole_of(const struct mfk_attention *a)
{
	mfk_attention all = *a;

	all.keys = a->keys ? a->keys : a->seq;
	all.whole = a->whole ? a->whole : a->seq;
	return all;
}

void mfk_cuda_attention_simple(struct mfk_ctx *c, const struct mfk_attention *a)
{
	const mfk_attention all = whole_of(a);
	dim3 blocks(static_cast<unsigned>(a->seq), static_cast<unsigned>(a->batch * a->heads));

	if (a->seq <= 0 || a->batch <= 0 || !mfk_cuda_begin(c) || !possible(c, a))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		forward<T><<<blocks, THREADS, a->qk_dim * sizeof(float), c->stream>>>(all);
	});
	mfk_cuda_end(c, "attention");
}

void mfk_cuda_attention_simple_backward(struct mfk_ctx *c, const struct mfk_attention *a)
{
	const mfk_attention all = whole_of(a);
	dim3 by_query(static_cast<unsigned>(a->seq), static_cast<unsigned>(a->batch * a->heads));
	dim3 by_key(static_cast<unsigned>(all.keys), static_cast<unsigned>(a->batch * a->kv_heads));
	size_t shared = static_cast<size_t>(a->qk_dim + a->v_dim) * sizeof(float);

	if (a->seq <= 0 || a->batch <= 0 || !mfk_cuda_begin(c) || !possible(c, a))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		queries<T><<<by_query, THREADS, shared, c->stream>>>(all);
		keys<T><<<by_key, THREADS, shared, c->stream>>>(all);
	});
	mfk_cuda_end(c, "attention's gradient");
}

/* ---- parts ---- */

/* Block (i, bh): row i of a head. */
template <typename T> static __global__ void __launch_bounds__(THREADS) join(mfk_attention_join a)
{
	int64_t i = blockIdx.x, bh = blockIdx.y, b = bh / a.heads, head = bh % a.heads;
	int64_t row = (b * a.seq + i) * a.heads + head, at = bh * a.seq + i;
	float before = a.lse[at], more = a.part_lse[at], most = fmaxf(before, more);
	bool none = most == -INFINITY; /* no keys yet */
	float lse = none ? most : most + logf(expf(before - most) + expf(more - most));
	float keep = none ? 0.f : expf(before - lse), add = none ? 0.f : expf(more - lse);
	const T *part = static_cast<const T *>(a.part) + row * a.v_dim;
	float *out = a.out + row * a.v_dim;

	for (int64_t d = threadIdx.x; d < a.v_dim; d += THREADS)
		out[d] = (keep > 0.f ? keep * out[d] : 0.f) + add * to_float(part[d]);
	__syncthreads(); /* all have read lse */
	if (threadIdx.x == 0)
		a.lse[at] = lse;
}

void mfk_cuda_attention_join(struct mfk_ctx *c, const struct mfk_attention_join *a)
{
	dim3 blocks(static_cast<unsigned>(a->seq), static_cast<unsigned>(a->batch * a->heads));

	if (a->seq <= 0 || a->batch <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		join<T><<<blocks, THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "attention_join");
}
