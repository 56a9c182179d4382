/* AdamW on a range of flat buffers. A thread has four elements at a time: then a warp's stores of
 * fp32 fill whole sectors of memory. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/vec.cuh"

#define EACH  4 /* elements of a vector */
#define TWICE 2 /* vectors of a thread */

struct state {
	float w[EACH], g[EACH], m[EACH], v[EACH];
};

/* WHOLE: all elements are there, and aligned. */
template <bool WHOLE>
static __device__ __forceinline__ void load_state(state &s, const mfk_adamw &a, int64_t i)
{
	int64_t left = WHOLE ? EACH : a.count - i;

	load_any<EACH>(s.g, a.grad_type, a.grad, i, left, WHOLE);
	load_any<EACH>(s.m, a.m_type, a.m, i, left, WHOLE);
	load_any<EACH>(s.v, a.v_type, a.v, i, left, WHOLE);
	if (a.main)
		load_any<EACH>(s.w, a.main_type, a.main, i, left, WHOLE);
	else
		load_any<EACH>(s.w, a.weight_type, a.weight, i, left, WHOLE);
}

/* by1, by2: 1 / correction1, 1 / correction2 */
static __device__ __forceinline__ void step(state &s, const mfk_adamw &a, float by1, float by2)
{
#pragma unroll
	for (int k = 0; k < EACH; k++) {
		float grad = s.g[k] * a.grad_scale, update;

		if (a.l2)
			grad += a.wd * s.w[k];
		s.m[k] = a.beta1 * s.m[k] + (1.f - a.beta1) * grad;
		s.v[k] = a.beta2 * s.v[k] + (1.f - a.beta2) * grad * grad;
		update = __fdividef(s.m[k] * by1, sqrtf(s.v[k] * by2) + a.eps);
		if (!a.l2)
			update += a.wd * s.w[k];
		s.w[k] -= a.lr * update;
	}
}

template <bool WHOLE>
static __device__ __forceinline__ void store_state(const state &s, const mfk_adamw &a, int64_t i)
{
	int64_t left = WHOLE ? EACH : a.count - i;

	store_any<EACH>(a.m_type, a.m, i, s.m, left, WHOLE);
	store_any<EACH>(a.v_type, a.v, i, s.v, left, WHOLE);
	if (a.main)
		store_any<EACH>(a.main_type, a.main, i, s.w, left, WHOLE);
	store_any<EACH>(a.weight_type, a.weight, i, s.w, left, WHOLE);
}

template <bool WHOLE>
static __device__ __forceinline__ void update(const mfk_adamw &a, int64_t i, float by1, float by2)
{
	state s[TWICE];

#pragma unroll
	for (int j = 0; j < TWICE; j++)
		if (WHOLE || i + j * MFK_THREADS * EACH < a.count)
			load_state<WHOLE>(s[j], a, i + j * MFK_THREADS * EACH);
#pragma unroll
	for (int j = 0; j < TWICE; j++)
		if (WHOLE || i + j * MFK_THREADS * EACH < a.count) {
			step(s[j], a, by1, by2);
			store_state<WHOLE>(s[j], a, i + j * MFK_THREADS * EACH);
		}
}

/* PLAIN: all but the weights are fp32, and the compiler knows it. */
template <bool PLAIN>
static __global__ void adamw_kernel(mfk_adamw a, float by1, float by2, bool wide)
{
	const int64_t begin = static_cast<int64_t>(blockIdx.x) * TWICE * MFK_THREADS * EACH;

	if (PLAIN)
		a.grad_type = a.main_type = a.m_type = a.v_type = MFK_F32;
	if (wide && a.count - begin >= TWICE * MFK_THREADS * EACH)
		update<true>(a, begin + threadIdx.x * EACH, by1, by2);
	else
		update<false>(a, begin + threadIdx.x * EACH, by1, by2);
}

void mfk_cuda_adamw(struct mfk_ctx *c, const struct mfk_adamw *a)
{
	const bool plain = a->grad_type == MFK_F32 && a->main_type == MFK_F32 &&
			   a->m_type == MFK_F32 && a->v_type == MFK_F32;
	auto kernel = plain ? adamw_kernel<true> : adamw_kernel<false>;

	if (a->count <= 0 || !mfk_cuda_begin(c))
		return;
	kernel<<<static_cast<unsigned>(ceil_div(a->count, MFK_THREADS * EACH * TWICE)), MFK_THREADS,
		 0, c->stream>>>(*a, 1.f / a->correction1, 1.f / a->correction2,
				 aligned(a->weight, a->main, a->m, a->v, a->grad));
	mfk_cuda_end(c, "AdamW");
}
