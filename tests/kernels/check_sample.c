/* Tokens drawn of rows of logits: each draw is made again here, with doubles and by sorting. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

struct problem {
	struct mfk_sample a;
	struct tensor *logits, *tokens, *log_probs;
	int32_t *row;
	uint64_t *seed, *number; /* here */
};

static int descending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x < y) - (x > y);
}

/* Divided as floats are: which ones are equal matters. */
static double logit(const struct problem *p, int64_t row, int64_t token)
{
	const struct mfk_sample *a = &p->a;
	const double x = p->logits->x[(token / a->cols * a->rows + row) * a->ld + token % a->cols];

	return a->temperature > 0 ? (double)((float)x / a->temperature) : x;
}

/* The least of what is left. sorted: in descending order. */
static double limit_of(const struct mfk_sample *a, const double *sorted)
{
	int64_t left = a->vocab, i = 0;
	double all = 0, sum = 0;

	if (a->top_k > 0 && a->top_k < a->vocab)
		for (left = a->top_k; left < a->vocab && sorted[left] == sorted[left - 1];)
			left++;
	for (int64_t k = 0; k < left; k++)
		all += exp(sorted[k] - sorted[0]);
	while (i < left && (i == 0 || a->top_p >= 1 || sum < (double)a->top_p * all))
		sum += exp(sorted[i++] - sorted[0]);
	return sorted[i - 1];
}

/* How far the sum up to a token, and up to the one before it, are from what was drawn, in parts of
 * the whole: both at most 0 if the token is right. */
static double off(const struct problem *p, int64_t i, int64_t token, const double *sorted)
{
	const struct mfk_sample *a = &p->a;
	const double limit = limit_of(a, sorted);
	const uint64_t n = 2 * p->number[i];
	const uint64_t high = check_number(p->seed[i], n), low = check_number(p->seed[i], n + 1);
	const double u = (double)(high << 21 | low >> 11) * 0x1p-53;
	double sum = 0, before = 0, upto = 0;

	for (int64_t k = 0; k < a->vocab; k++) {
		const double z = logit(p, p->row[i], k);
		const double e = z >= limit ? exp(z - sorted[0]) : 0;

		before = k == token ? sum : before;
		sum += e;
		upto = k == token ? sum : upto;
	}
	return logit(p, p->row[i], token) < limit ? 1 : fmax(before / sum - u, u - upto / sum);
}

/* Of all tokens of a row: descending logits, and the logarithm of the sum of exponentials. */
static double sort(const struct problem *p, int64_t row, double *sorted)
{
	double sum = 0;

	for (int64_t k = 0; k < p->a.vocab; k++)
		sorted[k] = logit(p, row, k);
	qsort(sorted, (size_t)p->a.vocab, sizeof(*sorted), descending);
	for (int64_t k = 0; k < p->a.vocab; k++)
		sum += exp(sorted[k] - sorted[0]);
	return sorted[0] + log(sum);
}

static void compare(struct check *c, const struct problem *p)
{
	double *sorted = check_doubles(c, p->a.vocab);
	double *log_probs = check_doubles(c, p->a.count);
	int32_t *tokens = malloc((size_t)p->a.count * 4);

	check_fetch_ints(c, p->tokens, tokens);
	for (int64_t i = 0; i < p->a.count; i++) {
		const double lse = sort(p, p->row[i], sorted);

		if (tokens[i] < 0 || tokens[i] >= p->a.vocab) {
			check_failed(c, "token %lld is %d", (long long)i, tokens[i]);
			break;
		}
		log_probs[i] = logit(p, p->row[i], tokens[i]) - lse;
		if (p->a.temperature > 0 ? off(p, i, tokens[i], sorted) > 1e-6
					 : logit(p, p->row[i], tokens[i]) < sorted[0])
			check_failed(c, "token %lld is not %d", (long long)i, tokens[i]);
		for (int64_t k = 0; p->a.temperature <= 0 && k < tokens[i]; k++)
			if (logit(p, p->row[i], k) == sorted[0])
				check_failed(c, "token %d is before %d, and as great", (int)k,
					     tokens[i]);
	}
	check_near(c, "log_prob", p->log_probs, log_probs, 2e-6, 1);
	free(tokens);
}

static void make(struct check *c, struct problem *p, double spread)
{
	struct mfk_sample *a = &p->a;
	const int64_t count = a->count;

	p->logits = check_input(c, a->dtype, a->parts * a->rows * a->ld, 0, spread);
	p->tokens = check_output(c, MFK_F32, count);
	p->log_probs = check_output(c, MFK_F32, count);
	p->row = calloc((size_t)count, sizeof(*p->row));
	p->seed = calloc((size_t)count, sizeof(*p->seed));
	p->number = calloc((size_t)count, sizeof(*p->number));
	for (int64_t i = 0; i < count; i++) {
		p->row[i] = (int32_t)check_below(c, a->rows);
		p->seed[i] = check_random(c);
		p->number[i] = check_random(c) >> 8;
	}
	a->logits = p->logits->p;
	a->row = check_ints(c, p->row, count);
	a->seed = (const uint64_t *)check_ints(c, (const int32_t *)p->seed, 2 * count);
	a->number = (const uint64_t *)check_ints(c, (const int32_t *)p->number, 2 * count);
	a->token = p->tokens->p;
	a->log_prob = p->log_probs->p;
}

static void sample(struct check *c, enum mfk_dtype type, const int64_t shape[5], double spread)
{
	static const struct {
		float temperature, top_p;
		int64_t top_k;
	} ways[] = {{0, 1, 0},	     {1, 1, 0},	    {0.7f, 1, 5},
		    {1.3f, 0.9f, 0}, {1, 0.5f, 40}, {2, 1e-3f, 1}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ways); i++) {
		struct problem p = {.a = {.dtype = type,
					  .count = shape[0],
					  .rows = shape[1],
					  .vocab = shape[2],
					  .parts = shape[3],
					  .cols = (shape[2] + shape[4] + shape[3] - 1) / shape[3],
					  .temperature = ways[i].temperature,
					  .top_p = ways[i].top_p,
					  .top_k = ways[i].top_k}};

		p.a.ld = p.a.cols + shape[4];
		check_shape(c, "%lld of %lld x %lld in %lld parts, %s, T %g, p %g, k %lld",
			    (long long)shape[0], (long long)shape[1], (long long)shape[2],
			    (long long)shape[3], check_type_name(type), (double)ways[i].temperature,
			    (double)ways[i].top_p, (long long)ways[i].top_k);
		make(c, &p, spread);
		c->ops->sample(c->ctx, &p.a);
		compare(c, &p);
		free(p.row);
		free(p.seed);
		free(p.number);
	}
}

/* How often each of a few tokens is drawn is what its probability says, within five deviations. */
static void frequencies(struct check *c)
{
	static const double x[] = {0, 1, -1, 2, 0.5, -INFINITY, 9};
	enum { VOCAB = 6, DRAWS = 4000 };
	struct problem p = {.a = {.dtype = MFK_F32,
				  .count = DRAWS,
				  .rows = 1,
				  .vocab = VOCAB,
				  .parts = 1,
				  .cols = VOCAB + 1,
				  .ld = VOCAB + 1,
				  .temperature = 1,
				  .top_p = 1}};
	int32_t tokens[DRAWS], counts[VOCAB] = {0};
	double sum = 0;

	check_shape(c, "frequencies");
	make(c, &p, 1);
	p.logits = check_values(c, MFK_F32, VOCAB + 1, x);
	p.a.logits = p.logits->p;
	for (int i = 0; i < DRAWS; i++) /* one request, token after token */
		p.number[i] = (uint64_t)i, p.seed[i] = p.seed[0];
	p.a.seed = (const uint64_t *)check_ints(c, (const int32_t *)p.seed, 2 * DRAWS);
	p.a.number = (const uint64_t *)check_ints(c, (const int32_t *)p.number, 2 * DRAWS);
	c->ops->sample(c->ctx, &p.a);
	check_fetch_ints(c, p.tokens, tokens);
	for (int i = 0; i < DRAWS; i++)
		counts[tokens[i] >= 0 && tokens[i] < VOCAB ? tokens[i] : 5]++;
	for (int k = 0; k < VOCAB; k++)
		sum += exp(x[k]);
	for (int k = 0; k < VOCAB; k++) {
		const double prob = exp(x[k]) / sum;

		if (fabs(counts[k] - DRAWS * prob) > 5 * sqrt(DRAWS * prob * (1 - prob)))
			check_failed(c, "token %d was drawn %d times, not about %g", k, counts[k],
				     DRAWS * prob);
	}
	free(p.row);
	free(p.seed);
	free(p.number);
}

/* Equal greatest ones, and rows that no token can be drawn of. */
static void odd_rows(struct check *c)
{
	static const double x[] = {1,	     3, 3, 0, 1,	 NAN,	    0,	       1,
				   INFINITY, 1, 2, 1, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
	static const int32_t rows[] = {0, 1, 2, 3}, want[] = {1, -1, -1, -1};
	struct problem p = {.a = {.dtype = MFK_BF16,
				  .count = 4,
				  .rows = 4,
				  .vocab = 4,
				  .parts = 1,
				  .cols = 4,
				  .ld = 4,
				  .top_p = 1}};
	int32_t tokens[4];

	check_shape(c, "odd rows");
	make(c, &p, 1);
	p.a.logits = check_values(c, MFK_BF16, 16, x)->p;
	p.a.row = check_ints(c, rows, 4);
	for (int t = 0; t < 2; t++) {
		p.a.temperature = (float)t;
		p.a.top_k = t; /* both greatest are left */
		c->ops->sample(c->ctx, &p.a);
		check_fetch_ints(c, p.tokens, tokens);
		for (int i = 0; i < 4; i++)
			if (tokens[i] != want[i] && !(t && !i && tokens[i] == 2))
				check_failed(c, "row %d, temperature %d: token %d", i, t,
					     tokens[i]);
	}
	free(p.row);
	free(p.seed);
	free(p.number);
}

void check_sample(struct check *c)
{
	/* tokens, rows, vocabulary, parts, padding */
	static const int64_t shapes[][5] = {
		{1, 1, 1, 1, 0}, {7, 3, 33, 1, 2}, {9, 4, 1000, 3, 5}, {2, 2, 20011, 2, 64}};

	if (!c->ops->sample)
		return;
	for (int t = 0; t < 3; t++)
		for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
			if (i < 3 || check_types[t] == MFK_BF16)
				sample(c, check_types[t], shapes[i], i == 1 ? 5 : 1.5);
	frequencies(c);
	odd_rows(c);
}
