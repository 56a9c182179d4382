/* Cross entropy of logits, with its gradient in the same walk. */
#include "kernels/ref/math_i.h"

MFK_SIMD static float maximum(const float *x, int64_t n)
{
	float most = -INFINITY;

#pragma omp simd reduction(max : most)
	for (int64_t i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	return most;
}

/* Returns the sum of e^(x - most), which y gets; y may be x. */
MFK_SIMD static float exponentials(const float *x, float most, int64_t n, float *y)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++) {
		float e = mfk_exp(x[i] - most);

		y[i] = e;
		sum += e;
	}
	return sum;
}

MFK_SIMD static float exponentials_sum(const float *x, float most, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += mfk_exp(x[i] - most);
	return sum;
}

MFK_SIMD static void multiply(float *x, float by, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] *= by;
}

/* Long rows are added up in pieces: a float's sum of 100 000 terms loses three digits. */
#define PIECE 4096

static double sum_of_row(const float *x, float most, int64_t n, float *y)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i += PIECE) {
		int64_t count = n - i < PIECE ? n - i : PIECE;

		sum += y ? exponentials(x + i, most, count, y + i)
			 : exponentials_sum(x + i, most, count);
	}
	return sum;
}

static void cross_entropy_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_cross_entropy *a = arg;

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->logits, row * a->ld, a->vocab, scratch);
		float *d =
			a->dlogits ? mfk_begin(a->dtype, a->dlogits, row * a->ld, scratch) : NULL;
		float most = maximum(x, a->vocab), label = x[a->labels[row]];
		double sum = sum_of_row(x, most, a->vocab, d);
		float lse = most + (float)log(sum);

		a->loss[row] = lse - label;
		if (a->lse)
			a->lse[row] = lse;
		if (!d)
			continue;
		multiply(d, (float)(a->scale[row] / sum), a->vocab);
		d[a->labels[row]] -= a->scale[row];
		mfk_end(a->dtype, a->dlogits, row * a->ld, a->vocab, d);
	}
}

void mfk_ref_cross_entropy(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	for (int64_t i = 0; i < a->rows; i++) {
		if (a->labels[i] >= 0 && a->labels[i] < a->vocab)
			continue;
		mfk_fail(c, "cross entropy: label %d of row %lld is outside of [0, %lld)",
			 a->labels[i], (long long)i, (long long)a->vocab);
		return;
	}
	mfk_parallel(c, a->rows, mfk_row_grain(4 * a->vocab), (size_t)a->vocab, cross_entropy_part,
		     a);
}
