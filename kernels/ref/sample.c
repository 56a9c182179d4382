/*
 * Tokens drawn of rows of logits. Nothing is sorted: what is left out are the logits below a limit,
 * and the limit is found by halving the range of floats, whose bits are in the order of their
 * values.
 */
#include "kernels/ref/math_i.h"

/* Of a row: its logits over the temperature, and e^(z - most). */
struct row {
	float *z, *e;
	int64_t n;
	float most;
	double sum; /* of e */
};

/* Long rows are added up in pieces: a float's sum of 100 000 terms loses three digits. */
#define PIECE 4096

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

MFK_SIMD static void divide(float *x, float by, int64_t n)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		x[i] /= by;
}

MFK_SIMD static float maximum(const float *x, int64_t n)
{
	float most = -INFINITY;

#pragma omp simd reduction(max : most)
	for (int64_t i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	return most;
}

/* Returns the sum of e^(x - most), which y gets. */
MFK_SIMD static float exponentials(const float *x, float most, int64_t n, float *y)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++) {
		y[i] = mfk_exp(x[i] - most);
		sum += y[i];
	}
	return sum;
}

MFK_SIMD static float sum_from(const float *z, const float *e, float limit, int64_t n)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t i = 0; i < n; i++)
		sum += z[i] >= limit ? e[i] : 0;
	return sum;
}

MFK_SIMD static int64_t count_from(const float *z, float limit, int64_t n)
{
	int64_t count = 0;

#pragma omp simd reduction(+ : count)
	for (int64_t i = 0; i < n; i++)
		count += z[i] >= limit;
	return count;
}

/* The row as floats, of all parts; room for twice the vocabulary. */
static struct row load(const struct mfk_sample *a, int64_t number, float *room)
{
	struct row r = {.z = room, .e = room + a->vocab, .n = a->vocab};

	for (int64_t p = 0; p < a->parts && p * a->cols < r.n; p++)
		mfk_to_f32(a->dtype, mfk_at(a->dtype, a->logits, (p * a->rows + number) * a->ld),
			   smaller(a->cols, r.n - p * a->cols), r.z + p * a->cols);
	if (a->temperature > 0)
		divide(r.z, a->temperature, r.n);
	r.most = maximum(r.z, r.n);
	for (int64_t i = 0; i < r.n; i += PIECE)
		r.sum += exponentials(r.z + i, r.most, smaller(PIECE, r.n - i), r.e + i);
	return r;
}

/* ---- what is left out ---- */

/* Whole numbers in the order of floats, and back. -0 and 0 are neighbours, and equal as floats. */
static uint32_t key_of(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	return u & 0x80000000 ? ~u : u | 0x80000000;
}

static float of_key(uint32_t key)
{
	const uint32_t u = key & 0x80000000 ? key & 0x7fffffff : ~key;
	float x;

	memcpy(&x, &u, 4);
	return x;
}

static double mass_from(const struct row *r, float limit)
{
	double sum = 0;

	for (int64_t i = 0; i < r->n; i += PIECE)
		sum += sum_from(r->z + i, r->e + i, limit, smaller(PIECE, r->n - i));
	return sum;
}

/* The greatest limit that leaves at least so many logits, or so great a sum of exponentials; low is
 * one that does. */
static float greatest_limit(const struct row *r, float low, int64_t count, double mass)
{
	uint32_t does = key_of(low), does_not = key_of(r->most) + 1;

	while (does_not - does > 1) {
		const uint32_t middle = does + (does_not - does) / 2;
		const float limit = of_key(middle);
		const bool enough = count ? count_from(r->z, limit, r->n) >= count
					  : mass_from(r, limit) >= mass;

		if (enough)
			does = middle;
		else
			does_not = middle;
	}
	return of_key(does);
}

static float limit_of(const struct mfk_sample *a, const struct row *r)
{
	float limit = -INFINITY;

	if (a->top_k > 0 && a->top_k < r->n)
		limit = greatest_limit(r, limit, a->top_k, 0);
	if (a->top_p < 1)
		limit = greatest_limit(r, limit, 0, (double)a->top_p * mass_from(r, limit));
	return limit;
}

/* ---- draws ---- */

static double uniform(uint64_t seed, uint64_t number)
{
	uint32_t words[2];

	mfk_numbers(seed, 2 * number, 2, words);
	return (double)((uint64_t)words[0] << 21 | words[1] >> 11) * 0x1p-53;
}

/* The first token up to which more than target is left; the last that is left, should rounding miss
 * it. */
static int64_t walk(const struct row *r, float limit, double target)
{
	int64_t last = 0;
	double before = 0;

	for (int64_t i = 0; i < r->n; i += PIECE) {
		const int64_t end = smaller(i + PIECE, r->n);
		const double piece = sum_from(r->z + i, r->e + i, limit, end - i);
		double sum = before;

		for (int64_t k = i; k < end && piece > 0; k++) {
			if (!(r->z[k] >= limit))
				continue;
			last = r->e[k] > 0 ? k : last;
			if (before + piece <= target)
				continue;
			sum += (double)r->e[k];
			if (sum > target)
				return k;
		}
		before += piece;
	}
	return last;
}

static int64_t greatest(const struct row *r)
{
	int64_t i = 0;

	while (i + 1 < r->n && r->z[i] != r->most)
		i++;
	return i;
}

static void draw(const struct mfk_sample *a, int64_t i, float *room)
{
	const struct row r = load(a, a->row[i], room);
	int64_t token;
	float limit;

	a->token[i] = -1;
	a->log_prob[i] = 0;
	if (!isfinite(r.most) || !(r.sum > 0)) /* or it is a NaN */
		return;
	if (a->temperature > 0) {
		limit = limit_of(a, &r);
		token = walk(&r, limit, uniform(a->seed[i], a->number[i]) * mass_from(&r, limit));
	} else {
		token = greatest(&r);
	}
	a->token[i] = (int32_t)token;
	a->log_prob[i] = (float)((double)r.z[token] - (double)r.most - log(r.sum));
}

static void draw_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	for (int64_t i = begin; i < end; i++)
		draw(arg, i, scratch);
}

void mfk_ref_sample(struct mfk_ctx *c, const struct mfk_sample *a)
{
	mfk_parallel(c, a->count, 1, 2 * (size_t)a->vocab, draw_part, a);
}
