/* Log-probs of labels and entropies of rows of logits, and their gradient. */
#include "kernels/ref/math_i.h"

#define STATS 4
/* e^x is 0 from here on down; so that 0 times x is 0, x is no less. */
#define LEAST (-104.0f)

/* Columns here that are no padding. */
static int64_t known_here(const struct mfk_log_probs *a)
{
	const int64_t left = a->known - a->first;

	return left < 0 ? 0 : left < a->vocab ? left : a->vocab;
}

MFK_SIMD static float maximum(const float *x, float by, int64_t n)
{
	float most = -INFINITY;

#pragma omp simd reduction(max : most)
	for (int64_t i = 0; i < n; i++) {
		const float z = by * x[i];

		most = z > most ? z : most;
	}
	return most;
}

/* Of z - most = d: the sums of e^d and of e^d d. */
MFK_SIMD static void add_up(const float *x, float by, float most, int64_t n, float *ret)
{
	float sum = 0, weighted = 0;

#pragma omp simd reduction(+ : sum, weighted)
	for (int64_t i = 0; i < n; i++) {
		const float d = by * x[i] - most, held = d < LEAST ? LEAST : d;
		const float e = mfk_exp(d);

		sum += e;
		weighted += e * held;
	}
	ret[0] = sum;
	ret[1] = weighted;
}

/* Long rows are added up in pieces: a float's sum of 100 000 terms loses three digits. */
#define PIECE 4096

static void add_up_row(const float *x, float by, float most, int64_t n, double *ret)
{
	ret[0] = ret[1] = 0;
	for (int64_t i = 0; i < n; i += PIECE) {
		float piece[2];

		add_up(x + i, by, most, n - i < PIECE ? n - i : PIECE, piece);
		ret[0] += piece[0];
		ret[1] += piece[1];
	}
}

static int64_t label_here(const struct mfk_log_probs *a, int64_t row)
{
	const int64_t label = a->labels[row] - a->first;

	return label >= 0 && label < a->vocab ? label : -1;
}

static void part_rows(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_log_probs *a = arg;
	float *stats = a->stats + STATS * a->part * a->rows;
	const int64_t known = known_here(a);

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->logits, row * a->ld, known, scratch);
		const float most = maximum(x, a->by, known);
		const int64_t label = label_here(a, row);
		double sums[2];

		add_up_row(x, a->by, most, known, sums);
		stats[row] = most;
		stats[a->rows + row] = (float)sums[0];
		stats[2 * a->rows + row] = label < 0 ? 0 : a->by * x[label];
		stats[3 * a->rows + row] = (float)sums[1];
	}
}

static bool valid(struct mfk_ctx *c, const struct mfk_log_probs *a)
{
	for (int64_t i = 0; i < a->rows; i++) {
		if (a->labels[i] >= 0 && a->labels[i] < a->known)
			continue;
		mfk_fail(c, "log-probs: label %d of row %lld is outside of [0, %lld)", a->labels[i],
			 (long long)i, (long long)a->known);
		return false;
	}
	return true;
}

void mfk_ref_log_probs_part(struct mfk_ctx *c, const struct mfk_log_probs *a)
{
	if (valid(c, a))
		mfk_parallel(c, a->rows, mfk_row_grain(4 * a->vocab), (size_t)a->vocab, part_rows,
			     a);
}

/* ---- all parts ---- */

/* A row of all parts: its greatest z, the label's z, and the sums of e^d and e^d d. */
struct joined {
	float most, label;
	double sum, weighted;
};

/* The parts' stats in their order. */
static struct joined join_stats(const struct mfk_log_probs *a, int64_t row)
{
	const float *stats = a->stats + row;
	struct joined j = {.most = -INFINITY};

	for (int64_t p = 0; p < a->parts; p++)
		j.most = fmaxf(j.most, stats[STATS * p * a->rows]);
	for (int64_t p = 0; p < a->parts; p++) {
		const float *of = stats + STATS * p * a->rows;
		const double below = (double)of[0] - j.most, by = exp(below);

		j.label += of[2 * a->rows];
		if (of[a->rows] <= 0)
			continue;
		j.sum += by * of[a->rows];
		j.weighted += by * (of[3 * a->rows] + below * of[a->rows]);
	}
	return j;
}

static void join_rows(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_log_probs *a = arg;

	(void)scratch;
	for (int64_t row = begin; row < end; row++) {
		const struct joined j = join_stats(a, row);
		const double log_sum = log(j.sum);

		a->log_prob[row] = (float)((double)j.label - j.most - log_sum);
		a->entropy[row] = (float)(log_sum - j.weighted / j.sum);
	}
}

void mfk_ref_log_probs_join(struct mfk_ctx *c, const struct mfk_log_probs *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(16 * a->parts), 0, join_rows, a);
}

/* ---- the gradient ---- */

/* d = -p (dlog_prob + dentropy (log p + entropy)) by, with log p = by x - most - log sum. */
struct slope {
	float by, most, inverse_sum; /* p = e^(by x - most) inverse_sum */
	float dlog_prob, dentropy;   /* times -by */
	float shift;		     /* entropy - log sum */
};

MFK_SIMD static void gradient_of_row(const float *x, const struct slope *s, int64_t n, float *y)
{
	const struct slope l = *s;

#pragma omp simd
	for (int64_t i = 0; i < n; i++) {
		const float d = l.by * x[i] - l.most, held = d < LEAST ? LEAST : d;
		const float p = mfk_exp(d) * l.inverse_sum;

		y[i] = p * (l.dlog_prob + l.dentropy * (held + l.shift));
	}
}

static void backward_rows(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_log_probs *a = arg;
	const int64_t known = known_here(a);

	for (int64_t row = begin; row < end; row++) {
		const float *x = mfk_load(a->dtype, a->logits, row * a->ld, known, scratch);
		float *d = mfk_begin(a->dtype, a->dlogits, row * a->ld, scratch);
		const struct joined j = join_stats(a, row);
		const int64_t label = label_here(a, row);
		const struct slope s = {
			.by = a->by,
			.most = j.most,
			.inverse_sum = (float)(1 / j.sum),
			.dlog_prob = -a->by * a->dlog_prob[row],
			.dentropy = a->dentropy ? -a->by * a->dentropy[row] : 0,
			.shift = (float)(a->entropy[row] - log(j.sum)),
		};

		gradient_of_row(x, &s, known, d);
		if (label >= 0)
			d[label] += a->by * a->dlog_prob[row];
		for (int64_t i = known; i < a->vocab; i++)
			d[i] = 0;
		mfk_end(a->dtype, a->dlogits, row * a->ld, a->vocab, d);
	}
}

void mfk_ref_log_probs_backward(struct mfk_ctx *c, const struct mfk_log_probs *a)
{
	mfk_parallel(c, a->rows, mfk_row_grain(4 * a->vocab), (size_t)a->vocab, backward_rows, a);
}
