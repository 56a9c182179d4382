/* The router of a mixture of experts, a token at a time. */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref_i.h"

#define TINY 1e-20f /* Megatron adds it to a sum that it divides by */

/* A thread's scratch: six rows of a number for each expert, the last of which are flags. */
struct row {
	const float *logits;
	float *score; /* of all experts; of softmax: divided by its sum */
	float *key;   /* what is compared in the choice */
	float *slope; /* the gradient of a score; unused with softmax */
	float *sum;   /* backward: the gradient of logits */
	unsigned char *chosen;
};

static struct row row_of(const struct mfk_route *a, int64_t token, float *scratch)
{
	const int64_t n = a->experts;

	return (struct row){
		.logits = mfk_load(a->dtype, a->logits, token * n, n, scratch),
		.score = scratch + n,
		.key = scratch + 2 * n,
		.slope = scratch + 3 * n,
		.sum = scratch + 4 * n,
		.chosen = (unsigned char *)(scratch + 5 * n),
	};
}

static size_t row_floats(const struct mfk_route *a)
{
	return 6 * (size_t)a->experts;
}

/* y = e^(x - most), divided by the sum; returns the logarithm of the sum of e^x. y may be x. */
static float softmax(const float *x, int64_t n, float *y)
{
	float most = -INFINITY, sum = 0;

	for (int64_t i = 0; i < n; i++)
		most = x[i] > most ? x[i] : most;
	for (int64_t i = 0; i < n; i++)
		sum += y[i] = expf(x[i] - most);
	for (int64_t i = 0; i < n; i++)
		y[i] /= sum;
	return most + logf(sum);
}

static float sigmoid(float x)
{
	return 1 / (1 + expf(-x));
}

static float softplus(float x)
{
	return x > 20 ? x : log1pf(expf(x));
}

/* Scores, before any division of those that are no softmax. */
static void score_all(const struct mfk_route *a, struct row *r)
{
	if (a->score == MFK_SCORE_SOFTMAX) {
		softmax(r->logits, a->experts, r->score);
		return;
	}
	for (int64_t e = 0; e < a->experts; e++) {
		const float s = sigmoid(r->logits[e]);

		if (a->score == MFK_SCORE_SIGMOID) {
			r->score[e] = s;
			r->slope[e] = s * (1 - s);
		} else {
			r->score[e] = sqrtf(softplus(r->logits[e]));
			r->slope[e] = r->score[e] > 0 ? s / (2 * r->score[e]) : 0;
		}
	}
}

/* ---- choices ---- */

/* The best of [0, n) that is not chosen; of equal ones the first. There is one. */
static int64_t best(const float *key, const unsigned char *chosen, int64_t n)
{
	int64_t found = -1;

	for (int64_t i = 0; i < n; i++)
		if (!chosen[i] && (found < 0 || key[i] > key[found]))
			found = i;
	return found;
}

/* The sum of a group's best `count` keys. */
static float group_key(const float *key, unsigned char *chosen, int64_t n, int64_t count)
{
	float sum = 0;

	memset(chosen, 0, (size_t)n);
	for (int64_t i = 0; i < count; i++) {
		const int64_t e = best(key, chosen, n);

		chosen[e] = 1;
		sum += key[e];
	}
	return sum;
}

/* Marks those experts as chosen that are in none of the best groups. Sums of groups are in `sums`.
 */
static void close_groups(const struct mfk_route *a, struct row *r, float *sums)
{
	const int64_t each = a->experts / a->groups;

	for (int64_t g = 0; g < a->groups; g++)
		sums[g] = group_key(r->key + g * each, r->chosen, each, a->top_k / a->group_top_k);
	memset(r->chosen, 0, (size_t)a->groups);
	for (int64_t i = 0; i < a->group_top_k; i++)
		r->chosen[best(sums, r->chosen, a->groups)] = 1;
	/* From the last group on, so that a group's flag is read before its experts' are written.
	 */
	for (int64_t g = a->groups - 1; g >= 0; g--)
		memset(r->chosen + g * each, !r->chosen[g], (size_t)each);
}

enum { FREE, CLOSED, CHOSEN };

static void choose(const struct mfk_route *a, struct row *r, bool groups)
{
	memset(r->chosen, FREE, (size_t)a->experts);
	if (groups)
		close_groups(a, r, r->sum);
	for (int64_t i = 0; i < a->top_k; i++)
		r->chosen[best(r->key, r->chosen, a->experts)] = CHOSEN;
}

/* Probabilities of those that are chosen, before scale. Returns the sum that they were divided by.
 */
static float probabilities(const struct mfk_route *a, const float *score, float *prob)
{
	float sum = TINY;

	if (a->score == MFK_SCORE_SOFTMAX && !a->pre_softmax) {
		softmax(score, a->top_k, prob);
		return 1;
	}
	for (int64_t i = 0; i < a->top_k; i++)
		sum += score[i];
	if (a->score == MFK_SCORE_SOFTMAX || a->top_k == 1)
		sum = 1;
	for (int64_t i = 0; i < a->top_k; i++)
		prob[i] = score[i] / sum;
	return sum;
}

/* What probabilities are made of. */
static const float *measure(const struct mfk_route *a, const struct row *r)
{
	return a->score == MFK_SCORE_SOFTMAX && !a->pre_softmax ? r->logits : r->score;
}

static void route_token(const struct mfk_route *a, int64_t token, struct row *r)
{
	const float *of = measure(a, r);
	int32_t *expert = a->expert + token * a->top_k;
	float *prob = a->prob + token * a->top_k;
	int64_t k = 0;

	for (int64_t e = 0; e < a->experts; e++)
		r->key[e] = a->key ? a->key[token * a->experts + e]
				   : of[e] + (a->bias ? a->bias[e] : 0);
	choose(a, r, a->groups > 0);
	for (int64_t e = 0; e < a->experts; e++) {
		if (r->chosen[e] != CHOSEN)
			continue;
		expert[k] = (int32_t)e;
		prob[k++] = of[e];
	}
	probabilities(a, prob, prob);
	for (k = 0; k < a->top_k; k++) {
		uint32_t rounded;

		mfk_from_f32(a->dtype, &(float){prob[k] * a->scale}, 1, &rounded);
		mfk_to_f32(a->dtype, &rounded, 1, &prob[k]);
	}
}

/* ---- losses ---- */

/* Scores as losses see them: their sum is 1. */
static float normalise(const struct mfk_route *a, const float *score, float *y)
{
	float sum = TINY;

	for (int64_t e = 0; e < a->experts; e++)
		sum += score[e];
	if (a->score == MFK_SCORE_SOFTMAX)
		sum = 1;
	for (int64_t e = 0; e < a->experts; e++)
		y[e] = score[e] / sum;
	return sum;
}

static const float *weight_of(const struct mfk_route *a, int64_t token)
{
	return a->weight + token / a->balance_tokens * a->experts;
}

static void count_load(const struct mfk_route *a, int64_t token, struct row *r)
{
	int32_t *load = a->load + token / a->balance_tokens * a->experts;

	normalise(a, r->score, r->key);
	choose(a, r, false);
	for (int64_t e = 0; e < a->experts; e++)
		if (r->chosen[e] == CHOSEN)
			__atomic_fetch_add(&load[e], 1, __ATOMIC_RELAXED);
}

static void route_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_route *a = arg;

	for (int64_t t = begin; t < end; t++) {
		struct row r = row_of(a, t, scratch);
		float lse;

		score_all(a, &r);
		route_token(a, t, &r);
		if (a->load)
			count_load(a, t, &r);
		if (!a->z)
			continue;
		lse = softmax(r.logits, a->experts, r.sum);
		a->z[t] = a->z_factor * lse * lse;
	}
}

static void balance_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_route *a = arg;

	for (int64_t t = begin; t < end; t++) {
		struct row r = row_of(a, t, scratch);
		const float *weight = weight_of(a, t);
		float sum = 0;

		score_all(a, &r);
		normalise(a, r.score, r.score);
		for (int64_t e = 0; e < a->experts; e++)
			sum += r.score[e] * weight[e];
		a->balance[t] = sum;
	}
}

void mfk_ref_route(struct mfk_ctx *c, const struct mfk_route *a)
{
	if (a->load)
		memset(a->load, 0,
		       (size_t)(a->tokens / a->balance_tokens * a->experts) * sizeof(*a->load));
	mfk_parallel(c, a->tokens, mfk_row_grain(64 * a->experts), row_floats(a), route_part, a);
}

void mfk_ref_route_balance(struct mfk_ctx *c, const struct mfk_route *a)
{
	mfk_parallel(c, a->tokens, mfk_row_grain(64 * a->experts), row_floats(a), balance_part, a);
}

/* ---- weights ---- */

void mfk_ref_balance_sum(struct mfk_ctx *c, const struct mfk_balance *a)
{
	const int64_t rows = a->apart ? a->sequences : 1;

	(void)c;
	for (int64_t i = 0; i < rows * a->experts; i++) {
		int32_t sum = 0;

		for (int64_t s = 0; s < a->sequences / rows; s++)
			sum += a->load[s * a->experts + i];
		a->sum[i] = (float)sum;
	}
}

/* Sums, or the mean of all microbatches' so far. */
static const float *means_of(const struct mfk_balance *a)
{
	if (!a->running)
		return a->sum;
	a->running[a->experts] += 1;
	for (int64_t e = 0; e < a->experts; e++) {
		a->running[e] += a->sum[e];
		a->sum[e] = a->running[e] / a->running[a->experts];
	}
	return a->sum;
}

void mfk_ref_balance_weigh(struct mfk_ctx *c, const struct mfk_balance *a)
{
	const float *means = means_of(a);

	(void)c;
	for (int64_t i = 0; i < a->sequences * a->experts; i++) {
		const float weight = a->factor * means[a->apart ? i : i % a->experts];

		a->weight[i] = weight;
		a->total[i] = (a->adds ? a->total[i] : 0) + a->coeff * weight;
	}
}

/* ---- backward ---- */

/* sum += the gradient of logits, of that of all scores divided by `by`, y. */
static void add_normalised(const struct mfk_route *a, struct row *r, const float *y, float by,
			   const float *dy)
{
	float dot = 0;

	for (int64_t e = 0; e < a->experts; e++)
		dot += y[e] * dy[e];
	for (int64_t e = 0; e < a->experts; e++)
		r->sum[e] += a->score == MFK_SCORE_SOFTMAX ? y[e] * (dy[e] - dot)
							   : (dy[e] - dot) / by * r->slope[e];
}

static void add_balance(const struct mfk_route *a, int64_t token, struct row *r, float *dy)
{
	const float *weight = weight_of(a, token);
	const float by = normalise(a, r->score, r->key);

	for (int64_t e = 0; e < a->experts; e++)
		dy[e] = a->dbalance * weight[e];
	add_normalised(a, r, r->key, by, dy);
}

static void add_z(const struct mfk_route *a, struct row *r)
{
	const float lse = softmax(r->logits, a->experts, r->key);

	for (int64_t e = 0; e < a->experts; e++)
		r->sum[e] += 2 * a->dz * lse * r->key[e];
}

static float dprob_of(const struct mfk_route *a, int64_t choice)
{
	const int64_t at = a->row ? a->row[choice] : choice;

	return at < 0 ? 0 : a->scale * a->dprob[at];
}

/* probs: [top_k] of scratch. */
static void add_chosen(const struct mfk_route *a, int64_t token, struct row *r, float *probs)
{
	const int32_t *expert = a->expert + token * a->top_k;
	const float *of = measure(a, r);
	const bool softmax = a->score == MFK_SCORE_SOFTMAX;
	float by, dot = 0;

	for (int64_t k = 0; k < a->top_k; k++)
		probs[k] = of[expert[k]];
	by = probabilities(a, probs, probs);
	for (int64_t k = 0; k < a->top_k; k++)
		dot += probs[k] * dprob_of(a, token * a->top_k + k);
	if (!softmax && a->top_k == 1)
		dot = 0;
	for (int64_t e = 0; softmax && a->pre_softmax && e < a->experts; e++)
		r->sum[e] -= r->score[e] * dot;
	for (int64_t k = 0; k < a->top_k; k++) {
		const float d = dprob_of(a, token * a->top_k + k);

		if (!softmax)
			r->sum[expert[k]] += (d - dot) / by * r->slope[expert[k]];
		else
			r->sum[expert[k]] += probs[k] * (a->pre_softmax ? d : d - dot);
	}
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_route *a = arg;
	const int64_t n = a->experts;

	for (int64_t t = begin; t < end; t++) {
		struct row r = row_of(a, t, scratch);
		float *more = (float *)r.chosen;

		score_all(a, &r);
		memset(r.sum, 0, (size_t)n * sizeof(float));
		add_chosen(a, t, &r, more);
		if (a->dbalance != 0)
			add_balance(a, t, &r, more);
		if (a->dz != 0)
			add_z(a, &r);
		mfk_from_f32(a->dtype, r.sum, n, mfk_at(a->dtype, a->dlogits, t * n));
	}
}

void mfk_ref_route_backward(struct mfk_ctx *c, const struct mfk_route *a)
{
	mfk_parallel(c, a->tokens, mfk_row_grain(64 * a->experts), row_floats(a), backward_part, a);
}

/* ---- bias ---- */

void mfk_ref_balance_bias(struct mfk_ctx *c, float *bias, int32_t *totals, int64_t experts,
			  float rate)
{
	int64_t sum = 0;

	(void)c;
	for (int64_t e = 0; e < experts; e++)
		sum += totals[e];
	for (int64_t e = 0; e < experts; e++) {
		const int64_t lack = sum - totals[e] * experts;

		bias[e] += lack > 0 ? rate : lack < 0 ? -rate : 0;
		totals[e] = 0;
	}
}
