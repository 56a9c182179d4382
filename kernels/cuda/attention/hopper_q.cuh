/* Attention's gradient of queries, by blocks that own queries: hopper.cuh. */
#ifndef MFK_CUDA_ATTENTION_HOPPER_Q_CUH
#define MFK_CUDA_ATTENTION_HOPPER_Q_CUH

#include "kernels/cuda/attention/hopper.cuh"

/* GROUPS warpgroups multiply, with queries of their own; N keys in a step. */
template <typename T_, int D_, int GROUPS_, int N_, int STAGES_> struct hopper_q_tile {
	typedef T_ T;
	static constexpr int D = D_, GROUPS = GROUPS_, N = N_, STAGES = STAGES_;
	static constexpr int rows = GROUPS * 64, threads = (GROUPS + 1) * GROUP_LANES;

	struct stage {
		unsigned char k[N * D * 2], v[N * D * 2];
	};
	struct shared {
		unsigned char q[rows * D * 2], dout[rows * D * 2];
		stage stages[STAGES];
		hopper_barriers<STAGES> bars;
	};
	static constexpr int bytes = sizeof(shared) + SWIZZLED;
};

/* Steps of keys that a query of the block sees. */
template <typename K> static __device__ __forceinline__ int hopper_q_steps(const flash &f, int row0)
{
	return hopper_steps(f.causal ? min(row0 + K::rows, f.seq) : f.seq, K::N);
}

/* One thread. */
template <typename K>
static __device__ __forceinline__ void hopper_q_copy(const flash &f, const hopper_maps &m,
						     typename K::shared *s, flash_place at)
{
	const int row0 = at.tile * K::rows, kv_head = at.head / (f.heads / f.kv_heads);
	const int steps = hopper_q_steps<K>(f, row0);
	hopper_ring<K::STAGES> ring;

	barrier_expect(&s->bars.own, sizeof(s->q) + sizeof(s->dout));
	hopper_copy<K::rows, K::D>(s->q, &m.q, &s->bars.own, at.head, row0, at.batch);
	hopper_copy<K::rows, K::D>(s->dout, &m.dout, &s->bars.own, at.head, row0, at.batch);
	for (int step = 0; step < steps; step++, ring.next()) {
		typename K::stage *to = &s->stages[ring.stage];
		uint64_t *bar = &s->bars.full[ring.stage];

		barrier_wait(&s->bars.empty[ring.stage], ring.parity ^ 1);
		barrier_expect(bar, sizeof(*to));
		hopper_copy<K::N, K::D>(to->k, &m.k, bar, kv_head, step * K::N, at.batch);
		hopper_copy<K::N, K::D>(to->v, &m.v, bar, kv_head, step * K::N, at.batch);
	}
}

/* Of scores of queries from `row` on (the warpgroup's) and keys from `key` on, those that are not
 * seen become -infinity. */
template <int N>
static __device__ __forceinline__ void hopper_q_mask(float (&s)[N / 2], const flash &f, int row,
						     int key)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % GROUP_LANES / 32;

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int own = row + warp * 16 + lane / 4 + h * 8;
		const int last = (f.causal ? min(own, f.seq - 1) : f.seq - 1) - key - lane % 4 * 2;

#pragma unroll
		for (int i = 0; i < N / 4; i++)
			if (i / 2 * 8 + i % 2 > last)
				s[i / 2 * 4 + h * 2 + i % 2] = -INFINITE;
	}
}

/* Probabilities become gradients of scores. */
template <int N>
static __device__ __forceinline__ void hopper_q_ds(float (&p)[N / 2], const float (&dp)[N / 2],
						   const float (&dot)[2])
{
#pragma unroll
	for (int i = 0; i < N / 2; i++)
		p[i] *= dp[i] - dot[i / 2 % 2];
}

template <typename K>
static __device__ __forceinline__ void hopper_q_multiply(const flash &f, typename K::shared *s,
							 flash_place at, int group)
{
	typedef typename K::T T;
	constexpr int N = K::N, D = K::D;
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % GROUP_LANES / 32;
	const bool says = lane == 0;
	const int own_row = at.tile * K::rows + group * 64;
	const int steps = hopper_q_steps<K>(f, at.tile * K::rows);
	float dq[D / 2], p[N / 2], dp[N / 2], lse[2], dot[2];
	const uint64_t q = matrix_at(s->q + group * 64 * ROW_BYTES, 0);
	const uint64_t d = matrix_at(s->dout + group * 64 * ROW_BYTES, 0);
	hopper_ring<K::STAGES> ring;

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const int i = own_row + warp * 16 + lane / 4 + h * 8;
		const int64_t n = ((int64_t)at.batch * f.heads + at.head) * f.seq_padded + i;

		lse[h] = i < f.seq ? f.lse_log2[n] : INFINITE;
		dot[h] = i < f.seq ? f.dot[n] : 0;
	}
	hopper_clear(dq);
	barrier_wait(&s->bars.own, 0);
#pragma unroll 1
	for (int step = 0; step < steps; step++) {
		const typename K::stage *from = &s->stages[ring.stage];
		const int key = step * N;

		barrier_wait(&s->bars.full[ring.stage], ring.parity);
		products_begin();
		hopper_scores<T, D, K::rows, N>(p, q, matrix_at(from->k, 0));
		products_commit();
		hopper_scores<T, D, K::rows, N>(dp, d, matrix_at(from->v, 0));
		products_commit();
		products_wait<1>();
		products_done(p);
		if (key + N > (f.causal ? own_row + 1 : f.seq))
			hopper_q_mask<N>(p, f, own_row, key);
#pragma unroll
		for (int i = 0; i < N / 2; i++)
			p[i] = exp2_fast(fmaf(p[i], f.scale_log2, -lse[i / 2 % 2]));
		products_wait<0>();
		products_done(dp);
		hopper_q_ds<N>(p, dp, dot);
		hopper_sum<T, D, N>(dq, p, matrix_at(from->k, N * ROW_BYTES));
		products_wait<0>();
		products_done(dq);
		if (says)
			barrier_arrive(&s->bars.empty[ring.stage]);
		ring.next();
	}

	const int64_t ld = (int64_t)f.heads * D;

	hopper_store<T, D>((T *)f.dq + ((int64_t)at.batch * f.seq + own_row) * ld + at.head * D, ld,
			   f.seq - own_row, dq, f.scale);
}

template <typename K>
__global__ void __launch_bounds__(K::threads, 1)
	hopper_q(const flash f, const __grid_constant__ hopper_maps m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	SHARED_MEMORY(memory);
	typename K::shared *s =
		(typename K::shared *)(memory + (-shared_address(memory) & (SWIZZLED - 1)));
	const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_LANES, 0);
	const flash_place at =
		hopper_place_of(blockIdx.x, hopper_steps(f.seq, K::rows), f.heads, f.causal, true);

	hopper_begin(&s->bars, K::GROUPS * 4);
	if (group == K::GROUPS) {
		registers_fewer<K::GROUPS == 2 ? 24 : 32>();
		if (threadIdx.x == K::GROUPS * GROUP_LANES)
			hopper_q_copy<K>(f, m, s, at);
	} else {
		registers_more<K::GROUPS == 2 ? 240 : 160>();
		hopper_q_multiply<K>(f, s, at, group);
	}
#endif
}

#endif
