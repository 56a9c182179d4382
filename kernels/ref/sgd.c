/* SGD on flat buffers. */
#include "kernels/ref/ref_i.h"

#define CHUNK 2048 /* elements: three buffers of them stay in the first cache */

/* m NULL: no momentum. */
MFK_SIMD static void update(const struct mfk_sgd *a, const float *grad, float *w, float *m,
			    int64_t n)
{
	float lr = a->lr, wd = a->wd, momentum = a->momentum, scale = a->grad_scale;

	if (!m) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++)
			w[i] -= lr * (grad[i] * scale + wd * w[i]);
		return;
	}
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		m[i] = momentum * m[i] + (grad[i] * scale + wd * w[i]);
		w[i] -= lr * m[i];
	}
}

static float *open(enum mfk_dtype type, void *base, int64_t at, int64_t n, float *buf)
{
	mfk_load(type, base, at, n, buf);
	return mfk_begin(type, base, at, buf);
}

static void sgd_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_sgd *a = arg;
	void *main = a->main ? a->main : a->weight;
	enum mfk_dtype type = a->main ? a->main_type : a->weight_type;

	for (int64_t at = begin; at < end; at += CHUNK) {
		int64_t n = end - at < CHUNK ? end - at : CHUNK;
		const float *grad = mfk_load(a->grad_type, a->grad, at, n, scratch);
		float *w = open(type, main, at, n, scratch + CHUNK);
		float *m = a->m ? open(a->m_type, a->m, at, n, scratch + 2 * CHUNK) : NULL;

		update(a, grad, w, m, n);
		if (m)
			mfk_end(a->m_type, a->m, at, n, m);
		mfk_end(type, main, at, n, w);
		if (a->main)
			mfk_from_f32(a->weight_type, w, n, mfk_at(a->weight_type, a->weight, at));
	}
}

void mfk_ref_sgd(struct mfk_ctx *c, const struct mfk_sgd *a)
{
	mfk_parallel(c, a->count, MFK_GRAIN, 3 * CHUNK, sgd_part, a);
}
