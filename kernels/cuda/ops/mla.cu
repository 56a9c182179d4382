/*
 * Queries, keys and values of multi-latent attention: a block has a token. A thread has vectors of
 * N elements, 8 where all lengths allow it, else 1; of what is turned, N pairs.
 */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/vec.cuh"

/* Where a token's numbers begin. */
struct place {
	int64_t q, kv, v, rope, angles;
	int heads, nope, head, kv_head, v_dim, half;
	/* Vectors of a head's queries or keys: those before `pairs` are plain, those before `rest`
	 * N pairs that are turned, the others plain, too. */
	int pairs, rest, all;
};

template <int N> static __device__ __forceinline__ place place_of(const mfk_mla &a)
{
	int64_t t = blockIdx.x;
	place p;

	p.heads = static_cast<int>(a.heads);
	p.nope = static_cast<int>(a.nope);
	p.head = static_cast<int>(a.nope + a.rope);
	p.kv_head = static_cast<int>(a.nope + a.v_dim);
	p.v_dim = static_cast<int>(a.v_dim);
	p.half = static_cast<int>(a.rotary_dim) / 2;
	p.q = t * a.heads * p.head;
	p.kv = t * a.heads * p.kv_head;
	p.v = t * a.heads * a.v_dim;
	p.rope = t * a.rope;
	p.angles = p.half ? static_cast<int64_t>(a.positions[t]) * p.half : 0;
	p.pairs = p.nope / N;
	p.rest = p.pairs + p.half / N;
	p.all = p.rest + (p.head - p.nope - 2 * p.half) / N;
	return p;
}

/* Where a plain vector begins in a head. */
template <int N> static __device__ __forceinline__ int begin(const place &p, int vector)
{
	return (vector < p.pairs ? vector : vector + p.half / N) * N;
}

template <int N, typename T> static __device__ __forceinline__ void move(T *to, const T *from)
{
	store_raw(to, load_raw<N>(from, N, true), N, true);
}

template <int N>
static __device__ __forceinline__ void look_up(const mfk_mla &a, const place &p, int pair,
					       float cos[N], float sin[N])
{
	load<N>(cos, a.cos + p.angles + pair, N, true);
	load<N>(sin, a.sin + p.angles + pair, N, true);
}

/* N pairs from neighbours at x to two halves of y. */
template <int N, typename T>
static __device__ __forceinline__ void turn(const mfk_mla &a, const place &p, int pair, const T *x,
					    T *y)
{
	float v[2 * N], cos[N], sin[N], first[N], second[N];

	load<N>(v, x + 2 * pair, N, true);
	load<N>(v + N, x + 2 * pair + N, N, true);
	look_up<N>(a, p, pair, cos, sin);
#pragma unroll
	for (int k = 0; k < N; k++) {
		first[k] = v[2 * k] * cos[k] - v[2 * k + 1] * sin[k];
		second[k] = v[2 * k + 1] * cos[k] + v[2 * k] * sin[k];
	}
	store<N>(y + pair, first, N, true);
	store<N>(y + p.half + pair, second, N, true);
}

/* Back: the gradients of two halves to neighbours at dx. */
template <int N, typename T>
static __device__ __forceinline__ void turn_back(const mfk_mla &a, const place &p, int pair,
						 const float first[N], const float second[N], T *dx)
{
	float v[2 * N], cos[N], sin[N];

	look_up<N>(a, p, pair, cos, sin);
#pragma unroll
	for (int k = 0; k < N; k++) {
		v[2 * k] = first[k] * cos[k] + second[k] * sin[k];
		v[2 * k + 1] = second[k] * cos[k] - first[k] * sin[k];
	}
	store<N>(dx + 2 * pair, v, N, true);
	store<N>(dx + 2 * pair + N, v + N, N, true);
}

template <typename T, int N>
static __global__ void __launch_bounds__(MFK_THREADS) mla_kernel(mfk_mla a)
{
	const place p = place_of<N>(a);
	const T *kv_up = static_cast<const T *>(a.kv_up) + p.kv;
	const T *k_rope = static_cast<const T *>(a.k_rope) + p.rope;

	for (int i = threadIdx.x; i < p.heads * p.all; i += MFK_THREADS) {
		int h = i / p.all, vector = i % p.all, e = begin<N>(p, vector);
		const T *from = static_cast<const T *>(a.q_up) + p.q + h * p.head;
		T *q = static_cast<T *>(a.q) + p.q + h * p.head;
		T *k = static_cast<T *>(a.k) + p.q + h * p.head;

		if (vector >= p.pairs && vector < p.rest) {
			int pair = (vector - p.pairs) * N;

			turn<N>(a, p, pair, from + p.nope, q + p.nope);
			turn<N>(a, p, pair, k_rope, k + p.nope);
		} else {
			move<N>(q + e, from + e);
			move<N>(k + e,
				e < p.nope ? kv_up + h * p.kv_head + e : k_rope + e - p.nope);
		}
	}
	for (int i = threadIdx.x; i < p.heads * (p.v_dim / N); i += MFK_THREADS) {
		int h = i / (p.v_dim / N), e = i % (p.v_dim / N) * N;

		move<N>(static_cast<T *>(a.v) + p.v + h * p.v_dim + e,
			kv_up + h * p.kv_head + p.nope + e);
	}
}

/* ---- backward ---- */

template <int N> struct Sums {
	float first[N], second[N];
};

/* Adds dk's rows of some heads: `vector` as in place; second of pairs alone. */
template <typename T, int N>
static __device__ __forceinline__ Sums<N> add_heads(const place &p, const T *dk, int vector, int h,
						    int step)
{
	bool paired = vector < p.rest;
	int e = paired ? p.nope + (vector - p.pairs) * N : begin<N>(p, vector);
	Sums<N> sum = {};

	for (; h < p.heads; h += step) {
		float v[N];

		load<N>(v, dk + h * p.head + e, N, true);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum.first[k] += v[k];
		if (!paired)
			continue;
		load<N>(v, dk + h * p.head + e + p.half, N, true);
#pragma unroll
		for (int k = 0; k < N; k++)
			sum.second[k] += v[k];
	}
	return sum;
}

/* dk_rope: the sum over heads, turned back. Threads share a vector's heads, and room has the sum of
 * each. */
template <typename T, int N>
static __device__ void rope_backward(const mfk_mla &a, const place &p, Sums<N> *room)
{
	const T *dk = static_cast<const T *>(a.dk) + p.q;
	T *dk_rope = static_cast<T *>(a.dk_rope) + p.rope;

	for (int base = p.pairs; base < p.all; base += MFK_THREADS) {
		int count = min(p.all - base, MFK_THREADS), shares = MFK_THREADS / count;
		int vector = base + threadIdx.x % count, share = threadIdx.x / count;
		Sums<N> sum = {};

		if (share < shares)
			room[threadIdx.x] = add_heads<T, N>(p, dk, vector, share, shares);
		__syncthreads();
		for (int i = 0; i < shares && share == 0; i++)
#pragma unroll
			for (int k = 0; k < N; k++) {
				sum.first[k] += room[i * count + threadIdx.x].first[k];
				sum.second[k] += room[i * count + threadIdx.x].second[k];
			}
		if (share == 0 && vector < p.rest)
			turn_back<N>(a, p, (vector - p.pairs) * N, sum.first, sum.second, dk_rope);
		else if (share == 0)
			store<N>(dk_rope + begin<N>(p, vector) - p.nope, sum.first, N, true);
		__syncthreads();
	}
}

template <typename T, int N>
static __global__ void __launch_bounds__(MFK_THREADS) mla_backward_kernel(mfk_mla a)
{
	__shared__ Sums<N> room[MFK_THREADS];
	const place p = place_of<N>(a);
	const int kv_vectors = p.kv_head / N;

	for (int i = threadIdx.x; i < p.heads * p.all; i += MFK_THREADS) {
		int h = i / p.all, vector = i % p.all, e = begin<N>(p, vector);
		const T *dq = static_cast<const T *>(a.dq) + p.q + h * p.head;
		T *dq_up = static_cast<T *>(a.dq_up) + p.q + h * p.head;

		if (vector >= p.pairs && vector < p.rest) {
			int pair = (vector - p.pairs) * N;
			float first[N], second[N];

			load<N>(first, dq + p.nope + pair, N, true);
			load<N>(second, dq + p.nope + p.half + pair, N, true);
			turn_back<N>(a, p, pair, first, second, dq_up + p.nope);
		} else {
			move<N>(dq_up + e, dq + e);
		}
	}
	for (int i = threadIdx.x; i < p.heads * kv_vectors; i += MFK_THREADS) {
		int h = i / kv_vectors, e = i % kv_vectors * N;

		move<N>(static_cast<T *>(a.dkv_up) + p.kv + h * p.kv_head + e,
			e < p.nope ? static_cast<const T *>(a.dk) + p.q + h * p.head + e
				   : static_cast<const T *>(a.dv) + p.v + h * p.v_dim + e - p.nope);
	}
	rope_backward<T, N>(a, p, room);
}

/* ---- launches ---- */

/* Are all parts of heads whole vectors? */
static bool wide(const mfk_mla *a)
{
	return (a->nope | a->rope | a->rotary_dim / 2 | a->v_dim) % MFK_N == 0 &&
	       aligned(a->cos, a->sin, a->q_up, a->kv_up, a->k_rope, a->q, a->k, a->v, a->dq, a->dk,
		       a->dv, a->dq_up, a->dkv_up, a->dk_rope);
}

void mfk_cuda_mla(struct mfk_ctx *c, const struct mfk_mla *a)
{
	if (a->tokens <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		auto kernel = wide(a) ? mla_kernel<T, MFK_N> : mla_kernel<T, 1>;

		kernel<<<static_cast<unsigned>(a->tokens), MFK_THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "mla");
}

void mfk_cuda_mla_backward(struct mfk_ctx *c, const struct mfk_mla *a)
{
	if (a->tokens <= 0 || !mfk_cuda_begin(c))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		auto kernel = wide(a) ? mla_backward_kernel<T, MFK_N> : mla_backward_kernel<T, 1>;

		kernel<<<static_cast<unsigned>(a->tokens), MFK_THREADS, 0, c->stream>>>(*a);
	});
	mfk_cuda_end(c, "mla's gradient");
}
