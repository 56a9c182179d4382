/* What Muon does apart from products: momentum on flat buffers, and rows that a norm divides. */
#include "kernels/ref/ref_i.h"

#include <math.h>

#define CHUNK 2048 /* elements */

/* Both means are computed from their nearer end, as torch.lerp does it. */
MFK_SIMD static void update(const struct mfk_momentum *a, const float *grad, float *m, float *to,
			    int64_t n)
{
	const float momentum = a->momentum, rest = a->rest, scale = a->grad_scale;

	if (momentum < 0.5f) {
#pragma omp simd
		for (int64_t i = 0; i < n; i++) {
			const float g = grad[i] * scale, mean = g - (g - m[i]) * momentum;

			to[i] = a->nesterov ? g + momentum * (mean - g) : mean;
			m[i] = mean;
		}
		return;
	}
#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		const float g = grad[i] * scale, mean = m[i] + rest * (g - m[i]);

		to[i] = a->nesterov ? mean - (mean - g) * rest : mean;
		m[i] = mean;
	}
}

static void momentum_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_momentum *a = arg;

	for (int64_t at = begin; at < end; at += CHUNK) {
		const int64_t n = end - at < CHUNK ? end - at : CHUNK;

		update(a, mfk_load(a->grad_type, a->grad, at, n, scratch), a->m + at,
		       a->update + at, n);
	}
}

void mfk_ref_momentum(struct mfk_ctx *c, const struct mfk_momentum *a)
{
	mfk_parallel(c, a->count, MFK_GRAIN, CHUNK, momentum_part, a);
}

struct rows {
	const struct mfk_copy_rows *a;
	float norm; /* 1: nothing divides */
};

MFK_SIMD static void divide(const float *from, float scale, float norm, float *to, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		to[i] = scale * from[i] / norm;
}

/* Elements [begin, end) of all rows: one row may be most of a matrix. */
static void rows_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct rows *r = arg;
	const struct mfk_copy_rows *a = r->a;

	for (int64_t at = begin, n; at < end; at += n) {
		const int64_t row = at / a->cols, col = at % a->cols;
		const int64_t left = a->cols - col < end - at ? a->cols - col : end - at;
		const float *from;
		float *to;

		n = left < CHUNK ? left : CHUNK;
		from = mfk_load(a->from_type, a->from, row * a->ld_from + col, n, scratch);
		to = mfk_begin(a->to_type, a->to, row * a->ld_to + col, scratch + CHUNK);
		divide(from, a->scale, r->norm, to, n);
		mfk_end(a->to_type, a->to, row * a->ld_to + col, n, to);
	}
}

void mfk_ref_copy_rows(struct mfk_ctx *c, const struct mfk_copy_rows *a)
{
	const struct rows r = {a, a->squares ? fmaxf((float)sqrt(*a->squares), a->least) : 1};

	mfk_parallel(c, a->rows * a->cols, MFK_GRAIN, 2 * CHUNK, rows_part, &r);
}
