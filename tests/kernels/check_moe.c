/*
 * Mixtures of experts. Routes are looked at with logits on a coarse grid, so that there are many
 * equal ones and no nearly equal ones; gradients are central differences of the definition.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

/* ---- integers ---- */

/* An output of integers, each of `size` bytes. */
static struct tensor *int_output(struct check *c, int64_t count, int64_t size)
{
	return check_output(c, MFK_F32, count * size / 4);
}

/* Fetches them as doubles, to be freed after the check. */
static double *int_values(struct check *c, struct tensor *t, int64_t size)
{
	const int64_t count = t->count * 4 / size;
	double *x = check_doubles(c, count);
	char why[MFK_WHY], *host = malloc((size_t)(count * size) + 1);

	check_fetch(c, t); /* looks at guards, and counts the bits */
	c->backend->device->copy_out(c->ctx, host, t->p, (size_t)(count * size));
	if (!host || c->backend->device->sync(c->ctx, why))
		check_failed(c, "integers cannot be copied");
	for (int64_t i = 0; i < count; i++) {
		int32_t narrow = 0;
		int64_t wide = 0;

		memcpy(size == 4 ? (void *)&narrow : &wide, host + i * size, (size_t)size);
		x[i] = size == 4 ? narrow : (double)wide;
	}
	free(host);
	return x;
}

static void compare_ints(struct check *c, const char *what, struct tensor *t, int64_t size,
			 const double *want)
{
	const double *x = int_values(c, t, size);

	for (int64_t i = 0; i < t->count * 4 / size; i++) {
		if (x[i] == want[i])
			continue;
		check_failed(c, "%s[%lld] is %.0f instead of %.0f", what, (long long)i, x[i],
			     want[i]);
		return;
	}
}

/* ---- the router, by its definition ---- */

#define EXPERTS_MAX 300

struct route {
	struct mfk_route a;
	const double *logits, *bias; /* bias NULL: none */
};

/* Scores of all experts. */
static void score(const struct route *r, const double *l, double *s)
{
	double sum = 0;

	for (int64_t e = 0; e < r->a.experts; e++) {
		s[e] = r->a.score == MFK_SCORE_SIGMOID	       ? 1 / (1 + exp(-l[e]))
		       : r->a.score == MFK_SCORE_SQRT_SOFTPLUS ? sqrt(log1p(exp(l[e])))
							       : exp(l[e]);
		sum += s[e];
	}
	for (int64_t e = 0; e < r->a.experts && r->a.score == MFK_SCORE_SOFTMAX; e++)
		s[e] /= sum;
}

/* Scores of which the sum is 1. */
static void share(const struct route *r, const double *l, double *s)
{
	double sum = 0;

	score(r, l, s);
	for (int64_t e = 0; e < r->a.experts; e++)
		sum += s[e];
	for (int64_t e = 0; e < r->a.experts; e++)
		s[e] /= sum;
}

/* What is compared in the choice. */
static void keys(const struct route *r, const double *l, double *key)
{
	const bool by_logit = r->a.score == MFK_SCORE_SOFTMAX && !r->a.pre_softmax;

	score(r, l, key);
	for (int64_t e = 0; e < r->a.experts; e++)
		key[e] = (by_logit ? l[e] : key[e]) + (r->bias ? r->bias[e] : 0);
}

/* probs: [top_k] of those that are chosen */
static void probabilities(const struct route *r, const double *l, const int64_t *chosen,
			  double *probs)
{
	double s[EXPERTS_MAX], sum = 0;

	score(r, l, s);
	for (int64_t k = 0; k < r->a.top_k; k++) {
		probs[k] = r->a.score == MFK_SCORE_SOFTMAX && !r->a.pre_softmax ? exp(l[chosen[k]])
										: s[chosen[k]];
		sum += probs[k];
	}
	if (r->a.score == MFK_SCORE_SOFTMAX ? r->a.pre_softmax : r->a.top_k == 1)
		sum = 1;
	for (int64_t k = 0; k < r->a.top_k; k++)
		probs[k] *= r->a.scale / sum;
}

static double lse(const struct route *r, const double *l)
{
	double sum = 0;

	for (int64_t i = 0; i < r->a.experts; i++)
		sum += exp(l[i]);
	return log(sum);
}

/* The sum of a group's best keys. */
static double group_sum(const struct route *r, const double *key, int64_t group)
{
	const int64_t each = r->a.experts / r->a.groups, take = r->a.top_k / r->a.group_top_k;
	bool taken[EXPERTS_MAX] = {false};
	double sum = 0;

	for (int64_t i = 0; i < take; i++) {
		int64_t best = -1;

		for (int64_t e = group * each; e < (group + 1) * each; e++)
			if (!taken[e] && (best < 0 || key[e] > key[best]))
				best = e;
		taken[best] = true;
		sum += key[best];
	}
	return sum;
}

/* ---- what was chosen ---- */

#define NEAR 1e-5 /* keys that are so near may be chosen in any order, unless they are equal */

static bool is_chosen(const struct route *r, const int64_t *chosen, int64_t e)
{
	for (int64_t k = 0; k < r->a.top_k; k++)
		if (chosen[k] == e)
			return true;
	return false;
}

/* Whether e, which is not chosen, should have been instead of one that is. */
static bool is_better(const double *key, int64_t e, int64_t than)
{
	return key[e] > key[than] + NEAR || (e < than && key[e] == key[than]);
}

static bool group_is_open(const struct route *r, const int64_t *chosen, int64_t group)
{
	const int64_t each = r->a.experts / r->a.groups;

	for (int64_t k = 0; k < r->a.top_k; k++)
		if (chosen[k] / each == group)
			return true;
	return false;
}

/* Groups that nobody was chosen from may be open, too; then their experts lose fairly. */
static void check_groups(struct check *c, const struct route *r, int64_t t, const double *key,
			 const int64_t *chosen)
{
	int64_t open = 0;

	for (int64_t g = 0; g < r->a.groups; g++) {
		int64_t better = 0;

		if (!group_is_open(r, chosen, g))
			continue;
		open++;
		for (int64_t other = 0; other < r->a.groups; other++)
			better += group_sum(r, key, other) > group_sum(r, key, g) + NEAR;
		if (better >= r->a.group_top_k)
			check_failed(c, "token %lld: group %lld is not among the best",
				     (long long)t, (long long)g);
	}
	if (open > r->a.group_top_k)
		check_failed(c, "token %lld: experts of %lld groups", (long long)t,
			     (long long)open);
}

static void check_choice(struct check *c, const struct route *r, int64_t t, const int64_t *chosen)
{
	double key[EXPERTS_MAX];

	keys(r, r->logits + t * r->a.experts, key);
	for (int64_t k = 0; k < r->a.top_k; k++)
		if (chosen[k] < (k ? chosen[k - 1] + 1 : 0) || chosen[k] >= r->a.experts) {
			check_failed(c, "token %lld: choice %lld is expert %lld", (long long)t,
				     (long long)k, (long long)chosen[k]);
			return;
		}
	if (r->a.groups)
		check_groups(c, r, t, key, chosen);
	for (int64_t e = 0; e < r->a.experts; e++) {
		if (is_chosen(r, chosen, e) ||
		    (r->a.groups && !group_is_open(r, chosen, e / (r->a.experts / r->a.groups))))
			continue;
		for (int64_t k = 0; k < r->a.top_k; k++)
			if (is_better(key, e, chosen[k])) {
				check_failed(c, "token %lld: expert %lld instead of %lld",
					     (long long)t, (long long)chosen[k], (long long)e);
				return;
			}
	}
}

/* ---- losses ---- */

static void count_load(const struct route *r, int64_t t, double *load)
{
	const double *l = r->logits + t * r->a.experts;
	bool taken[EXPERTS_MAX] = {false};

	for (int64_t k = 0; k < r->a.top_k; k++) {
		int64_t best = -1;

		for (int64_t e = 0; e < r->a.experts; e++)
			if (!taken[e] && (best < 0 || l[e] > l[best]))
				best = e; /* scores rise with logits */
		taken[best] = true;
		load[best]++;
	}
}

/* What backward is the gradient of, for one token; weight is a constant. */
static double loss(const struct route *r, const double *l, const int64_t *chosen,
		   const double *dprob, const double *weight)
{
	double sum = 0, z = lse(r, l), s[EXPERTS_MAX];

	probabilities(r, l, chosen, s);
	for (int64_t k = 0; k < r->a.top_k; k++)
		sum += dprob[k] * s[k];
	share(r, l, s);
	for (int64_t e = 0; e < r->a.experts && r->a.dbalance != 0; e++)
		sum += r->a.dbalance * s[e] * weight[e];
	return sum + r->a.dz * z * z;
}

/* ---- one shape ---- */

struct shape {
	int64_t tokens, experts, top_k, groups, group_top_k, balance_tokens;
};

/* How experts are chosen. */
struct way {
	enum mfk_score kind;
	bool pre_softmax, with_bias, losses;
};

/* A problem's inputs, its outputs and what they are to be. */
struct route_problem {
	struct shape s;
	struct way way;
	enum mfk_dtype type;
	struct route r;
	struct tensor *logits, *bias, *weight, *dprob;
	struct tensor *expert, *prob, *load, *balance, *z, *dlogits;
	double *chosen; /* [tokens, top_k]: what expert says */
	double *want_load;
	int32_t *row; /* of each choice; NULL: they are in their order */
};

static void say_shape(struct check *c, const struct route_problem *p)
{
	const struct shape *s = &p->s;

	check_shape(c, "%lld tokens, %lld of %lld experts, %lld of %lld groups, %s, score %d%s%s%s",
		    (long long)s->tokens, (long long)s->top_k, (long long)s->experts,
		    (long long)s->group_top_k, (long long)s->groups, check_type_name(p->type),
		    p->way.kind, p->way.pre_softmax ? " before" : "",
		    p->way.with_bias ? ", bias" : "", p->way.losses ? ", losses" : "");
}

/* Logits on a grid: equal ones are frequent. */
static void make_inputs(struct check *c, struct route_problem *p)
{
	const int64_t logits = p->s.tokens * p->s.experts;
	double *grid = check_doubles(c, logits);

	for (int64_t i = 0; i < logits; i++)
		grid[i] = (double)(check_below(c, 97) - 48) / 16;
	p->logits = check_values(c, p->type, logits, grid);
	p->bias = check_input(c, MFK_F32, p->s.experts, 0, 0.2);
	p->weight = check_input(c, MFK_F32, p->s.tokens / p->s.balance_tokens * p->s.experts, 0, 1);
}

static void make_outputs(struct check *c, struct route_problem *p)
{
	const struct shape *s = &p->s;

	p->expert = int_output(c, s->tokens * s->top_k, 4);
	p->prob = check_output(c, MFK_F32, s->tokens * s->top_k);
	p->load = int_output(c, s->tokens / s->balance_tokens * s->experts, 4);
	p->balance = check_output(c, MFK_F32, s->tokens);
	p->z = check_output(c, MFK_F32, s->tokens);
	p->dlogits = check_output(c, p->type, s->tokens * s->experts);
}

static void make_route(struct check *c, struct route_problem *p)
{
	const struct shape *s = &p->s;
	const bool losses = p->way.losses;

	make_inputs(c, p);
	make_outputs(c, p);
	p->r.logits = p->logits->x;
	p->r.bias = p->way.with_bias ? p->bias->x : NULL;
	p->r.a = (struct mfk_route){.dtype = p->type,
				    .score = p->way.kind,
				    .pre_softmax = p->way.pre_softmax,
				    .tokens = s->tokens,
				    .experts = s->experts,
				    .top_k = s->top_k,
				    .groups = s->groups,
				    .group_top_k = s->group_top_k,
				    .scale = p->way.with_bias ? 2.5f : 1,
				    .balance_tokens = s->balance_tokens,
				    .logits = p->logits->p,
				    .bias = p->way.with_bias ? p->bias->p : NULL,
				    .expert = p->expert->p,
				    .prob = p->prob->p,
				    .load = losses ? p->load->p : NULL,
				    .z = losses ? p->z->p : NULL,
				    .weight = losses ? p->weight->p : NULL,
				    .balance = losses ? p->balance->p : NULL,
				    .z_factor = losses ? 0.5f : 0,
				    .dbalance = losses ? 0.03f : 0,
				    .dz = losses ? 0.02f : 0};
}

/* The load, and the weights, of the sequence that a token is of. */
static double *load_of(const struct route_problem *p, int64_t t)
{
	return p->want_load + t / p->s.balance_tokens * p->s.experts;
}

static const double *weight_of(const struct route_problem *p, int64_t t)
{
	return p->weight->x + t / p->s.balance_tokens * p->s.experts;
}

/* What was chosen may be chosen, and has its probabilities. */
static void expect_choices(struct check *c, struct route_problem *p)
{
	const int64_t choices = p->s.tokens * p->s.top_k;
	double *probs = check_doubles(c, choices);

	p->want_load = check_doubles(c, p->s.tokens / p->s.balance_tokens * p->s.experts);
	p->chosen = int_values(c, p->expert, 4);
	for (int64_t t = 0; t < p->s.tokens; t++) {
		int64_t of[EXPERTS_MAX];

		for (int64_t k = 0; k < p->s.top_k; k++)
			of[k] = (int64_t)p->chosen[t * p->s.top_k + k];
		check_choice(c, &p->r, t, of);
		if (!c->failures)
			probabilities(&p->r, p->logits->x + t * p->s.experts, of,
				      probs + t * p->s.top_k);
		count_load(&p->r, t, load_of(p, t));
	}
	if (c->failures)
		return;
	for (int64_t i = 0; i < choices && p->type != MFK_F32; i++)
		probs[i] = check_round(p->type, probs[i]);
	/* 16-bit probabilities may round to either neighbour. */
	check_near(c, "prob", p->prob, probs,
		   p->type == MFK_F32	 ? 2e-6
		   : p->type == MFK_BF16 ? 8e-3
					 : 1e-3,
		   1);
}

static void expect_losses(struct check *c, struct route_problem *p)
{
	double *balance = check_doubles(c, p->s.tokens), *z = check_doubles(c, p->s.tokens);

	for (int64_t t = 0; t < p->s.tokens; t++) {
		const double *of = p->logits->x + t * p->s.experts;
		double shares[EXPERTS_MAX];

		share(&p->r, of, shares);
		for (int64_t e = 0; e < p->s.experts; e++)
			balance[t] += shares[e] * weight_of(p, t)[e];
		z[t] = 0.5 * lse(&p->r, of) * lse(&p->r, of);
	}
	compare_ints(c, "load", p->load, 4, p->want_load);
	if (c->ops->route_balance) {
		c->ops->route_balance(c->ctx, &p->r.a);
		check_near(c, "balance", p->balance, balance, 4e-6, 1);
	}
	check_near(c, "z", p->z, z, 4e-6, 1);
}

/* Choices lie anywhere. */
static void shuffle_rows(struct check *c, int32_t *row, int64_t choices)
{
	for (int64_t i = 0; i < choices; i++)
		row[i] = (int32_t)i;
	for (int64_t i = choices - 1; i > 0; i--) {
		const int64_t k = check_below(c, i + 1);
		const int32_t other = row[k];

		row[k] = row[i];
		row[i] = other;
	}
}

/* A token's gradient, by differences of the loss. */
static void difference(const struct route_problem *p, int64_t t, double *ret)
{
	double of[EXPERTS_MAX], d[EXPERTS_MAX];
	int64_t k_of[EXPERTS_MAX];

	for (int64_t e = 0; e < p->s.experts; e++)
		of[e] = p->logits->x[t * p->s.experts + e];
	for (int64_t k = 0; k < p->s.top_k; k++) {
		const int64_t i = t * p->s.top_k + k;

		k_of[k] = (int64_t)p->chosen[i];
		d[k] = p->dprob->x[p->row ? p->row[i] : i];
	}
	for (int64_t e = 0; e < p->s.experts; e++) {
		const double h = 1e-4, at = of[e];
		double up, down;

		of[e] = at + h;
		up = loss(&p->r, of, k_of, d, weight_of(p, t));
		of[e] = at - h;
		down = loss(&p->r, of, k_of, d, weight_of(p, t));
		of[e] = at;
		ret[e] = (up - down) / (2 * h);
	}
}

static void expect_gradient(struct check *c, struct route_problem *p)
{
	const int64_t choices = p->s.tokens * p->s.top_k;
	double *want = check_doubles(c, p->s.tokens * p->s.experts);
	int32_t *row = calloc((size_t)choices, sizeof(*row));

	shuffle_rows(c, row, choices);
	p->row = p->way.losses ? row : NULL;
	p->dprob = check_input(c, MFK_F32, choices, 0, 1);
	p->r.a.dprob = p->dprob->p;
	p->r.a.row = p->row ? check_ints(c, row, choices) : NULL;
	p->r.a.dlogits = p->dlogits->p;
	for (int64_t t = 0; t < p->s.tokens; t++)
		difference(p, t, want + t * p->s.experts);
	c->ops->route_backward(c->ctx, &p->r.a);
	check_near(c, "dlogits", p->dlogits, want, 4e-6, 1);
	free(row);
}

static void route(struct check *c, struct shape s, enum mfk_dtype type, struct way way)
{
	struct route_problem p = {.s = s, .way = way, .type = type};

	say_shape(c, &p);
	make_route(c, &p);
	c->ops->route(c->ctx, &p.r.a);
	expect_choices(c, &p);
	if (!c->failures && way.losses)
		expect_losses(c, &p);
	if (!c->failures && c->ops->route_backward)
		expect_gradient(c, &p);
}

void check_route(struct check *c)
{
	static const struct shape shapes[] = {{1, 1, 1, 0, 0, 1},    {7, 4, 2, 0, 0, 7},
					      {66, 33, 5, 0, 0, 22}, {24, 16, 4, 4, 2, 12},
					      {9, 6, 6, 3, 3, 3},    {5, 256, 8, 8, 4, 5},
					      {3, 300, 1, 0, 0, 1}};

	if (!c->ops->route)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3 && !c->failures; t++)
			for (int losses = 0; losses < 2; losses++) {
				const struct way ways[] = {
					{MFK_SCORE_SOFTMAX, false, false, losses},
					{MFK_SCORE_SOFTMAX, true, false, losses},
					{MFK_SCORE_SIGMOID, false, true, losses},
					{MFK_SCORE_SQRT_SOFTPLUS, false, i % 2, losses},
				};

				for (size_t k = 0; k < MFS_ARRAY_SIZE(ways); k++)
					route(c, shapes[i], check_types[t], ways[k]);
			}
}

/* ---- weights of losses ---- */

/* One microbatch's loads become weights: of total, which has been written before or not. */
static void balance(struct check *c, int64_t sequences, int64_t experts, bool apart, bool adds,
		    struct tensor *running, double *want_running)
{
	const int64_t count = sequences * experts, sums = apart ? count : experts;
	int32_t *load = calloc((size_t)count, sizeof(*load));
	double *sum = check_doubles(c, sums), *weight = check_doubles(c, count);
	double *total = check_doubles(c, count);
	struct tensor *before = check_input(c, MFK_F32, count, 0, 1);
	struct tensor *w = check_output(c, MFK_F32, count), *s = check_output(c, MFK_F32, sums);
	struct mfk_balance a = {.sequences = sequences,
				.experts = experts,
				.apart = apart,
				.sum = s->p,
				.running = running ? running->p : NULL,
				.factor = 0.25f,
				.coeff = 3,
				.weight = w->p,
				.total = before->p,
				.adds = adds};

	for (int64_t i = 0; i < count; i++) {
		load[i] = (int32_t)check_below(c, 5000);
		sum[i % sums] += load[i];
	}
	a.load = check_ints(c, load, count);
	c->ops->balance_sum(c->ctx, &a);
	check_equal(c, "sum", s, sum);
	if (running)
		want_running[experts]++;
	for (int64_t e = 0; running && e < experts; e++) {
		want_running[e] += sum[e];
		sum[e] = want_running[e] / want_running[experts];
	}
	for (int64_t i = 0; i < count; i++) {
		weight[i] = 0.25 * sum[i % sums];
		total[i] = 3 * weight[i] + (adds ? before->x[i] : 0);
	}
	c->ops->balance_weigh(c->ctx, &a);
	check_near(c, "weight", w, weight, 1e-6, 1);
	check_near(c, "total", before, total, 1e-6, 1);
	if (running)
		check_equal(c, "running", running, want_running);
	free(load);
}

void check_balance(struct check *c)
{
	static const int64_t shapes[][2] = {{1, 1}, {1, 8}, {3, 5}, {7, 300}, {2, 1000}};

	if (!c->ops->balance_sum)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++) {
		const int64_t n = shapes[i][0], experts = shapes[i][1];
		double *zeros = check_doubles(c, experts + 1);
		struct tensor *running = check_values(c, MFK_F32, experts + 1, zeros);
		double *want = check_doubles(c, experts + 1);

		check_shape(c, "weights of %lld sequences, %lld experts", (long long)n,
			    (long long)experts);
		balance(c, n, experts, false, false, NULL, NULL);
		balance(c, n, experts, true, true, NULL, NULL);
		for (int step = 0; step < 3; step++)
			balance(c, n, experts, false, step != 1, running, want);
	}
}

/* ---- dispatch ---- */

/* top_k of all experts, ascending. */
static void choose(struct check *c, int32_t *expert, int64_t tokens, int64_t experts, int64_t top_k,
		   bool skewed)
{
	for (int64_t token = 0; token < tokens; token++) {
		int64_t left = top_k;

		for (int64_t e = 0; e < experts && left; e++)
			if (skewed || check_below(c, experts - e) < left)
				expert[token * top_k + top_k - left--] = (int32_t)e;
	}
}

static void dispatch(struct check *c, int64_t tokens, int64_t experts, int64_t top_k, bool skewed,
		     bool drops)
{
	const int64_t choices = tokens * top_k;
	int32_t *expert = calloc((size_t)choices, sizeof(*expert)), *zeros;
	double *offsets = check_doubles(c, experts + 1), *row = check_doubles(c, choices);
	double *from = check_doubles(c, choices), *probs = check_doubles(c, choices);
	double *totals = check_doubles(c, experts), *mean = check_doubles(c, experts), sum = 0;
	struct tensor *prob = check_input(c, MFK_F32, choices, 0, 1);
	struct tensor *p = check_output(c, MFK_F32, choices);
	struct tensor *o = int_output(c, experts + 1, 8), *r = int_output(c, choices, 4);
	struct tensor *f = int_output(c, choices, 4), *t = int_output(c, experts, 4);
	struct tensor *bias = check_input(c, MFK_F32, experts, 0, 1);
	struct mfk_dispatch a = {.tokens = tokens,
				 .experts = experts,
				 .top_k = top_k,
				 .prob = prob->p,
				 .offsets = o->p,
				 .row = r->p,
				 .from = f->p,
				 .row_prob = p->p,
				 .totals = t->p};
	int64_t next = 0;

	check_shape(c, "%lld tokens, %lld of %lld experts%s", (long long)tokens, (long long)top_k,
		    (long long)experts,
		    skewed  ? ", few of them"
		    : drops ? ", some dropped"
			    : "");
	choose(c, expert, tokens, experts, top_k, skewed);
	for (int64_t i = 0; drops && i < choices; i++)
		if (!check_below(c, 3))
			expert[i] = -1;
	for (int64_t e = 0; e < experts; e++) {
		offsets[e] = (double)next;
		for (int64_t i = 0; i < choices; i++) {
			if (expert[i] != e)
				continue;
			row[i] = (double)next;
			from[next] = (double)i;
			probs[next++] = prob->x[i];
		}
		totals[e] = 2 * ((double)next - offsets[e]);
		sum += totals[e];
	}
	offsets[experts] = (double)next;
	for (int64_t i = 0; i < choices; i++)
		row[i] = expert[i] < 0 ? -1 : row[i];
	for (; next < choices; next++) {
		from[next] = -1;
		probs[next] = 0;
	}
	a.expert = check_ints(c, expert, choices);
	zeros = calloc((size_t)experts, sizeof(*zeros));
	c->backend->device->copy_in(c->ctx, t->p, zeros, (size_t)experts * sizeof(*zeros));
	for (int again = 0; again < 2; again++)
		c->ops->dispatch(c->ctx, &a);
	compare_ints(c, "offsets", o, 8, offsets);
	compare_ints(c, "row", r, 4, row);
	compare_ints(c, "from", f, 4, from);
	compare_ints(c, "totals", t, 4, totals);
	check_equal(c, "row_prob", p, probs);
	if (c->ops->balance_bias) {
		for (int64_t e = 0; e < experts; e++) {
			const double lack = sum - totals[e] * (double)experts;

			mean[e] = bias->x[e] + 0.125 * ((lack > 0) - (lack < 0));
			totals[e] = 0;
		}
		c->ops->balance_bias(c->ctx, bias->p, t->p, experts, 0.125f);
		check_near(c, "bias", bias, mean, 1e-7, 1);
		compare_ints(c, "totals, cleared", t, 4, totals);
	}
	free(zeros);
	free(expert);
}

void check_dispatch(struct check *c)
{
	if (!c->ops->dispatch)
		return;
	dispatch(c, 1, 1, 1, false, false);
	dispatch(c, 5, 4, 2, true, false);
	dispatch(c, 129, 33, 6, false, false);
	dispatch(c, 129, 33, 6, false, true);
	dispatch(c, 1500, 8, 2, false, false);
	dispatch(c, 700, 300, 8, false, true);
	dispatch(c, 2050, 64, 3, true, true);
}

/* ---- what experts have room for ---- */

struct room {
	int64_t sequences, length, groups, experts, top_k, capacity;
	bool by_prob;
};

static int64_t place(const struct room *m, int64_t token)
{
	return token % m->length * m->sequences + token / m->length;
}

/* The expert takes choice i: fewer than capacity of its group's come before it. */
static bool takes(const struct room *m, const int32_t *expert, const double *prob, int64_t i)
{
	const int64_t part = m->length / m->groups, token = i / m->top_k;
	int64_t before = 0;

	for (int64_t other = 0; other < m->sequences * m->length * m->top_k; other++) {
		const int64_t at = other / m->top_k;
		const double more = m->by_prob ? prob[other] - prob[i] : 0;

		if (expert[other] == expert[i] && at % m->length / part == token % m->length / part)
			before += more > 0 || (more == 0 && place(m, at) < place(m, token));
	}
	return before < m->capacity;
}

static void drop(struct check *c, const struct room *m)
{
	const int64_t tokens = m->sequences * m->length, choices = tokens * m->top_k;
	int32_t *expert = calloc((size_t)choices, sizeof(*expert));
	double *taken = check_doubles(c, choices);
	struct tensor *prob = check_input(c, MFK_BF16, choices, 0.5, 0.1); /* some are equal */
	struct tensor *wide = check_output(c, MFK_F32, choices), *t = int_output(c, choices, 4);
	const struct mfk_drop a = {.sequences = m->sequences,
				   .length = m->length,
				   .groups = m->groups,
				   .experts = m->experts,
				   .top_k = m->top_k,
				   .capacity = m->capacity,
				   .by_prob = m->by_prob,
				   .expert =
					   (choose(c, expert, tokens, m->experts, m->top_k, false),
					    check_ints(c, expert, choices)),
				   .prob = wide->p,
				   .taken = t->p};

	check_shape(c, "%lld x %lld tokens in %lld parts, %lld of %lld experts, room for %lld%s",
		    (long long)m->sequences, (long long)m->length, (long long)m->groups,
		    (long long)m->top_k, (long long)m->experts, (long long)m->capacity,
		    m->by_prob ? ", by probability" : "");
	c->ops->cast(c->ctx, MFK_F32, wide->p, MFK_BF16, prob->p, choices);
	for (int64_t i = 0; i < choices; i++)
		taken[i] = takes(m, expert, prob->x, i) ? expert[i] : -1;
	c->ops->drop(c->ctx, &a);
	compare_ints(c, "taken", t, 4, taken);
	free(expert);
}

void check_drop(struct check *c)
{
	static const struct room rooms[] = {
		{1, 7, 1, 4, 2, 2, true},      {3, 40, 2, 5, 2, 9, true},
		{2, 60, 3, 4, 3, 12, false},   {1, 1200, 1, 9, 2, 200, true},
		{2, 700, 1, 3, 1, 400, false}, {2, 16, 4, 8, 2, 100, true},
		{1, 50, 1, 4, 1, 0, true},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rooms) && c->ops->drop; i++)
		drop(c, &rooms[i]);
}

/* ---- experts that are chosen alike ---- */

/* What a group's tokens choose by: d0 and d1 in turns, until d1 stays. Returns how near to the
 * tolerance a change was: in fp32 it may be on the other side. */
static double want_alike(const struct room *m, int64_t group, const double *logits, double *key)
{
	const int64_t n = m->experts, part = m->length / m->groups, all = m->sequences * part;
	double d1[EXPERTS_MAX], change = 1, near = 1;

	for (int64_t e = 0; e < n; e++)
		d1[e] = 1;
	while (change > (double)MFK_SINKHORN_TOLERANCE) {
		double sums[EXPERTS_MAX] = {0};

		for (int64_t j = 0; j < all; j++) {
			const int64_t at = (j / part * m->length + group * part + j % part) * n;
			double sum = (double)MFK_SINKHORN_EPS;

			for (int64_t e = 0; e < n; e++)
				sum += d1[e] * exp(logits[at + e]);
			for (int64_t e = 0; e < n; e++) {
				key[at + e] = exp(logits[at + e]) / sum / (double)all;
				sums[e] += key[at + e];
			}
		}
		change = 0;
		for (int64_t e = 0; e < n; e++) {
			const double d = 1 / (sums[e] + (double)MFK_SINKHORN_EPS) / (double)n;

			change += fabs(d - d1[e]) / (double)n;
			d1[e] = d;
		}
		near = fmin(near, fabs(change - (double)MFK_SINKHORN_TOLERANCE));
	}
	for (int64_t t = 0; t < m->sequences * m->length; t++)
		for (int64_t e = 0; e < n && t % m->length / part == group; e++)
			key[t * n + e] *= d1[e];
	return near;
}

static void sinkhorn(struct check *c, const struct room *m, enum mfk_dtype type, double spread)
{
	const int64_t tokens = m->sequences * m->length, count = tokens * m->experts;
	struct tensor *logits = check_input(c, type, count, 0, spread);
	struct tensor *key = check_output(c, MFK_F32, count);
	const struct mfk_sinkhorn a = {.dtype = type,
				       .sequences = m->sequences,
				       .length = m->length,
				       .groups = m->groups,
				       .experts = m->experts,
				       .logits = logits->p,
				       .key = key->p};
	double *want = check_doubles(c, count), near = 1;

	check_shape(c, "%lld x %lld tokens in %lld parts, %lld experts, %s, spread %g",
		    (long long)m->sequences, (long long)m->length, (long long)m->groups,
		    (long long)m->experts, check_type_name(type), spread);
	for (int64_t group = 0; group < m->groups; group++)
		near = fmin(near, want_alike(m, group, logits->x, want));
	c->ops->sinkhorn(c->ctx, &a);
	check_near(c, "key", key, want, near < 1e-5 ? 1e-3 : 1e-5, 0);
}

void check_sinkhorn(struct check *c)
{
	static const struct room rooms[] = {
		{.sequences = 1, .length = 1, .groups = 1, .experts = 1},
		{.sequences = 3, .length = 40, .groups = 2, .experts = 5},
		{.sequences = 2, .length = 60, .groups = 3, .experts = 33},
		{.sequences = 1, .length = 1200, .groups = 1, .experts = 8},
		{.sequences = 2, .length = 2100, .groups = 1, .experts = 128},
		{.sequences = 1, .length = 16, .groups = 4, .experts = 300},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rooms) && c->ops->sinkhorn; i++)
		for (int t = 0; t < 3; t++) {
			sinkhorn(c, &rooms[i], check_types[t], 0.1);
			sinkhorn(c, &rooms[i], check_types[t], 2);
		}
}

/* ---- rows ---- */

static void rows(struct check *c, enum mfk_dtype type, int64_t tokens, int64_t cols, int64_t each)
{
	const int64_t choices = tokens * each;
	int32_t *map = calloc((size_t)choices, sizeof(*map));
	struct tensor *x = check_input(c, type, tokens * cols, 0, 1);
	struct tensor *y = check_output(c, type, choices * cols);
	struct tensor *back = check_output(c, type, tokens * cols);
	struct tensor *more = check_input(c, type, tokens * cols, 0, 1);
	double *gathered = check_doubles(c, choices * cols);
	double *combined = check_doubles(c, tokens * cols);
	struct mfk_rows a = {.dtype = type, .rows = choices, .cols = cols, .each = each};

	check_shape(c, "%lld x %lld, %lld each, %s", (long long)tokens, (long long)cols,
		    (long long)each, check_type_name(type));
	for (int64_t i = 0; i < choices; i++)
		map[i] = (int32_t)i;
	for (int64_t i = choices - 1; i > 0; i--) {
		const int64_t k = check_below(c, i + 1);
		const int32_t other = map[k];

		map[k] = map[i];
		map[i] = other;
	}
	for (int64_t i = 0; i < choices * cols; i++)
		gathered[i] = x->x[map[i / cols] / each * cols + i % cols];
	a.map = check_ints(c, map, choices);
	a.x = x->p;
	a.y = y->p;
	c->ops->gather(c->ctx, &a);
	check_equal(c, "gathered", y, gathered);
	a.rows = tokens;
	a.x = y->p;
	for (int with = 0; with < 2 && c->ops->combine; with++) {
		for (int64_t i = 0; i < tokens * cols; i++) {
			combined[i] = with ? more->x[i] : 0;
			for (int64_t k = 0; k < each; k++)
				combined[i] += gathered[map[i / cols * each + k] * cols + i % cols];
		}
		a.y = with ? more->p : back->p;
		a.residual = with ? more->p : NULL;
		c->ops->combine(c->ctx, &a);
		check_near(c, "combined", with ? more : back, combined, 1e-6, 1);
	}
	free(map);
}

void check_rows(struct check *c)
{
	if (!c->ops->gather)
		return;
	for (int t = 0; t < 3; t++) {
		rows(c, check_types[t], 1, 1, 1);
		rows(c, check_types[t], 33, 129, 2);
		rows(c, check_types[t], 70, 1024, 6);
		rows(c, check_types[t], 3, 2057, 8);
	}
}

/* ---- multi-latent attention ---- */

#define POSITIONS 40

struct mla_shape {
	int64_t tokens, heads, nope, rope, rotary_dim, v_dim;
};

/* y = x turned by a token's angles, or the transposed step of it. */
static void turn(const struct mla_shape *s, const double *cosines, const double *sines, bool back,
		 const double *x, double *y)
{
	const int64_t half = s->rotary_dim / 2;

	for (int64_t i = 0; i < s->rope; i++)
		y[i] = i < s->rotary_dim ? 0 : x[i];
	for (int64_t i = 0; i < half; i++) {
		const int64_t at[2] = {2 * i, 2 * i + 1}, to[2] = {i, i + half};
		const double m[2][2] = {{cosines[i], -sines[i]}, {sines[i], cosines[i]}};

		for (int row = 0; row < 2; row++)
			for (int col = 0; col < 2; col++)
				y[back ? at[col] : to[row]] +=
					m[row][col] * x[back ? to[row] : at[col]];
	}
}

/* What an operation takes and gives, and what is expected: q, k, v, dq_up, dkv_up, dk_rope. */
struct mla_problem {
	struct mla_shape s;
	struct tensor *q_up, *kv_up, *k_rope, *dq, *dk, *dv, *cos, *sin;
	struct tensor *out[6];
	double *want[6];
};

static struct mla_problem make_mla(struct check *c, struct mla_shape s, enum mfk_dtype type)
{
	const int64_t all = s.tokens * s.heads, q = all * (s.nope + s.rope);
	const int64_t kv = all * (s.nope + s.v_dim), v = all * s.v_dim, rope = s.tokens * s.rope;
	const int64_t counts[6] = {q, q, v, q, kv, rope};
	struct mla_problem p = {
		.s = s,
		.q_up = check_input(c, type, q, 0, 1),
		.kv_up = check_input(c, type, kv, 0, 1),
		.k_rope = check_input(c, type, rope, 0, 1),
		.dq = check_input(c, type, q, 0, 1),
		.dk = check_input(c, type, q, 0, 1),
		.dv = check_input(c, type, v, 0, 1),
		.cos = check_input(c, MFK_F32, POSITIONS * s.rotary_dim / 2, 0, 1),
		.sin = check_input(c, MFK_F32, POSITIONS * s.rotary_dim / 2, 0, 1),
	};

	for (int i = 0; i < 6; i++) {
		p.out[i] = check_output(c, type, counts[i]);
		p.want[i] = check_doubles(c, counts[i]);
	}
	return p;
}

static void expect_token(struct mla_problem *p, int64_t t, int64_t position)
{
	const struct mla_shape *s = &p->s;
	const int64_t half = s->rotary_dim / 2, nope = s->nope;
	const double *cs = p->cos->x + position * half, *sn = p->sin->x + position * half;
	double **want = p->want, sum[512] = {0};

	for (int64_t h = t * s->heads; h < (t + 1) * s->heads; h++) {
		const int64_t qk = h * (nope + s->rope), kv = h * (nope + s->v_dim);

		for (int64_t i = 0; i < nope; i++) {
			want[0][qk + i] = p->q_up->x[qk + i];
			want[1][qk + i] = p->kv_up->x[kv + i];
			want[3][qk + i] = p->dq->x[qk + i];
			want[4][kv + i] = p->dk->x[qk + i];
		}
		for (int64_t i = 0; i < s->v_dim; i++) {
			want[2][h * s->v_dim + i] = p->kv_up->x[kv + nope + i];
			want[4][kv + nope + i] = p->dv->x[h * s->v_dim + i];
		}
		turn(s, cs, sn, false, p->q_up->x + qk + nope, want[0] + qk + nope);
		turn(s, cs, sn, false, p->k_rope->x + t * s->rope, want[1] + qk + nope);
		turn(s, cs, sn, true, p->dq->x + qk + nope, want[3] + qk + nope);
		for (int64_t i = 0; i < s->rope; i++)
			sum[i] += p->dk->x[qk + nope + i];
	}
	turn(s, cs, sn, true, sum, want[5] + t * s->rope);
}

static void mla(struct check *c, struct mla_shape s, enum mfk_dtype type)
{
	static const char *const names[6] = {"q", "k", "v", "dq_up", "dkv_up", "dk_rope"};
	struct mla_problem p = make_mla(c, s, type);
	int32_t *positions = calloc((size_t)s.tokens, sizeof(*positions));
	struct mfk_mla a = {.dtype = type,
			    .tokens = s.tokens,
			    .heads = s.heads,
			    .nope = s.nope,
			    .rope = s.rope,
			    .rotary_dim = s.rotary_dim,
			    .v_dim = s.v_dim,
			    .cos = p.cos->p,
			    .sin = p.sin->p,
			    .q_up = p.q_up->p,
			    .kv_up = p.kv_up->p,
			    .k_rope = p.k_rope->p,
			    .q = p.out[0]->p,
			    .k = p.out[1]->p,
			    .v = p.out[2]->p,
			    .dq = p.dq->p,
			    .dk = p.dk->p,
			    .dv = p.dv->p,
			    .dq_up = p.out[3]->p,
			    .dkv_up = p.out[4]->p,
			    .dk_rope = p.out[5]->p};

	check_shape(c, "%lld tokens, %lld heads of %lld + %lld (%lld turned), values of %lld, %s",
		    (long long)s.tokens, (long long)s.heads, (long long)s.nope, (long long)s.rope,
		    (long long)s.rotary_dim, (long long)s.v_dim, check_type_name(type));
	for (int64_t t = 0; t < s.tokens; t++) {
		positions[t] = (int32_t)check_below(c, POSITIONS);
		expect_token(&p, t, positions[t]);
	}
	a.positions = check_ints(c, positions, s.tokens);
	free(positions);
	c->ops->mla(c->ctx, &a);
	if (c->ops->mla_backward)
		c->ops->mla_backward(c->ctx, &a);
	for (int i = 0; i < (c->ops->mla_backward ? 6 : 3); i++)
		check_near(c, names[i], p.out[i], p.want[i], 2e-6, 1);
}

void check_mla(struct check *c)
{
	static const struct mla_shape shapes[] = {
		{1, 1, 4, 2, 2, 3},	 {19, 4, 16, 8, 8, 16},	 {130, 3, 128, 64, 64, 128},
		{7, 16, 24, 20, 10, 40}, {65, 5, 33, 6, 4, 129},
	};

	if (!c->ops->mla)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3; t++)
			mla(c, shapes[i], check_types[t]);
}
