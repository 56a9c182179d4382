/* Attention's gradient of keys and values, by blocks that own keys: hopper.cuh. */
#ifndef MFK_CUDA_ATTENTION_HOPPER_KV_CUH
#define MFK_CUDA_ATTENTION_HOPPER_KV_CUH

#include "kernels/cuda/attention/hopper.cuh"

/* GROUPS warpgroups multiply, with keys of their own; N queries in a step. */
template <typename T_, int D_, int GROUPS_, int N_, int STAGES_> struct hopper_kv_tile {
	typedef T_ T;
	static constexpr int D = D_, GROUPS = GROUPS_, N = N_, STAGES = STAGES_;
	static constexpr int rows = GROUPS * 64, threads = (GROUPS + 1) * GROUP_LANES;

	struct stage {
		unsigned char q[N * D * 2], dout[N * D * 2];
	};
	struct shared {
		unsigned char k[rows * D * 2], v[rows * D * 2];
		stage stages[STAGES];
		float lse[STAGES][N], dot[STAGES][N];
		hopper_barriers<STAGES> bars;
	};
	static constexpr int bytes = sizeof(shared) + SWIZZLED;
};

/* The first step whose queries see a key of the block, and the end. */
struct hopper_steps_of {
	int first, end;
};

template <typename K>
static __device__ __forceinline__ hopper_steps_of hopper_kv_steps(const flash &f, int key0)
{
	return {f.causal ? key0 / K::N : 0, hopper_steps(f.seq, K::N)};
}

/* One thread. */
template <typename K>
static __device__ __forceinline__ void hopper_kv_copy(const flash &f, const hopper_maps &m,
						      typename K::shared *s, flash_place at)
{
	const int key0 = at.tile * K::rows, group = f.heads / f.kv_heads;
	const hopper_steps_of steps = hopper_kv_steps<K>(f, key0);
	hopper_ring<K::STAGES> ring;

	barrier_expect(&s->bars.own, sizeof(s->k) + sizeof(s->v));
	hopper_copy<K::rows, K::D>(s->k, &m.k, &s->bars.own, at.head, key0, at.batch);
	hopper_copy<K::rows, K::D>(s->v, &m.v, &s->bars.own, at.head, key0, at.batch);
	for (int head = at.head * group; head < (at.head + 1) * group; head++)
		for (int step = steps.first; step < steps.end; step++, ring.next()) {
			const int row = step * K::N;
			const int64_t n = ((int64_t)at.batch * f.heads + head) * f.seq_padded + row;
			typename K::stage *to = &s->stages[ring.stage];
			uint64_t *bar = &s->bars.full[ring.stage];

			barrier_wait(&s->bars.empty[ring.stage], ring.parity ^ 1);
			barrier_expect(bar, sizeof(*to) + K::N * 8);
			hopper_copy<K::N, K::D>(to->q, &m.q, bar, head, row, at.batch);
			copy_bytes(s->lse[ring.stage], f.lse_log2 + n, bar, K::N * 4);
			hopper_copy<K::N, K::D>(to->dout, &m.dout, bar, head, row, at.batch);
			copy_bytes(s->dot[ring.stage], f.dot + n, bar, K::N * 4);
		}
}

/* Of scores of keys from `key` on (the warpgroup's) and queries from `row` on, those that are not
 * seen become -infinity. */
template <int N>
static __device__ __forceinline__ void hopper_kv_mask(float (&s)[N / 2], int key, int row)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x % GROUP_LANES / 32;
	const int over = key + warp * 16 + lane / 4 - row - lane % 4 * 2;

#pragma unroll
	for (int i = 0; i < N / 2; i++)
		if (i / 4 * 8 + i % 2 < over + i / 2 % 2 * 8)
			s[i] = -INFINITE;
}

/* Scores become probabilities. lse: of the thread's first column. */
template <int N>
static __device__ __forceinline__ void hopper_kv_p(float (&p)[N / 2], const float *lse, float scale)
{
#pragma unroll
	for (int i = 0; i < N / 2; i += 4) {
		const float2 l = *(const float2 *)(lse + i * 2);

#pragma unroll
		for (int x = 0; x < 4; x++)
			p[i + x] = exp2_fast(fmaf(p[i + x], scale, -(x % 2 ? l.y : l.x)));
	}
}

/* Gradients of probabilities become those of scores. */
template <int N>
static __device__ __forceinline__ void hopper_kv_ds(float (&dp)[N / 2], const float (&p)[N / 2],
						    const float *dot)
{
#pragma unroll
	for (int i = 0; i < N / 2; i += 4) {
		const float2 o = *(const float2 *)(dot + i * 2);

#pragma unroll
		for (int x = 0; x < 4; x++)
			dp[i + x] = p[i + x] * (dp[i + x] - (x % 2 ? o.y : o.x));
	}
}

template <typename K>
static __device__ __forceinline__ void hopper_kv_multiply(const flash &f, typename K::shared *s,
							  flash_place at, int group)
{
	typedef typename K::T T;
	constexpr int N = K::N, D = K::D;
	const int quarter = (int)threadIdx.x % 4 * 2;
	const bool says = threadIdx.x % 32 == 0;
	const int own_key = at.tile * K::rows + group * 64;
	const hopper_steps_of steps = hopper_kv_steps<K>(f, at.tile * K::rows);
	const int total = (steps.end - steps.first) * (f.heads / f.kv_heads);
	float dk[D / 2], dv[D / 2], p[N / 2], dp[N / 2];
	const uint64_t k = matrix_at(s->k + group * 64 * ROW_BYTES, 0);
	const uint64_t v = matrix_at(s->v + group * 64 * ROW_BYTES, 0);
	hopper_ring<K::STAGES> ring;
	int step = steps.first;

	hopper_clear(dk);
	hopper_clear(dv);
	barrier_wait(&s->bars.own, 0);
#pragma unroll 1
	for (int n = 0; n < total; n++) {
		const typename K::stage *from = &s->stages[ring.stage];
		const float *lse = s->lse[ring.stage] + quarter,
			    *dot = s->dot[ring.stage] + quarter;

		barrier_wait(&s->bars.full[ring.stage], ring.parity);
		products_begin();
		hopper_scores<T, D, K::rows, N>(p, k, matrix_at(from->q, 0));
		products_commit();
		hopper_scores<T, D, K::rows, N>(dp, v, matrix_at(from->dout, 0));
		products_commit();
		products_wait<1>();
		products_done(p);
		if (f.causal && step * N < own_key + 63)
			hopper_kv_mask<N>(p, own_key, step * N);
		hopper_kv_p<N>(p, lse, f.scale_log2);
		hopper_sum<T, D, N>(dv, p, matrix_at(from->dout, N * ROW_BYTES));
		products_wait<1>();
		products_done(dp);
		hopper_kv_ds<N>(dp, p, dot);
		hopper_sum<T, D, N>(dk, dp, matrix_at(from->q, N * ROW_BYTES));
		products_wait<0>();
		products_done(dk);
		products_done(dv);
		if (says)
			barrier_arrive(&s->bars.empty[ring.stage]);
		ring.next();
		if (++step == steps.end)
			step = steps.first;
	}

	const int64_t ld = (int64_t)f.kv_heads * D;
	const int64_t first = ((int64_t)at.batch * f.seq + own_key) * ld + at.head * D;

	hopper_store<T, D>((T *)f.dk + first, ld, f.seq - own_key, dk, f.scale);
	hopper_store<T, D>((T *)f.dv + first, ld, f.seq - own_key, dv, 1);
}

template <typename K>
__global__ void __launch_bounds__(K::threads, 1)
	hopper_kv(const flash f, const __grid_constant__ hopper_maps m)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
	SHARED_MEMORY(memory);
	typename K::shared *s =
		(typename K::shared *)(memory + (-shared_address(memory) & (SWIZZLED - 1)));
	const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / GROUP_LANES, 0);
	const flash_place at = hopper_place_of(blockIdx.x, hopper_steps(f.seq, K::rows), f.kv_heads,
					       f.causal, false);

	hopper_begin(&s->bars, K::GROUPS * 4);
	if (group == K::GROUPS) {
		registers_fewer<K::GROUPS == 2 ? 24 : 32>();
		if (threadIdx.x == K::GROUPS * GROUP_LANES)
			hopper_kv_copy<K>(f, m, s, at);
	} else {
		registers_more<K::GROUPS == 2 ? 240 : 160>();
		hopper_kv_multiply<K>(f, s, at, group);
	}
#endif
}

#endif
