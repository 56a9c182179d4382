/* SGD on a range of flat buffers. A thread has four elements, as in adamw.cu. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/vec.cuh"

#define EACH 4

struct state {
	float w[EACH], g[EACH], m[EACH];
};

/* WHOLE: all elements are there, and aligned. */
template <bool WHOLE, bool MOMENTUM>
static __device__ __forceinline__ void load_state(state &s, const mfk_sgd &a, int64_t i)
{
	int64_t left = WHOLE ? EACH : a.count - i;

	load_any<EACH>(s.g, a.grad_type, a.grad, i, left, WHOLE);
	if (MOMENTUM)
		load_any<EACH>(s.m, a.m_type, a.m, i, left, WHOLE);
	if (a.main)
		load_any<EACH>(s.w, a.main_type, a.main, i, left, WHOLE);
	else
		load_any<EACH>(s.w, a.weight_type, a.weight, i, left, WHOLE);
}

template <bool MOMENTUM> static __device__ __forceinline__ void step(state &s, const mfk_sgd &a)
{
#pragma unroll
	for (int k = 0; k < EACH; k++) {
		const float grad = s.g[k] * a.grad_scale + a.wd * s.w[k];

		s.m[k] = MOMENTUM ? a.momentum * s.m[k] + grad : grad;
		s.w[k] -= a.lr * s.m[k];
	}
}

template <bool WHOLE, bool MOMENTUM>
static __device__ __forceinline__ void store_state(const state &s, const mfk_sgd &a, int64_t i)
{
	int64_t left = WHOLE ? EACH : a.count - i;

	if (MOMENTUM)
		store_any<EACH>(a.m_type, a.m, i, s.m, left, WHOLE);
	if (a.main)
		store_any<EACH>(a.main_type, a.main, i, s.w, left, WHOLE);
	store_any<EACH>(a.weight_type, a.weight, i, s.w, left, WHOLE);
}

template <bool WHOLE, bool MOMENTUM>
static __device__ __forceinline__ void update(const mfk_sgd &a, int64_t i)
{
	state s;

	load_state<WHOLE, MOMENTUM>(s, a, i);
	step<MOMENTUM>(s, a);
	store_state<WHOLE, MOMENTUM>(s, a, i);
}

/* wide: all buffers are aligned. */
template <bool MOMENTUM> static __global__ void sgd_kernel(mfk_sgd a, bool wide)
{
	const int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * EACH;

	if (wide && a.count - i >= EACH)
		update<true, MOMENTUM>(a, i);
	else if (i < a.count)
		update<false, MOMENTUM>(a, i);
}

void mfk_cuda_sgd(struct mfk_ctx *c, const struct mfk_sgd *a)
{
	auto kernel = a->m ? sgd_kernel<true> : sgd_kernel<false>;

	if (a->count <= 0 || !mfk_cuda_begin(c))
		return;
	kernel<<<static_cast<unsigned>(ceil_div(a->count, MFK_THREADS * EACH)), MFK_THREADS, 0,
		 c->stream>>>(*a, aligned(a->weight, a->main, a->m, a->grad));
	mfk_cuda_end(c, "SGD");
}
