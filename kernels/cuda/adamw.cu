/* AdamW on a range of flat buffers. */
#include "kernels/cuda/vec.cuh"

static __global__ void adamw_kernel(mfk_adamw a, bool wide)
{
	int64_t i = (static_cast<int64_t>(blockIdx.x) * MFK_THREADS + threadIdx.x) * MFK_N;
	int64_t left = a.count - i;
	float w[MFK_N], g[MFK_N], m[MFK_N], v[MFK_N];

	if (left <= 0)
		return;
	load_any(g, a.grad_type, a.grad, i, left, wide);
	load_any(m, a.m_type, a.m, i, left, wide);
	load_any(v, a.v_type, a.v, i, left, wide);
	if (a.main)
		load_any(w, a.main_type, a.main, i, left, wide);
	else
		load_any(w, a.weight_type, a.weight, i, left, wide);
#pragma unroll
	for (int k = 0; k < MFK_N; k++) {
		float grad = g[k] * a.grad_scale, update;

		if (a.l2)
			grad += a.wd * w[k];
		m[k] = a.beta1 * m[k] + (1.f - a.beta1) * grad;
		v[k] = a.beta2 * v[k] + (1.f - a.beta2) * grad * grad;
		update = m[k] / a.correction1 / (sqrtf(v[k] / a.correction2) + a.eps);
		if (!a.l2)
			update += a.wd * w[k];
		w[k] -= a.lr * update;
	}
	store_any(a.m_type, a.m, i, m, left, wide);
	store_any(a.v_type, a.v, i, v, left, wide);
	if (a.main)
		store_any(a.main_type, a.main, i, w, left, wide);
	store_any(a.weight_type, a.weight, i, w, left, wide);
}

void mfk_cuda_adamw(struct mfk_ctx *c, const struct mfk_adamw *a)
{
	if (a->count <= 0 || !mfk_cuda_begin(c))
		return;
	adamw_kernel<<<flat_blocks(a->count), MFK_THREADS, 0, c->stream>>>(
		*a, aligned(a->weight, a->main, a->m, a->v, a->grad));
	mfk_cuda_end(c, "AdamW");
}
