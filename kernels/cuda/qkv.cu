/*
 * Megatron's packed qkv, split, with the norms of q and k and RoPE in between, and back.
 *
 * A head is a group of lanes of a warp, eight elements each, so a head of 128 is half a warp. What
 * RoPE turns with what lies eight lanes away or beside it, so heads pass through shared memory.
 */
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vec.cuh"

#include <errno.h>

#define MAX_DIM (32 * MFK_N)

enum part { Q, K, V, NOTHING };

struct place {
	enum part part;
	int64_t token;
	int64_t head; /* of all in q, or in k and v: row of [T, heads] */
};

/* heads: in qkv, of all tokens; i counts them. */
static __device__ __forceinline__ place place_of(const mfk_qkv &a, uint32_t i, uint32_t heads)
{
	uint32_t each = static_cast<uint32_t>(a.heads_per_group) + 2;
	uint32_t group = i / each, j = i % each;
	place p;

	p.part = i >= heads ? NOTHING : j + 2 < each ? Q : j + 2 == each ? K : V;
	p.token = group / static_cast<uint32_t>(a.groups);
	p.head = p.part == Q ? group * a.heads_per_group + j : group;
	return p;
}

/* cos and sin of the elements e, e + 1, ... of a head; 1 and 0 beyond rotary_dim. */
static __device__ __forceinline__ void angles(const mfk_qkv &a, int64_t token, int e,
					      float cos[MFK_N], float sin[MFK_N])
{
	int half = static_cast<int>(a.rotary_dim) / 2;
	int64_t at = static_cast<int64_t>(a.positions[token]) * half;

	if (!a.interleaved && half % MFK_N == 0) {
		bool wide = ((reinterpret_cast<uintptr_t>(a.cos) |
			      reinterpret_cast<uintptr_t>(a.sin)) &
			     15) == 0;

		at += e < half ? e : e - half;
		load(cos, a.cos + at, MFK_N, wide);
		load(sin, a.sin + at, MFK_N, wide);
		return;
	}
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		bool turned = e + k < 2 * half;
		int i = a.interleaved ? (e + k) / 2 : e + k < half ? e + k : e + k - half;

		cos[k] = turned ? a.cos[at + i] : 1.f;
		sin[k] = turned ? a.sin[at + i] : 0.f;
	}
}

/* v: elements e, e + 1, ... of the head at h, turned, or turned back with way -1. */
static __device__ __forceinline__ void turn(const mfk_qkv &a, int64_t token, const float *h, int e,
					    float way, float v[MFK_N])
{
	int half = static_cast<int>(a.rotary_dim) / 2;
	float cos[MFK_N], sin[MFK_N];

	if (e >= 2 * half)
		return;
	angles(a, token, e, cos, sin);
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		bool first = a.interleaved ? !((e + k) & 1) : e + k < half;
		int step = a.interleaved ? 1 : half;
		/* The partner of an element that is not turned may lie beyond the head. */
		float other = e + k >= 2 * half ? 0.f : first ? -h[e + k + step] : h[e + k - step];

		v[k] = v[k] * cos[k] + other * sin[k] * way;
	}
}

static __device__ __forceinline__ void add_one(float w[MFK_N])
{
#pragma unroll
	for (int k = 0; k < MFK_N; k++)
		w[k] += 1.f;
}

template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS)
	qkv_kernel(mfk_qkv a, uint32_t heads, int lanes, bool wide)
{
	__shared__ __align__(16) float room[MFK_THREADS * MFK_N];
	int group = threadIdx.x / lanes, e = threadIdx.x % lanes * MFK_N, dim = a.dim;
	float *h = room + group * lanes * MFK_N;
	uint32_t i = blockIdx.x * (MFK_THREADS / lanes) + group;
	place p = place_of(a, i, heads);
	int left = p.part == NOTHING ? 0 : dim - e;
	const T *weight = static_cast<const T *>(p.part == Q ? a.q_norm : a.k_norm);
	const T *bias = static_cast<const T *>(p.part == Q ? a.q_norm_bias : a.k_norm_bias);
	T *out = static_cast<T *>(p.part == Q ? a.q : p.part == K ? a.k : a.v);
	bool normed = weight && (p.part == Q || p.part == K);
	float v[MFK_N] = {}, w[MFK_N], b[MFK_N] = {};
	float mu = 0, r, sum = 0;

	if (left > 0)
		load(v, static_cast<const T *>(a.qkv) + static_cast<int64_t>(i) * dim + e, left,
		     wide);
	if (a.q_norm || a.k_norm) {
		/* All lanes of the warp take part, whatever they hold. */
		if (a.layernorm) {
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				sum += v[k];
			mu = lane_sum(sum, lanes) / dim;
			sum = 0;
		}
#pragma unroll
		for (int k = 0; k < MFK_N; k++)
			sum += k < left ? (v[k] - mu) * (v[k] - mu) : 0.f;
		r = rsqrtf(lane_sum(sum, lanes) / dim + a.eps);
		if (normed && left > 0) {
			load(w, weight + e, left, wide);
			if (a.zero_centered)
				add_one(w);
			if (bias)
				load(b, bias + e, left, wide);
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				v[k] = (v[k] - mu) * r * w[k] + b[k];
		}
		if (normed && e == 0) {
			float *mean = p.part == Q ? a.q_mean : a.k_mean;
			float *rstd = p.part == Q ? a.q_rstd : a.k_rstd;

			if (a.layernorm && mean)
				mean[p.head] = mu;
			if (rstd)
				rstd[p.head] = r;
		}
	}
	if (a.rotary_dim) {
		store(h + e, v, MFK_N, true);
		__syncwarp();
		if (left > 0 && p.part != V)
			turn(a, p.token, h, e, 1.f, v);
	}
	if (left > 0)
		store(out + p.head * dim + e, v, left, wide);
}

/* What a thread adds up for its eight elements. */
struct norm_sums {
	float weight[MFK_N], bias[MFK_N];
};

static __device__ __forceinline__ void add(norm_sums &s, bool mine, const float g[MFK_N],
					   const float xhat[MFK_N])
{
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		s.weight[k] += mine ? g[k] * xhat[k] : 0.f;
		s.bias[k] += mine ? g[k] : 0.f;
	}
}

/* to[dim] = the sums of the block's groups, in their order. */
static __device__ __forceinline__ void put(float *to, const float sum[MFK_N], float *room,
					   int lanes, int dim)
{
	int groups = MFK_THREADS / lanes, row = lanes * MFK_N;

	__syncthreads();
	store(room + threadIdx.x * MFK_N, sum, MFK_N, true);
	__syncthreads();
	for (int e = threadIdx.x; e < dim; e += MFK_THREADS) {
		float all = 0;

		for (int i = 0; i < groups; i++)
			all += room[i * row + e];
		to[e] = all;
	}
}

/* parts: of each of four gradients and each block [dim]; NULL: there are no norms. */
template <typename T>
static __global__ void __launch_bounds__(MFK_THREADS)
	qkv_backward_kernel(mfk_qkv a, uint32_t heads, int lanes, float *parts, bool wide)
{
	__shared__ __align__(16) float room[MFK_THREADS * MFK_N];
	int group = threadIdx.x / lanes, e = threadIdx.x % lanes * MFK_N, dim = a.dim;
	int groups = MFK_THREADS / lanes;
	float *h = room + group * lanes * MFK_N;
	norm_sums of_q = {}, of_k = {};

	for (uint32_t base = blockIdx.x * groups; base < heads; base += gridDim.x * groups) {
		uint32_t i = base + group;
		int64_t at = static_cast<int64_t>(i) * dim + e;
		place p = place_of(a, i, heads);
		int left = p.part == NOTHING ? 0 : dim - e;
		const T *from = static_cast<const T *>(p.part == Q   ? a.dq
						       : p.part == K ? a.dk
								     : a.dv);
		const T *weight = static_cast<const T *>(p.part == Q ? a.q_norm : a.k_norm);
		bool normed = weight && (p.part == Q || p.part == K);
		float g[MFK_N] = {};

		if (left > 0)
			load(g, from + p.head * dim + e, left, wide);
		if (a.rotary_dim) {
			__syncwarp();
			store(h + e, g, MFK_N, true);
			__syncwarp();
			if (left > 0 && p.part != V)
				turn(a, p.token, h, e, -1.f, g);
		}
		if (parts) {
			float x[MFK_N] = {}, w[MFK_N] = {}, mu = 0, r = 0;
			float sum_g = 0, sum_gx = 0;

			if (normed && left > 0) {
				const float *mean = p.part == Q ? a.q_mean : a.k_mean;
				const float *rstd = p.part == Q ? a.q_rstd : a.k_rstd;

				mu = a.layernorm ? mean[p.head] : 0.f;
				r = rstd[p.head];
				load(x, static_cast<const T *>(a.qkv) + at, left, wide);
				load(w, weight + e, left, wide);
				if (a.zero_centered)
					add_one(w);
			}
#pragma unroll
			for (int k = 0; k < MFK_N; k++)
				x[k] = (x[k] - mu) * r; /* where g is 0, it does not matter */
			add(of_q, normed && p.part == Q, g, x);
			add(of_k, normed && p.part == K, g, x);
#pragma unroll
			for (int k = 0; k < MFK_N; k++) {
				sum_g += g[k] * w[k];
				sum_gx += g[k] * w[k] * x[k];
			}
			sum_gx = lane_sum(sum_gx, lanes) / dim;
			sum_g = a.layernorm ? lane_sum(sum_g, lanes) / dim : 0.f;
			if (normed)
#pragma unroll
				for (int k = 0; k < MFK_N; k++)
					g[k] = r * (g[k] * w[k] - x[k] * sum_gx - sum_g);
		}
		if (left > 0)
			store(static_cast<T *>(a.dqkv) + at, g, left, wide);
	}
	if (!parts)
		return;
	parts += static_cast<int64_t>(blockIdx.x) * dim;
	put(parts, of_q.weight, room, lanes, dim);
	put(parts + static_cast<int64_t>(gridDim.x) * dim, of_q.bias, room, lanes, dim);
	put(parts + static_cast<int64_t>(gridDim.x) * 2 * dim, of_k.weight, room, lanes, dim);
	put(parts + static_cast<int64_t>(gridDim.x) * 3 * dim, of_k.bias, room, lanes, dim);
}

/* Lanes of a head; 0: it is too long, and the context has failed. */
static int lanes_of(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	int lanes = 1;

	if (a->dim > MAX_DIM || a->tokens * a->groups * (a->heads_per_group + 2) >= 1LL << 31) {
		mfk_cuda_fail(c, -EINVAL,
			      "qkv: %lld heads of %lld elements, at most 2^31 heads of %d are "
			      "possible",
			      static_cast<long long>(a->tokens * a->groups *
						     (a->heads_per_group + 2)),
			      static_cast<long long>(a->dim), MAX_DIM);
		return 0;
	}
	while (lanes * MFK_N < a->dim)
		lanes *= 2;
	return lanes;
}

void mfk_cuda_qkv(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	int64_t heads = a->tokens * a->groups * (a->heads_per_group + 2);
	bool wide = a->dim % MFK_N == 0 && aligned(a->qkv, a->q, a->k, a->v, a->q_norm, a->k_norm,
						   a->q_norm_bias, a->k_norm_bias);
	int lanes;

	if (heads <= 0 || a->dim <= 0 || !mfk_cuda_begin(c) || !(lanes = lanes_of(c, a)))
		return;
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		qkv_kernel<T>
			<<<static_cast<unsigned>(ceil_div(heads, MFK_THREADS / lanes)), MFK_THREADS,
			   0, c->stream>>>(*a, static_cast<uint32_t>(heads), lanes, wide);
	});
	mfk_cuda_end(c, "qkv");
}

void mfk_cuda_qkv_backward(struct mfk_ctx *c, const struct mfk_qkv *a)
{
	int64_t heads = a->tokens * a->groups * (a->heads_per_group + 2), blocks;
	bool wide = a->dim % MFK_N == 0 &&
		    aligned(a->qkv, a->dqkv, a->dq, a->dk, a->dv, a->q_norm, a->k_norm);
	void *const grads[] = {a->dq_norm, a->dq_norm_bias, a->dk_norm, a->dk_norm_bias};
	float *parts = NULL;
	int lanes;

	if (heads <= 0 || a->dim <= 0 || !mfk_cuda_begin(c) || !(lanes = lanes_of(c, a)))
		return;
	blocks = ceil_div(heads, MFK_THREADS / lanes);
	if (a->q_norm || a->k_norm) {
		if (blocks > 6LL * c->device->multiprocessors)
			blocks = 6LL * c->device->multiprocessors;
		parts = static_cast<float *>(mfk_cuda_scratch(
			c, static_cast<size_t>(blocks * 4 * a->dim) * sizeof(float), "qkv"));
		if (!parts)
			return;
	}
	with_type(a->dtype, [&](auto tag) {
		typedef typename decltype(tag)::type T;
		qkv_backward_kernel<T>
			<<<static_cast<unsigned>(blocks), MFK_THREADS, 0, c->stream>>>(
				*a, static_cast<uint32_t>(heads), lanes, parts, wide);
	});
	mfk_cuda_end(c, "qkv's gradient");
	for (int i = 0; parts && i < 4; i++)
		if (grads[i])
			mfk_cuda_add_columns(c, a->grad, grads[i], parts + i * blocks * a->dim,
					     blocks, a->dim);
}
