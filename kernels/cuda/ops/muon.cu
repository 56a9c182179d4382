/* What Muon does apart from products (kernels.h): a thread has four elements, or one of a
 * matrix. */
#include "kernels/cuda/ops/ops.h"
#include "kernels/cuda/base/vec.cuh"

#define EACH 4

/* Both means are computed from their nearer end, as torch.lerp does it. */
static __device__ __forceinline__ void mean(const mfk_momentum &a, float g, float &m, float &to)
{
	if (a.momentum < 0.5f) {
		m = g - (g - m) * a.momentum;
		to = a.nesterov ? g + a.momentum * (m - g) : m;
	} else {
		m = m + a.rest * (g - m);
		to = a.nesterov ? m - (m - g) * a.rest : m;
	}
}

/* wide: all buffers are aligned. */
static __global__ void momentum_kernel(mfk_momentum a, bool wide)
{
	const int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * EACH;
	const int64_t left = a.count - i;
	const bool whole = wide && left >= EACH;
	float g[EACH], m[EACH], to[EACH];

	if (left <= 0)
		return;
	load_any<EACH>(g, a.grad_type, a.grad, i, left, whole);
	load_any<EACH>(m, MFK_F32, a.m, i, left, whole);
#pragma unroll
	for (int k = 0; k < EACH; k++)
		mean(a, g[k] * a.grad_scale, m[k], to[k]);
	store_any<EACH>(MFK_F32, a.m, i, m, left, whole);
	store_any<EACH>(MFK_F32, a.update, i, to, left, whole);
}

void mfk_cuda_momentum(struct mfk_ctx *c, const struct mfk_momentum *a)
{
	if (a->count <= 0 || !mfk_cuda_begin(c))
		return;
	momentum_kernel<<<static_cast<unsigned>(ceil_div(a->count, MFK_THREADS * EACH)),
			  MFK_THREADS, 0, c->stream>>>(*a, aligned(a->grad, a->m, a->update));
	mfk_cuda_end(c, "momentum");
}

static __global__ void rows_kernel(mfk_copy_rows a)
{
	const int64_t i = static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x;
	const int64_t row = i / a.cols, col = i % a.cols;
	const float norm = a.squares ? fmaxf(static_cast<float>(sqrt(*a.squares)), a.least) : 1.f;
	float x[1];

	if (i >= a.rows * a.cols)
		return;
	load_any<1>(x, a.from_type, a.from, row * a.ld_from + col, 1, false);
	x[0] = a.scale * x[0] / norm;
	store_any<1>(a.to_type, a.to, row * a.ld_to + col, x, 1, false);
}

void mfk_cuda_copy_rows(struct mfk_ctx *c, const struct mfk_copy_rows *a)
{
	if (a->rows <= 0 || a->cols <= 0 || !mfk_cuda_begin(c))
		return;
	rows_kernel<<<static_cast<unsigned>(ceil_div(a->rows * a->cols, MFK_THREADS)), MFK_THREADS,
		      0, c->stream>>>(*a);
	mfk_cuda_end(c, "rows that a norm divides");
}
