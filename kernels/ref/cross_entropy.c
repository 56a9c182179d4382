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

static void whole_rows(const void *arg, int64_t begin, int64_t end, float *scratch)
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

static bool valid(struct mfk_ctx *c, const struct mfk_cross_entropy *a, int64_t end)
{
	for (int64_t i = 0; i < a->rows; i++) {
		if (a->labels[i] >= 0 && a->labels[i] < end)
			continue;
		mfk_fail(c, "cross entropy: label %d of row %lld is outside of [0, %lld)",
			 a->labels[i], (long long)i, (long long)end);
		return false;
	}
	return true;
}

void mfk_ref_cross_entropy(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	if (valid(c, a, a->vocab))
		mfk_parallel(c, a->rows, mfk_row_grain(4 * a->vocab), (size_t)a->vocab, whole_rows,
			     a);
}

/* ---- of columns that are divided ---- */

/* The label's column here, or -1. */
static int64_t label_here(const struct mfk_cross_entropy *a, int64_t row)
{
	const int64_t label = a->labels[row] - a->first;

	return label >= 0 && label < a->vocab ? label : -1;
}

static void part_rows(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_cross_entropy *a = arg;
	float *stats = a->stats + 3 * a->part * a->rows;

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->logits, row * a->ld, a->vocab, scratch);
		const float most = maximum(x, a->vocab);
		const int64_t label = label_here(a, row);

		stats[row] = most;
		stats[a->rows + row] = (float)sum_of_row(x, most, a->vocab, NULL);
		stats[2 * a->rows + row] = label < 0 ? 0 : x[label];
	}
}

void mfk_ref_cross_entropy_part(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	if (valid(c, a, a->all))
		mfk_parallel(c, a->rows, mfk_row_grain(4 * a->vocab), (size_t)a->vocab, part_rows,
			     a);
}

/* A row of all parts: its greatest logit, the sum of e^(x - most), and its label's logit. */
struct joined {
	float most, label;
	double sum;
};

/* The parts' stats in their order. */
static struct joined join_stats(const struct mfk_cross_entropy *a, int64_t row)
{
	const float *stats = a->stats + row;
	struct joined j = {.most = -INFINITY};

	for (int64_t p = 0; p < a->parts; p++)
		j.most = fmaxf(j.most, stats[3 * p * a->rows]);
	for (int64_t p = 0; p < a->parts; p++) {
		j.sum += stats[(3 * p + 1) * a->rows] * exp(stats[3 * p * a->rows] - j.most);
		j.label += stats[(3 * p + 2) * a->rows];
	}
	return j;
}

/* Not from the logarithm of the sum, whose last bit would be a large part of small gradients. */
static void gradient_of_row(const struct mfk_cross_entropy *a, int64_t row, const struct joined *j,
			    float *scratch)
{
	const float *x = mfk_load(a->dtype, a->logits, row * a->ld, a->vocab, scratch);
	float *d = mfk_begin(a->dtype, a->dlogits, row * a->ld, scratch);
	const int64_t label = label_here(a, row);

	exponentials(x, j->most, a->vocab, d);
	multiply(d, (float)(a->scale[row] / j->sum), a->vocab);
	if (label >= 0)
		d[label] -= a->scale[row];
	mfk_end(a->dtype, a->dlogits, row * a->ld, a->vocab, d);
}

static void join_rows(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_cross_entropy *a = arg;

	for (int64_t row = begin; row < end; row++) {
		const struct joined j = join_stats(a, row);
		const float lse = j.most + (float)log(j.sum);

		a->loss[row] = lse - j.label;
		if (a->lse)
			a->lse[row] = lse;
		if (a->dlogits)
			gradient_of_row(a, row, &j, scratch);
	}
}

void mfk_ref_cross_entropy_join(struct mfk_ctx *c, const struct mfk_cross_entropy *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(4 * a->vocab), (size_t)a->vocab, join_rows, a);
}
