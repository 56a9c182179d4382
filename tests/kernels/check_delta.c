/* Gates of outputs, and the gated delta net: definitions in doubles, and the gradients of each step
 * of them, with all states kept. */
#include <math.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

static double silu_slope(double x)
{
	return sigmoid(x) * (1 + x * (1 - sigmoid(x)));
}

/* ---- gates ---- */

static void gate(struct check *c, enum mfk_dtype type, bool silu, int64_t rows, int64_t n)
{
	const int64_t ld = 2 * n + 3;
	struct tensor *x = check_input(c, type, rows * n, 0, 1);
	struct tensor *gates = check_input(c, type, rows * ld, 0, 2);
	struct tensor *dy = check_input(c, type, rows * n, 0, 1);
	struct tensor *y = check_output(c, type, rows * n), *dx = check_output(c, type, rows * n);
	struct tensor *dgates = check_output(c, type, rows * ld);
	double *ys = check_doubles(c, rows * n), *dxs = check_doubles(c, rows * n);
	double *dgs = check_doubles(c, rows * ld);
	struct mfk_gate a = {.dtype = type,
			     .silu = silu,
			     .rows = rows,
			     .cols = n,
			     .ld = ld,
			     .x = x->p,
			     .gate = gates->p,
			     .y = y->p,
			     .dy = dy->p,
			     .dx = dx->p,
			     .dgate = dgates->p};

	check_shape(c, "%lld x %lld %s, %s", (long long)rows, (long long)n, check_type_name(type),
		    silu ? "SiLU" : "sigmoid");
	for (int64_t i = 0; i < rows * ld; i++)
		dgs[i] = NAN;
	for (int64_t i = 0; i < rows * n; i++) {
		const int64_t at = i / n * ld + i % n;
		const double g = gates->x[at], s = sigmoid(g), f = silu ? g * s : s;

		ys[i] = x->x[i] * f;
		dxs[i] = dy->x[i] * f;
		dgs[at] = dy->x[i] * x->x[i] * (silu ? silu_slope(g) : s * (1 - s));
	}
	c->ops->gate(c->ctx, &a);
	check_near(c, "y", y, ys, 1e-6, 1);
	c->ops->gate_backward(c->ctx, &a);
	check_near(c, "dx", dx, dxs, 1e-6, 1);
	check_near(c, "dgate", dgates, dgs, 1e-6, 1);
	a.y = x->p;
	a.dx = dy->p;
	c->ops->gate_backward(c->ctx, &a);
	check_near(c, "dx in place", dy, dxs, 1e-6, 1);
	c->ops->gate(c->ctx, &a);
	check_near(c, "y in place", x, ys, 1e-6, 1);
}

void check_gate(struct check *c)
{
	if (!c->ops->gate)
		return;
	for (int t = 0; t < 3; t++)
		for (int silu = 0; silu < 2; silu++) {
			gate(c, check_types[t], silu, 1, 1);
			gate(c, check_types[t], silu, 37, 24);
			gate(c, check_types[t], silu, 130, 257);
		}
}

/* ---- what the rule starts from ---- */

struct shape {
	int64_t batch, seq, key_heads, value_heads, key_dim, value_dim, width;
};

static const struct shape shapes[] = {
	{1, 1, 1, 1, 1, 1, 1},	   {2, 5, 2, 4, 6, 10, 4},	{1, 70, 1, 3, 33, 20, 3},
	{3, 17, 2, 2, 64, 40, 2},  {1, 150, 1, 2, 128, 128, 4}, {2, 9, 1, 1, 256, 200, 4},
	{1, 300, 4, 4, 16, 16, 5},
};

static int64_t keys_of(const struct shape *s)
{
	return s->key_heads * s->key_dim;
}

static int64_t values_of(const struct shape *s)
{
	return s->value_heads * s->value_dim;
}

static struct mfk_delta operation(const struct shape *s, enum mfk_dtype type, enum mfk_dtype grad)
{
	return (struct mfk_delta){.dtype = type,
				  .grad = grad,
				  .batch = s->batch,
				  .seq = s->seq,
				  .key_heads = s->key_heads,
				  .value_heads = s->value_heads,
				  .key_dim = s->key_dim,
				  .value_dim = s->value_dim,
				  .width = s->width,
				  .scale = 1 / sqrtf((float)s->key_dim)};
}

static void *scratch_of(struct check *c, const struct mfk_delta *a)
{
	return check_output(c, MFK_F32, (int64_t)(c->ops->delta_scratch(c->device, a) / 4) + 1)->p;
}

static void say(struct check *c, const struct shape *s, enum mfk_dtype type)
{
	check_shape(
		c,
		"%lld x %lld tokens, %lld heads of %lld keys, %lld of %lld values, width %lld, %s",
		(long long)s->batch, (long long)s->seq, (long long)s->key_heads,
		(long long)s->key_dim, (long long)s->value_heads, (long long)s->value_dim,
		(long long)s->width, check_type_name(type));
}

struct inputs {
	struct shape s;
	int64_t cols, all; /* that are convolved; of a token */
	struct tensor *packed, *conv, *a_log, *dt_bias;
	struct tensor *d[3], *ddecay, *dbeta; /* of q, k and v */
	double *u, *du;			      /* [T, cols], before SiLU */
	double *y[3], *decay, *beta;
	double *dpacked, *dconv, *da_log, *ddt_bias;
};

static double convolved(const struct inputs *p, int64_t t, int64_t i)
{
	double sum = 0;

	for (int64_t j = 0; j < p->s.width; j++) {
		const int64_t back = p->s.width - 1 - j;

		if (back <= t % p->s.seq)
			sum += p->conv->x[i * p->s.width + j] *
			       p->packed->x[(t - back) * p->all + i];
	}
	return sum;
}

/* Of n columns from `first` on, which are one head. part: of q, k or v. */
static void expect_head(struct inputs *p, int64_t t, int part, int64_t first, int64_t n)
{
	const int64_t keys = keys_of(&p->s), begin = part * keys;
	const int64_t width = part == 2 ? values_of(&p->s) : keys;
	double *u = p->u + t * p->cols + begin + first, *du = p->du + t * p->cols + begin + first;
	double *y = p->y[part] + t * width + first;
	const double *d = p->d[part]->x + t * width + first;
	double squares = MFK_DELTA_EPS, product = 0, by;

	for (int64_t i = 0; i < n; i++) {
		u[i] = convolved(p, t, begin + first + i);
		y[i] = u[i] * sigmoid(u[i]);
		squares += y[i] * y[i];
		product += y[i] * d[i];
	}
	by = part == 2 ? 1 : 1 / sqrt(squares);
	product = part == 2 ? 0 : product * by * by;
	for (int64_t i = 0; i < n; i++) {
		du[i] = by * (d[i] - y[i] * product) * silu_slope(u[i]);
		y[i] *= by;
	}
}

static void expect_columns(struct inputs *p, int64_t t)
{
	for (int64_t h = 0; h < p->s.key_heads; h++)
		for (int part = 0; part < 2; part++)
			expect_head(p, t, part, h * p->s.key_dim, p->s.key_dim);
	expect_head(p, t, 2, 0, values_of(&p->s));
}

static void expect_convolution_backward(struct inputs *p, int64_t t)
{
	for (int64_t i = 0; i < p->cols; i++)
		for (int64_t j = 0; j < p->s.width; j++) {
			const int64_t back = p->s.width - 1 - j;
			const double d = p->du[t * p->cols + i];

			if (back > t % p->s.seq)
				continue;
			p->dconv[i * p->s.width + j] += d * p->packed->x[(t - back) * p->all + i];
			p->dpacked[(t - back) * p->all + i] += d * p->conv->x[i * p->s.width + j];
		}
}

static void expect_rates(struct inputs *p, int64_t t)
{
	const int64_t heads = p->s.value_heads, first = t * p->all + p->all - 2 * heads;

	for (int64_t h = 0; h < heads; h++) {
		const double b = sigmoid(p->packed->x[first + h]), rate = -exp(p->a_log->x[h]);
		const double x = p->packed->x[first + heads + h] + p->dt_bias->x[h];
		const double d = p->ddecay->x[t * heads + h], dx = d * rate * sigmoid(x);

		p->decay[t * heads + h] = rate * log1p(exp(x));
		p->beta[t * heads + h] = b;
		p->dpacked[first + h] = p->dbeta->x[t * heads + h] * b * (1 - b);
		p->dpacked[first + heads + h] = dx;
		p->da_log[h] += d * p->decay[t * heads + h];
		p->ddt_bias[h] += dx;
	}
}

/* Added to what was there. */
static double *begin_with(struct check *c, const struct tensor *t)
{
	double *x = check_doubles(c, t->count);

	for (int64_t i = 0; i < t->count; i++)
		x[i] = t->x[i];
	return x;
}

static void inputs(struct check *c, struct shape s, enum mfk_dtype type, enum mfk_dtype grad)
{
	const int64_t tokens = s.batch * s.seq, heads = tokens * s.value_heads;
	const int64_t keys = keys_of(&s), values = values_of(&s), cols = 2 * keys + values;
	const int64_t all = cols + values + 2 * s.value_heads;
	struct mfk_delta a = operation(&s, type, grad);
	struct tensor *y[3], *decay = check_output(c, MFK_F32, heads);
	struct tensor *beta = check_output(c, MFK_F32, heads);
	struct tensor *dpacked = check_output(c, type, tokens * all);
	struct tensor *dconv = check_input(c, grad, cols * s.width, 0, 1);
	struct tensor *da_log = check_input(c, grad, s.value_heads, 0, 1);
	struct tensor *ddt_bias = check_input(c, grad, s.value_heads, 0, 1);
	struct inputs p = {.s = s,
			   .cols = cols,
			   .all = all,
			   .packed = check_input(c, type, tokens * all, 0, 1),
			   .conv = check_input(c, type, cols * s.width, 0, 0.5),
			   .a_log = check_input(c, type, s.value_heads, 0.5, 0.5),
			   .dt_bias = check_input(c, type, s.value_heads, 1, 0.5),
			   .ddecay = check_input(c, MFK_F32, heads, 0, 1),
			   .dbeta = check_input(c, MFK_F32, heads, 0, 1),
			   .u = check_doubles(c, tokens * cols),
			   .du = check_doubles(c, tokens * cols),
			   .decay = check_doubles(c, heads),
			   .beta = check_doubles(c, heads),
			   .dpacked = check_doubles(c, tokens * all),
			   .dconv = begin_with(c, dconv),
			   .da_log = begin_with(c, da_log),
			   .ddt_bias = begin_with(c, ddt_bias)};

	for (int i = 0; i < 3; i++) {
		p.y[i] = check_doubles(c, tokens * (i == 2 ? values : keys));
		p.d[i] = check_input(c, type, tokens * (i == 2 ? values : keys), 0, 1);
		y[i] = check_output(c, type, tokens * (i == 2 ? values : keys));
	}
	say(c, &s, type);
	for (int64_t t = 0; t < tokens; t++) {
		expect_columns(&p, t);
		expect_convolution_backward(&p, t);
		expect_rates(&p, t);
		for (int64_t i = cols; i < cols + values; i++) /* z */
			p.dpacked[t * all + i] = NAN;
	}
	a.packed = p.packed->p;
	a.conv = p.conv->p;
	a.a_log = p.a_log->p;
	a.dt_bias = p.dt_bias->p;
	a.q = y[0]->p;
	a.k = y[1]->p;
	a.v = y[2]->p;
	a.decay = decay->p;
	a.beta = beta->p;
	c->ops->delta_inputs(c->ctx, &a);
	check_near(c, "q", y[0], p.y[0], 4e-6, 1);
	check_near(c, "k", y[1], p.y[1], 4e-6, 1);
	check_near(c, "v", y[2], p.y[2], 2e-6, 1);
	check_near(c, "decay", decay, p.decay, 2e-6, 1);
	check_near(c, "beta", beta, p.beta, 2e-6, 1);
	a.dq = p.d[0]->p;
	a.dk = p.d[1]->p;
	a.dv = p.d[2]->p;
	a.ddecay = p.ddecay->p;
	a.dbeta = p.dbeta->p;
	a.dpacked = dpacked->p;
	a.dconv = dconv->p;
	a.da_log = da_log->p;
	a.ddt_bias = ddt_bias->p;
	a.scratch = scratch_of(c, &a);
	c->ops->delta_inputs_backward(c->ctx, &a);
	check_near(c, "dpacked", dpacked, p.dpacked, 2e-5, 1);
	check_near(c, "dconv", dconv, p.dconv, 2e-5, 1);
	check_near(c, "da_log", da_log, p.da_log, 2e-5, 1);
	check_near(c, "ddt_bias", ddt_bias, p.ddt_bias, 2e-5, 1);
}

void check_delta_inputs(struct check *c)
{
	if (!c->ops->delta_inputs)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3; t++)
			inputs(c, shapes[i], check_types[t], t && i % 2 ? check_types[t] : MFK_F32);
}

/* ---- the rule ---- */

struct rule {
	struct shape s;
	float scale;
	struct tensor *q, *k, *v, *decay, *beta, *dout;
	double *out, *dq, *dk, *dv, *ddecay, *dbeta;
	double *states; /* [seq + 1, key_dim, value_dim], of one head */
	double *d, *dd; /* [value_dim] */
	double *dstate; /* [key_dim, value_dim] */
};

/* A token of a head of values: where it is in q and k, in v, and among rates. */
struct token {
	int64_t key, value, rate;
};

static struct token token_of(const struct rule *p, int64_t b, int64_t h, int64_t t)
{
	const struct shape *s = &p->s;
	const int64_t at = b * s->seq + t, share = s->value_heads / s->key_heads;

	return (struct token){(at * s->key_heads + h / share) * s->key_dim,
			      (at * s->value_heads + h) * s->value_dim, at * s->value_heads + h};
}

/* d = beta (v - (fade S)^T k) */
static void find_d(const struct rule *p, struct token t, const double *before)
{
	const int64_t n = p->s.value_dim;
	const double fade = exp(p->decay->x[t.rate]);

	for (int64_t j = 0; j < n; j++) {
		double sum = 0;

		for (int64_t i = 0; i < p->s.key_dim; i++)
			sum += fade * before[i * n + j] * p->k->x[t.key + i];
		p->d[j] = p->beta->x[t.rate] * (p->v->x[t.value + j] - sum);
	}
}

static void expect_token(struct rule *p, struct token t, const double *before, double *now)
{
	const int64_t n = p->s.value_dim;
	const double fade = exp(p->decay->x[t.rate]);

	find_d(p, t, before);
	for (int64_t i = 0; i < p->s.key_dim; i++)
		for (int64_t j = 0; j < n; j++) {
			now[i * n + j] = fade * before[i * n + j] + p->k->x[t.key + i] * p->d[j];
			p->out[t.value + j] +=
				(double)p->scale * p->q->x[t.key + i] * now[i * n + j];
		}
}

static void expect_token_backward(struct rule *p, struct token t, const double *before,
				  const double *now)
{
	const int64_t n = p->s.value_dim;
	const double fade = exp(p->decay->x[t.rate]), beta = p->beta->x[t.rate];

	find_d(p, t, before);
	for (int64_t j = 0; j < n; j++) {
		p->dd[j] = 0;
		for (int64_t i = 0; i < p->s.key_dim; i++) {
			p->dstate[i * n + j] +=
				(double)p->scale * p->q->x[t.key + i] * p->dout->x[t.value + j];
			p->dd[j] += p->dstate[i * n + j] * p->k->x[t.key + i];
		}
		p->dbeta[t.rate] += p->dd[j] * p->d[j] / beta;
		p->dv[t.value + j] = beta * p->dd[j];
	}
	for (int64_t i = 0; i < p->s.key_dim; i++)
		for (int64_t j = 0; j < n; j++) {
			const double faded = fade * before[i * n + j];
			double *ds = &p->dstate[i * n + j];

			p->dq[t.key + i] +=
				(double)p->scale * p->dout->x[t.value + j] * now[i * n + j];
			p->dk[t.key + i] += *ds * p->d[j] - faded * beta * p->dd[j];
			*ds -= beta * p->dd[j] * p->k->x[t.key + i];
			p->ddecay[t.rate] += faded * *ds;
			*ds *= fade;
		}
}

static void expect_rule(struct rule *p)
{
	const int64_t n = p->s.key_dim * p->s.value_dim;

	for (int64_t b = 0; b < p->s.batch; b++)
		for (int64_t h = 0; h < p->s.value_heads; h++) {
			for (int64_t i = 0; i < n; i++)
				p->states[i] = p->dstate[i] = 0;
			for (int64_t t = 0; t < p->s.seq; t++)
				expect_token(p, token_of(p, b, h, t), p->states + t * n,
					     p->states + (t + 1) * n);
			for (int64_t t = p->s.seq - 1; t >= 0; t--)
				expect_token_backward(p, token_of(p, b, h, t), p->states + t * n,
						      p->states + (t + 1) * n);
		}
}

/* Numbers of the size that inputs have: q and k of length 1, and rates within their ranges. */
static struct tensor *unit_heads(struct check *c, enum mfk_dtype type, int64_t count, int64_t dim)
{
	return check_input(c, type, count, 0, 1 / sqrt((double)dim));
}

static struct tensor *rates(struct check *c, int64_t count, double from, double to)
{
	double *x = check_doubles(c, count);

	for (int64_t i = 0; i < count; i++)
		x[i] = from + (to - from) * check_uniform(c);
	return check_values(c, MFK_F32, count, x);
}

static void compare_rule(struct check *c, struct rule *p, struct mfk_delta *a)
{
	const int64_t tokens = p->s.batch * p->s.seq, heads = tokens * p->s.value_heads;
	const int64_t keys = tokens * keys_of(&p->s), values = tokens * values_of(&p->s);
	struct tensor *out = check_output(c, a->dtype, values);
	struct tensor *dq = check_output(c, a->dtype, keys), *dk = check_output(c, a->dtype, keys);
	struct tensor *dv = check_output(c, a->dtype, values);
	struct tensor *ddecay = check_output(c, MFK_F32, heads);
	struct tensor *dbeta = check_output(c, MFK_F32, heads);

	a->out = out->p;
	c->ops->delta_rule(c->ctx, a);
	check_near(c, "out", out, p->out, 1e-5, 0.1);
	a->dq = dq->p;
	a->dk = dk->p;
	a->dv = dv->p;
	a->ddecay = ddecay->p;
	a->dbeta = dbeta->p;
	a->scratch = scratch_of(c, a);
	c->ops->delta_rule_backward(c->ctx, a);
	check_near(c, "dq", dq, p->dq, 2e-5, 0.1);
	check_near(c, "dk", dk, p->dk, 2e-5, 0.1);
	check_near(c, "dv", dv, p->dv, 2e-5, 0.1);
	check_near(c, "ddecay", ddecay, p->ddecay, 2e-5, 0.1);
	check_near(c, "dbeta", dbeta, p->dbeta, 2e-5, 0.1);
}

static void rule(struct check *c, struct shape s, enum mfk_dtype type)
{
	const int64_t tokens = s.batch * s.seq, heads = tokens * s.value_heads;
	const int64_t keys = tokens * keys_of(&s), values = tokens * values_of(&s);
	const int64_t state = s.key_dim * s.value_dim;
	struct mfk_delta a = operation(&s, type, MFK_F32);
	struct rule p = {.s = s,
			 .scale = a.scale,
			 .q = unit_heads(c, type, keys, s.key_dim),
			 .k = unit_heads(c, type, keys, s.key_dim),
			 .v = check_input(c, type, values, 0, 1),
			 .decay = rates(c, heads, -2, 0),
			 .beta = rates(c, heads, 0.1, 0.9),
			 .dout = check_input(c, type, values, 0, 1),
			 .out = check_doubles(c, values),
			 .dq = check_doubles(c, keys),
			 .dk = check_doubles(c, keys),
			 .dv = check_doubles(c, values),
			 .ddecay = check_doubles(c, heads),
			 .dbeta = check_doubles(c, heads),
			 .states = check_doubles(c, (s.seq + 1) * state),
			 .d = check_doubles(c, s.value_dim),
			 .dd = check_doubles(c, s.value_dim),
			 .dstate = check_doubles(c, state)};

	say(c, &s, type);
	expect_rule(&p);
	a.q = p.q->p;
	a.k = p.k->p;
	a.v = p.v->p;
	a.decay = p.decay->p;
	a.beta = p.beta->p;
	a.dout = p.dout->p;
	compare_rule(c, &p, &a);
}

void check_delta_rule(struct check *c)
{
	if (!c->ops->delta_rule)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3; t++)
			rule(c, shapes[i], check_types[t]);
}
