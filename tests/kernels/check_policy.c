/* Log-probs with their gradient, and losses of policies. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

/* ---- log-probs ---- */

#define STATS 4

/* Rows whose last columns are padding, and what is to come of them. */
struct rows {
	struct mfk_log_probs a;
	struct tensor *x, *dlog_prob, *dentropy;
	double *log_prob, *entropy, *d;
	double most; /* of |d| */
};

static double row_sum(const struct rows *r, const double *z, double *ret_weighted)
{
	double most = -INFINITY, sum = 0;

	*ret_weighted = 0;
	for (int64_t i = 0; i < r->a.known; i++)
		most = fmax(most, z[i]);
	for (int64_t i = 0; i < r->a.known; i++) {
		sum += exp(z[i] - most);
		*ret_weighted += exp(z[i] - most) * (z[i] - most);
	}
	*ret_weighted /= sum;
	return most + log(sum);
}

static void want_row(struct rows *r, int64_t row, int32_t label, double *z)
{
	double weighted, lse, most = -INFINITY;

	for (int64_t i = 0; i < r->a.known; i++) {
		z[i] = (double)r->a.by * r->x->x[row * r->a.ld + i];
		most = fmax(most, z[i]);
	}
	lse = row_sum(r, z, &weighted);
	r->log_prob[row] = z[label] - lse;
	r->entropy[row] = lse - most - weighted;
	for (int64_t i = 0; i < r->a.ld; i++) {
		const bool known = i < r->a.known;
		const double p = known ? exp(z[i] - lse) : 0;
		const double log_p = known ? z[i] - lse : 0;

		r->d[row * r->a.ld + i] =
			i >= r->a.vocab
				? NAN
				: r->a.by * (r->dlog_prob->x[row] * ((i == label) - p) -
					     r->dentropy->x[row] * p * (log_p + r->entropy[row]));
		if (i < r->a.vocab)
			r->most = fmax(r->most, fabs(r->d[row * r->a.ld + i]));
	}
}

static void make_rows(struct check *c, struct rows *r, double spread)
{
	const int64_t rows = r->a.rows, count = rows * r->a.ld;
	int32_t *labels = calloc((size_t)rows, sizeof(*labels));
	double *z = check_doubles(c, r->a.ld);

	r->x = check_input(c, r->a.dtype, count, 1, spread);
	r->dlog_prob = check_input(c, MFK_F32, rows, 0.01, 0.01);
	r->dentropy = check_input(c, MFK_F32, rows, -0.01, 0.01);
	r->log_prob = check_doubles(c, rows);
	r->entropy = check_doubles(c, rows);
	r->d = check_doubles(c, count);
	for (int64_t row = 0; row < rows; row++) {
		labels[row] = (int32_t)check_below(c, r->a.known);
		want_row(r, row, labels[row], z);
	}
	r->a.labels = check_ints(c, labels, rows);
	r->a.logits = r->x->p;
	r->a.dlog_prob = r->dlog_prob->p;
	r->a.dentropy = r->dentropy->p;
	free(labels);
}

/* The columns of one process. */
struct columns {
	int64_t first, count;
	struct tensor *x, *d;
	double *want;
};

static void take_columns(struct check *c, const struct rows *r, struct columns *p)
{
	const int64_t count = r->a.rows * p->count;
	double *values = check_doubles(c, count);

	p->want = check_doubles(c, count);
	for (int64_t i = 0; i < count; i++) {
		const int64_t at = i / p->count * r->a.ld + p->first + i % p->count;

		values[i] = r->x->x[at];
		p->want[i] = r->d[at];
	}
	p->x = check_values(c, r->a.dtype, count, values);
	p->d = check_output(c, r->a.dtype, count);
}

static struct mfk_log_probs of_columns(const struct rows *r, const struct columns *p, int64_t part)
{
	struct mfk_log_probs a = r->a;

	a.part = part;
	a.first = p->first;
	a.vocab = a.ld = p->count;
	a.logits = p->x->p;
	a.dlogits = p->d->p;
	return a;
}

static void divided(struct check *c, struct rows *r, int64_t parts)
{
	struct tensor *log_prob = check_output(c, MFK_F32, r->a.rows);
	struct tensor *entropy = check_output(c, MFK_F32, r->a.rows);
	const int64_t each = r->a.vocab / parts;
	struct columns p[3];

	r->a.parts = parts;
	r->a.stats = check_output(c, MFK_F32, STATS * parts * r->a.rows)->p;
	r->a.log_prob = log_prob->p;
	r->a.entropy = entropy->p;
	for (int64_t i = 0; i < parts; i++) {
		struct mfk_log_probs a;

		p[i].first = i * each;
		p[i].count = i + 1 < parts ? each : r->a.vocab - i * each;
		take_columns(c, r, &p[i]);
		a = of_columns(r, &p[i], i);
		c->ops->log_probs_part(c->ctx, &a);
	}
	c->ops->log_probs_join(c->ctx, &r->a);
	check_near(c, "log-probs", log_prob, r->log_prob, 1e-6, 1);
	check_near(c, "entropies", entropy, r->entropy, 2e-6, 1);
	for (int64_t i = 0; i < parts; i++) {
		const struct mfk_log_probs a = of_columns(r, &p[i], i);

		c->ops->log_probs_backward(c->ctx, &a);
		check_near(c, "dlogits", p[i].d, p[i].want, 1e-5, r->most);
	}
}

/* All columns, whose gradient takes their place. */
static void whole(struct check *c, struct rows *r)
{
	struct tensor *log_prob = check_output(c, MFK_F32, r->a.rows);
	struct tensor *entropy = check_output(c, MFK_F32, r->a.rows);

	for (int64_t i = 0; i < r->x->count; i++)
		if (i % r->a.ld >= r->a.vocab) /* what is between the rows stays */
			r->d[i] = r->x->x[i];
	r->a.parts = 1;
	r->a.stats = check_output(c, MFK_F32, STATS * r->a.rows)->p;
	r->a.log_prob = log_prob->p;
	r->a.entropy = entropy->p;
	r->a.dlogits = r->x->p;
	c->ops->log_probs_part(c->ctx, &r->a);
	c->ops->log_probs_join(c->ctx, &r->a);
	c->ops->log_probs_backward(c->ctx, &r->a);
	check_near(c, "log-probs", log_prob, r->log_prob, 1e-6, 1);
	check_near(c, "entropies", entropy, r->entropy, 2e-6, 1);
	check_near(c, "dlogits in place", r->x, r->d, 1e-5, 0);
}

static void log_probs(struct check *c, enum mfk_dtype type, int64_t rows, int64_t known,
		      int64_t vocab, int64_t ld, double temperature)
{
	struct rows r = {.a = {.dtype = type,
			       .rows = rows,
			       .vocab = vocab,
			       .ld = ld,
			       .by = (float)(1 / temperature),
			       .known = known}};

	check_shape(c, "%lld x %lld (%lld known) of %lld, %s, temperature %g", (long long)rows,
		    (long long)vocab, (long long)known, (long long)ld, check_type_name(type),
		    temperature);
	make_rows(c, &r, 3);
	divided(c, &r, vocab < 3 ? 1 : 3);
	whole(c, &r);
}

void check_log_probs(struct check *c)
{
	if (!c->ops->log_probs_part)
		return;
	for (int t = 0; t < 3; t++) {
		log_probs(c, check_types[t], 1, 1, 1, 1, 1);
		log_probs(c, check_types[t], 3, 5, 17, 17, 0.7); /* two parts are padding */
		log_probs(c, check_types[t], 17, 120, 129, 136, 1.3);
		log_probs(c, check_types[t], 65, 5000, 5000, 5000, 1);
		log_probs(c, check_types[t], 2, 50257, 50304, 50304, 1);
	}
}

/* ---- losses ---- */

#define SAMPLES	  3
#define LENGTH	  24
#define LIMIT	  5
#define ROWS	  (SAMPLES * LENGTH)
#define STEP	  1e-5
#define TOLERANCE 2e-6

/* What a loss is of, as doubles. */
struct policy_rows {
	struct mfk_policy_rule rule;
	bool own_old;
	double log_prob[ROWS], entropy[ROWS], old[ROWS], reference[ROWS], rollout[ROWS];
	double advantage[ROWS], mask[ROWS], scale[ROWS];
	int32_t number[ROWS];
};

static double held(double x, double least, double most)
{
	return x < least ? least : x > most ? most : x;
}

static double old_of(const struct policy_rows *p, int64_t row)
{
	return p->own_old ? p->log_prob[row] : p->old[row];
}

/* at: log-probs that have a gradient; others are those of p. */
static double ratio_of(const struct policy_rows *p, const double *at, int64_t row)
{
	double sum = 0, count = 0;

	if (!p->rule.sequence_ratio || p->number[row] < 0)
		return exp(at[row] - old_of(p, row));
	for (int64_t i = row / LENGTH * LENGTH; i < (row / LENGTH + 1) * LENGTH; i++)
		if (p->number[i] == p->number[row] && p->mask[i] != 0) {
			sum += at[i] - old_of(p, i);
			count++;
		}
	return exp(sum / count);
}

static double loss_of(const struct policy_rows *p, const double *at, int64_t row)
{
	const struct mfk_policy_rule *r = &p->rule;
	const double ratio = ratio_of(p, at, row), a = p->advantage[row];
	const double clipped = held(ratio, r->least, r->most);

	switch (r->kind) {
	case MFK_POLICY_CISPO:
		return -held(ratio_of(p, p->log_prob, row), r->least, r->most) * a * at[row];
	case MFK_POLICY_PLAIN:
		return -a * at[row];
	default:
		return a < 0 ? fmin(fmax(-a * ratio, -a * clipped), -a * r->dual)
			     : fmax(-a * ratio, -a * clipped);
	}
}

static double kl_of(const struct policy_rows *p, const double *at, int64_t row)
{
	const double d = at[row] - p->reference[row];

	return p->rule.kl == MFK_KL_K1 ? d : p->rule.kl == MFK_KL_K2 ? d * d / 2 : exp(-d) + d - 1;
}

static double weight_of(const struct policy_rows *p, int64_t row)
{
	const double w = exp(old_of(p, row) - p->rollout[row]);
	const double in = held(w, p->rule.weight_least, p->rule.weight_most);

	return !p->rule.corrects ? 1 : p->rule.weight_masks && in != w ? 0 : in;
}

static double row_loss(const struct policy_rows *p, const double *at, int64_t row)
{
	return weight_of(p, row) * loss_of(p, at, row) + p->rule.kl_weight * kl_of(p, at, row) -
	       p->rule.entropy_weight * p->entropy[row];
}

static double total(const struct policy_rows *p, const double *at)
{
	double sum = 0;

	for (int64_t row = 0; row < ROWS; row++)
		if (p->mask[row] != 0)
			sum += p->scale[row] * row_loss(p, at, row);
	return sum;
}

static double slope(struct policy_rows *p, int64_t row)
{
	double at[ROWS], up;

	memcpy(at, p->log_prob, sizeof(at));
	at[row] += STEP;
	up = total(p, at);
	at[row] -= 2 * STEP;
	return (up - total(p, at)) / (2 * STEP);
}

static double as_float(double x)
{
	return (float)x;
}

/* Differences to old log-probs are multiples of this: means of up to five of them are far from
 * where ratios are clipped, and losses have no slope. */
#define GRID 0.05

/* Responses of a few tokens, with gaps; rows that do not count hold NaNs. */
static void fill(struct check *c, struct policy_rows *p)
{
	for (int64_t row = 0; row < ROWS; row++) {
		const int32_t number = (int32_t)(row % LENGTH / 6);
		const bool counts = row % 6 != 0 && row % 11 != 3;

		p->number[row] = counts ? number : -1;
		p->log_prob[row] = as_float(-fabs(check_normal(c)) - 0.1);
		p->entropy[row] = as_float(fabs(check_normal(c)));
		p->old[row] = as_float(p->log_prob[row] + GRID * rint(8 * check_normal(c)));
		p->reference[row] = as_float(p->log_prob[row] + 0.5 * check_normal(c));
		p->rollout[row] = as_float(p->old[row] + 0.2 * check_normal(c));
		p->advantage[row] = as_float(((row / 6) % 2 ? 1 : -1) * (0.5 + number));
		p->mask[row] = counts ? as_float(1.0 / (3 + number)) : 0;
		p->scale[row] = 2 * p->mask[row];
		if (!counts)
			p->old[row] = p->rollout[row] = p->reference[row] = NAN;
	}
}

static const float *input(struct check *c, const double *x)
{
	return check_values(c, MFK_F32, ROWS, x)->p;
}

/* In two pieces, as chunks of rows are; the sums are of all. */
static void run(struct check *c, struct mfk_policy a)
{
	const int64_t half = ROWS / 2 + 1;
	struct mfk_policy b = a;

	a.rows = ROWS;
	if (a.rule.sequence_ratio && a.old)
		c->ops->policy_sums(c->ctx, &a);
	a.rows = half;
	c->ops->policy(c->ctx, &a);
	b.rows = ROWS - half;
	b.first = half;
	b.log_prob += half, b.entropy += half, b.reference += half, b.rollout += half;
	b.old = b.old ? b.old + half : NULL;
	b.advantage += half, b.mask += half, b.scale += half, b.number += half;
	b.dlog_prob += half, b.dentropy += half;
	for (int i = 0; i < MFK_POLICY_TERMS; i++)
		b.terms[i] += half;
	c->ops->policy(c->ctx, &b);
}

static void policy_of(struct check *c, struct policy_rows *p)
{
	struct tensor *dlog_prob = check_output(c, MFK_F32, ROWS);
	struct tensor *dentropy = check_output(c, MFK_F32, ROWS), *terms[MFK_POLICY_TERMS];
	double *want[MFK_POLICY_TERMS], *slopes = check_doubles(c, ROWS);
	double *entropy_slopes = check_doubles(c, ROWS);
	struct mfk_policy a = {
		.rule = p->rule,
		.log_prob = input(c, p->log_prob),
		.entropy = input(c, p->entropy),
		.old = p->own_old ? NULL : input(c, p->old),
		.reference = input(c, p->reference),
		.rollout = input(c, p->rollout),
		.advantage = input(c, p->advantage),
		.mask = input(c, p->mask),
		.scale = input(c, p->scale),
		.dlog_prob = dlog_prob->p,
		.dentropy = dentropy->p,
		.number = check_ints(c, p->number, ROWS),
		.length = LENGTH,
		.limit = LIMIT,
		.sums = check_output(c, MFK_F32, 2 * SAMPLES * LIMIT)->p,
	};

	for (int i = 0; i < MFK_POLICY_TERMS; i++) {
		terms[i] = check_output(c, MFK_F32, ROWS);
		want[i] = check_doubles(c, ROWS);
		a.terms[i] = terms[i]->p;
	}
	for (int64_t row = 0; row < ROWS; row++) {
		if (p->mask[row] == 0)
			continue;
		slopes[row] = slope(p, row);
		entropy_slopes[row] = -p->scale[row] * p->rule.entropy_weight;
		want[MFK_POLICY_LOSS][row] = row_loss(p, p->log_prob, row);
		want[MFK_POLICY_KL][row] = kl_of(p, p->log_prob, row);
		want[MFK_POLICY_RATIO][row] = ratio_of(p, p->log_prob, row);
		want[MFK_POLICY_ENTROPY][row] = p->entropy[row];
		want[MFK_POLICY_ABOVE][row] = want[MFK_POLICY_RATIO][row] > p->rule.most;
		want[MFK_POLICY_BELOW][row] = want[MFK_POLICY_RATIO][row] < p->rule.least;
		want[MFK_POLICY_DRIFT][row] = fabs(p->rollout[row] - old_of(p, row));
		want[MFK_POLICY_WEIGHT][row] = weight_of(p, row);
	}
	run(c, a);
	check_near(c, "slopes", dlog_prob, slopes, TOLERANCE, 1);
	check_near(c, "slopes of entropy", dentropy, entropy_slopes, TOLERANCE, 1);
	for (int i = 0; i < MFK_POLICY_TERMS; i++)
		check_near(c, "a term", terms[i], want[i], TOLERANCE, 1);
}

void check_policy(struct check *c)
{
	static const struct mfk_policy_rule rules[] = {
		{.kind = MFK_POLICY_CLIP, .kl = MFK_KL_K3, .dual = INFINITY},
		{.kind = MFK_POLICY_CLIP, .kl = MFK_KL_K2, .dual = 1.5f, .corrects = true},
		{.kind = MFK_POLICY_CLIP, .kl = MFK_KL_K1, .dual = 1.5f, .sequence_ratio = true},
		{.kind = MFK_POLICY_CISPO, .kl = MFK_KL_K3, .corrects = true, .weight_masks = true},
		{.kind = MFK_POLICY_PLAIN, .kl = MFK_KL_K2},
	};

	if (!c->ops->policy)
		return;
	for (size_t i = 0; i < 2 * MFS_ARRAY_SIZE(rules); i++) {
		struct policy_rows p = {.rule = rules[i / 2], .own_old = i % 2};

		p.rule.least = 0.8f;
		p.rule.most = 1.28f;
		p.rule.kl_weight = 0.1f;
		p.rule.entropy_weight = 0.01f;
		p.rule.weight_least = 0.9f;
		p.rule.weight_most = 1.1f;
		check_shape(c, "rule %zu%s", i / 2, p.own_old ? ", no old log-probs" : "");
		fill(c, &p);
		policy_of(c, &p);
	}
}
