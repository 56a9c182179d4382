/* AdamW on flat buffers. */
#include "kernels/ref/ref_i.h"

#include <math.h>

#define CHUNK 2048 /* elements: five buffers of them stay in the first cache */

MFK_SIMD static void update(const struct mfk_adamw *a, const float *grad, float *w, float *m,
			    float *v, int64_t n)
{
	float decay = a->l2 ? 0 : a->wd, l2 = a->l2 ? a->wd : 0;
	float lr = a->lr, eps = a->eps, scale = a->grad_scale;
	float beta1 = a->beta1, beta2 = a->beta2;
	float by1 = 1 / a->correction1, by2 = 1 / a->correction2;

#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		float g = grad[i] * scale + l2 * w[i];

		m[i] = beta1 * m[i] + (1 - beta1) * g;
		v[i] = beta2 * v[i] + (1 - beta2) * g * g;
		w[i] -= lr * (m[i] * by1 / (sqrtf(v[i] * by2) + eps) + decay * w[i]);
	}
}

static float *open(enum mfk_dtype type, void *base, int64_t at, int64_t n, float *buf)
{
	mfk_load(type, base, at, n, buf);
	return mfk_begin(type, base, at, buf);
}

static void adamw_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_adamw *a = arg;
	void *main = a->main ? a->main : a->weight;
	enum mfk_dtype type = a->main ? a->main_type : a->weight_type;

	for (int64_t at = begin; at < end; at += CHUNK) {
		int64_t n = end - at < CHUNK ? end - at : CHUNK;
		const float *grad = mfk_load(a->grad_type, a->grad, at, n, scratch);
		float *w = open(type, main, at, n, scratch + CHUNK);
		float *m = open(a->m_type, a->m, at, n, scratch + 2 * CHUNK);
		float *v = open(a->v_type, a->v, at, n, scratch + 3 * CHUNK);

		update(a, grad, w, m, v, n);
		mfk_end(a->m_type, a->m, at, n, m);
		mfk_end(a->v_type, a->v, at, n, v);
		mfk_end(type, main, at, n, w);
		if (a->main)
			mfk_from_f32(a->weight_type, w, n, mfk_at(a->weight_type, a->weight, at));
	}
}

void mfk_ref_adamw(struct mfk_ctx *c, const struct mfk_adamw *a)
{
	mfk_parallel(c, a->count, MFK_GRAIN, 4 * CHUNK, adamw_part, a);
}
