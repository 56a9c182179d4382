/* Splitting qkv, the norms of q and k, and RoPE; gradients by the transposed steps. */
#include <math.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

struct shape {
	int64_t tokens, groups, heads_per_group, dim, rotary_dim, gates;
};

struct variant {
	bool norm, layernorm, bias, zero_centered, interleaved;
};

#define POSITIONS 50

/* The norm of q's heads, or k's. */
struct norm {
	struct tensor *weight, *bias, *dweight, *dbias, *mean, *rstd;
	double *means, *rstds, *dweights, *dbiases;
};

struct problem {
	struct shape s;
	struct variant v;
	int32_t *positions;
	struct tensor *cos, *sin;
	struct norm q, k;
	struct tensor *x, *dx, *y[3], *dy[3]; /* of q, k and v */
	double *dxs, *ys[3];		      /* what is expected */
};

static struct norm make_norm(struct check *c, enum mfk_dtype type, enum mfk_dtype grad, int64_t dim,
			     int64_t heads, bool zero_centered)
{
	struct norm n = {check_input(c, type, dim, zero_centered ? 0 : 1, 0.3),
			 check_input(c, type, dim, 0, 1),
			 check_input(c, grad, dim, 0, 1),
			 check_input(c, grad, dim, 0, 1),
			 check_output(c, MFK_F32, heads),
			 check_output(c, MFK_F32, heads),
			 check_doubles(c, heads),
			 check_doubles(c, heads),
			 check_doubles(c, dim),
			 check_doubles(c, dim)};

	for (int64_t i = 0; i < dim; i++) {
		n.dweights[i] = n.dweight->x[i];
		n.dbiases[i] = n.dbias->x[i];
	}
	return n;
}

static void turn(const struct problem *p, int64_t token, double direction, double *x)
{
	int64_t half = p->s.rotary_dim / 2;

	for (int64_t i = 0; i < half; i++) {
		int64_t at = p->positions[token] * half + i;
		double *x1 = x + (p->v.interleaved ? 2 * i : i);
		double *x2 = x + (p->v.interleaved ? 2 * i + 1 : i + half);
		double a = *x1, b = *x2;

		*x1 = a * p->cos->x[at] - b * p->sin->x[at] * direction;
		*x2 = b * p->cos->x[at] + a * p->sin->x[at] * direction;
	}
}

/* y [dim] of the head x; which: its number among those of q or k. */
static void head_forward(const struct problem *p, struct norm *n, int64_t token, int64_t which,
			 const double *x, double *y)
{
	int64_t dim = p->s.dim;
	double mean = 0, squares = 0, rstd;

	for (int64_t i = 0; i < dim && p->v.layernorm; i++)
		mean += x[i] / (double)dim;
	for (int64_t i = 0; i < dim; i++)
		squares += (x[i] - mean) * (x[i] - mean);
	rstd = 1 / sqrt(squares / (double)dim + 1e-6);
	for (int64_t i = 0; i < dim; i++)
		y[i] = !p->v.norm ? x[i]
				  : (x[i] - mean) * rstd * (n->weight->x[i] + p->v.zero_centered) +
					    (p->v.bias ? n->bias->x[i] : 0);
	n->means[which] = mean;
	n->rstds[which] = rstd;
	turn(p, token, 1, y);
}

static void head_backward(const struct problem *p, struct norm *n, int64_t token, int64_t which,
			  const double *x, const double *dy, double *dx)
{
	int64_t dim = p->s.dim;
	double mean = n->means[which], rstd = n->rstds[which], g = 0, gh = 0;

	for (int64_t i = 0; i < dim; i++)
		dx[i] = dy[i];
	turn(p, token, -1, dx);
	if (!p->v.norm)
		return;
	for (int64_t i = 0; i < dim; i++) {
		double w = dx[i] * (n->weight->x[i] + p->v.zero_centered);

		n->dweights[i] += dx[i] * (x[i] - mean) * rstd;
		n->dbiases[i] += dx[i];
		g += w / (double)dim;
		gh += w * (x[i] - mean) * rstd / (double)dim;
	}
	for (int64_t i = 0; i < dim; i++)
		dx[i] = rstd * (dx[i] * (n->weight->x[i] + p->v.zero_centered) -
				(p->v.layernorm ? g : 0) - (x[i] - mean) * rstd * gh);
}

static struct tensor *table(struct check *c, double (*f)(double), int64_t half)
{
	double *x = check_doubles(c, POSITIONS * half);

	for (int64_t i = 0; i < POSITIONS * half; i++)
		x[i] = f((double)(i / half) * pow(100, -(double)(i % half) / (double)half));
	return check_values(c, MFK_F32, POSITIONS * half, x);
}

static void compare_norm(struct check *c, const char *which, struct norm *n,
			 const struct variant *v, bool backward)
{
	if (!v->norm)
		return;
	if (!backward) {
		check_near(c, which, n->rstd, n->rstds, 4e-6, 1);
		if (v->layernorm)
			check_near(c, which, n->mean, n->means, 4e-6, 1);
		return;
	}
	check_near(c, which, n->dweight, n->dweights, 1e-5, 1);
	if (v->bias)
		check_near(c, which, n->dbias, n->dbiases, 1e-5, 1);
}

static struct problem make_problem(struct check *c, struct shape s, enum mfk_dtype type,
				   enum mfk_dtype grad, struct variant v)
{
	const int64_t heads = s.groups * s.heads_per_group;
	const int64_t all = s.tokens * (heads + (2 + s.gates) * s.groups) * s.dim;
	struct problem p = {
		.s = s,
		.v = v,
		.positions = calloc((size_t)s.tokens, 4),
		.cos = table(c, cos, s.rotary_dim / 2),
		.sin = table(c, sin, s.rotary_dim / 2),
		.q = make_norm(c, type, grad, s.dim, s.tokens * heads, v.zero_centered),
		.k = make_norm(c, type, grad, s.dim, s.tokens * s.groups, v.zero_centered),
		.x = check_input(c, type, all, 0.2, 1),
		.dx = check_output(c, type, all),
		.dxs = check_doubles(c, all)};

	for (int i = 0; i < 3; i++) {
		const int64_t count = s.tokens * (i ? s.groups : heads) * s.dim;

		p.y[i] = check_output(c, type, count);
		p.dy[i] = check_input(c, type, count, 0, 1);
		p.ys[i] = check_doubles(c, count);
	}
	for (int64_t i = 0; s.gates && i < all; i++)
		p.dxs[i] = NAN; /* those of gates stay */
	for (int64_t t = 0; t < s.tokens; t++)
		p.positions[t] = (int32_t)check_below(c, POSITIONS);
	return p;
}

/* Head h of a group, counted in all tokens: its part, and what is expected of it. */
static void expect_head(struct problem *p, int64_t group, int64_t h)
{
	const struct shape *s = &p->s;
	const int64_t token = group / s->groups;
	const int64_t first = group * (s->heads_per_group + s->gates + 2);
	const int64_t in = (first + h + (h < s->heads_per_group ? 0 : s->gates)) * s->dim;
	const int part = h < s->heads_per_group ? 0 : h == s->heads_per_group ? 1 : 2;
	const int64_t which = part ? group : group * s->heads_per_group + h;
	const int64_t out = which * s->dim;
	struct norm *n = part ? &p->k : &p->q;

	for (int64_t i = 0; part == 2 && i < s->dim; i++) {
		p->ys[2][out + i] = p->x->x[in + i];
		p->dxs[in + i] = p->dy[2]->x[out + i];
	}
	if (part == 2)
		return;
	head_forward(p, n, token, which, p->x->x + in, p->ys[part] + out);
	head_backward(p, n, token, which, p->x->x + in, p->dy[part]->x + out, p->dxs + in);
}

static struct mfk_qkv operation(struct check *c, const struct problem *p, enum mfk_dtype type,
				enum mfk_dtype grad)
{
	const bool norm = p->v.norm, bias = norm && p->v.bias;

	return (struct mfk_qkv){.dtype = type,
				.grad = grad,
				.tokens = p->s.tokens,
				.groups = p->s.groups,
				.heads_per_group = p->s.heads_per_group,
				.dim = p->s.dim,
				.gates = p->s.gates,
				.rotary_dim = p->s.rotary_dim,
				.interleaved = p->v.interleaved,
				.layernorm = p->v.layernorm,
				.zero_centered = p->v.zero_centered,
				.eps = 1e-6f,
				.cos = p->cos->p,
				.sin = p->sin->p,
				.positions = check_ints(c, p->positions, p->s.tokens),
				.q_norm = norm ? p->q.weight->p : NULL,
				.k_norm = norm ? p->k.weight->p : NULL,
				.q_norm_bias = bias ? p->q.bias->p : NULL,
				.k_norm_bias = bias ? p->k.bias->p : NULL,
				.dq_norm = norm ? p->q.dweight->p : NULL,
				.dk_norm = norm ? p->k.dweight->p : NULL,
				.dq_norm_bias = bias ? p->q.dbias->p : NULL,
				.dk_norm_bias = bias ? p->k.dbias->p : NULL,
				.q_mean = p->q.mean->p,
				.q_rstd = p->q.rstd->p,
				.k_mean = p->k.mean->p,
				.k_rstd = p->k.rstd->p,
				.qkv = p->x->p,
				.q = p->y[0]->p,
				.k = p->y[1]->p,
				.v = p->y[2]->p,
				.dq = p->dy[0]->p,
				.dk = p->dy[1]->p,
				.dv = p->dy[2]->p,
				.dqkv = p->dx->p};
}

static void qkv(struct check *c, struct shape s, enum mfk_dtype type, enum mfk_dtype grad,
		struct variant v)
{
	struct problem p = make_problem(c, s, type, grad, v);
	struct mfk_qkv a = operation(c, &p, type, grad);

	check_shape(c, "%lld tokens, %lld x %lld heads of %lld, %lld turned, %s%s%s%s%s%s",
		    (long long)s.tokens, (long long)s.groups, (long long)s.heads_per_group,
		    (long long)s.dim, (long long)s.rotary_dim, check_type_name(type),
		    v.norm ? ", norms" : "", v.layernorm ? ", LayerNorm" : "",
		    v.bias ? ", bias" : "", v.zero_centered ? ", zero-centred" : "",
		    v.interleaved ? ", interleaved" : "");
	for (int64_t group = 0; group < s.tokens * s.groups; group++)
		for (int64_t h = 0; h < s.heads_per_group + 2; h++)
			expect_head(&p, group, h);
	free(p.positions);
	c->ops->qkv(c->ctx, &a);
	check_near(c, "q", p.y[0], p.ys[0], 2e-6, 1);
	check_near(c, "k", p.y[1], p.ys[1], 2e-6, 1);
	check_equal(c, "v", p.y[2], p.ys[2]);
	compare_norm(c, "q's norm", &p.q, &v, false);
	compare_norm(c, "k's norm", &p.k, &v, false);
	if (!c->ops->qkv_backward)
		return;
	c->ops->qkv_backward(c->ctx, &a);
	check_near(c, "dqkv", p.dx, p.dxs, 1e-5, 1);
	compare_norm(c, "q's norm, backward", &p.q, &v, true);
	compare_norm(c, "k's norm, backward", &p.k, &v, true);
}

void check_qkv(struct check *c)
{
	static const struct shape shapes[] = {
		{1, 1, 1, 8, 8, 0},	 {17, 2, 3, 16, 8, 0},	{66, 3, 1, 64, 64, 0},
		{70, 2, 4, 128, 128, 0}, {5, 4, 2, 32, 0, 0},	{9, 1, 7, 33, 6, 0},
		{21, 1, 5, 80, 32, 0},	 {40, 2, 1, 96, 20, 0}, {3, 1, 2, 256, 64, 0},
		{23, 2, 3, 20, 8, 3},	 {9, 2, 4, 256, 64, 4},
	};

	if (!c->ops->qkv)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3; t++) {
			qkv(c, shapes[i], check_types[t], MFK_F32, (struct variant){0});
			qkv(c, shapes[i], check_types[t], MFK_F32,
			    (struct variant){.interleaved = true});
			qkv(c, shapes[i], check_types[t], MFK_F32, (struct variant){.norm = true});
			qkv(c, shapes[i], check_types[t], check_types[t],
			    (struct variant){.norm = true,
					     .layernorm = true,
					     .bias = true,
					     .zero_centered = true,
					     .interleaved = true});
		}
}
