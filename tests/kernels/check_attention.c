/* Attention and its gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kernels/check_i.h"

struct shape {
	int64_t batch, seq, heads, kv_heads, qk_dim, v_dim;
};

enum mask { ALL, CAUSAL, DOCUMENTS, WINDOW };

static const char *const mask_names[] = {"all keys", "causal", "documents", "window"};

/* Probabilities of one row of [batch, heads, seq], and what dropout does to them. */
struct row {
	int64_t begin, end;
	double *p, *keep;
	double lse;
};

static double dot(const double *x, const double *y, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += x[i] * y[i];
	return sum;
}

struct problem {
	struct shape s;
	struct mfk_attention a;
	const int32_t *first_key; /* here */
	struct tensor *q, *k, *v, *dout, *out, *lse, *dq, *dk, *dv;
	double *outs, *lses, *dqs, *dks, *dvs;
};

static double *at(double *x, const struct shape *s, int64_t heads, int64_t dim, int64_t b,
		  int64_t i, int64_t head)
{
	return x + ((b * s->seq + i) * heads + head) * dim;
}

static void softmax(const struct problem *p, int64_t b, int64_t h, int64_t i, struct row *r)
{
	const struct shape *s = &p->s;
	const double *q = at(p->q->x, s, s->heads, s->qk_dim, b, i, h);
	int64_t kv = h / (s->heads / s->kv_heads);
	double most = -INFINITY, sum = 0;

	r->begin = p->first_key ? p->first_key[b * s->seq + i] : 0;
	r->end = p->a.causal ? i + 1 : s->seq;
	for (int64_t j = r->begin; j < r->end; j++) {
		uint64_t n = (uint64_t)(((b * s->heads + h) * s->seq + i) * s->seq + j);

		r->p[j] = (double)p->a.scale *
			  dot(q, at(p->k->x, s, s->kv_heads, s->qk_dim, b, j, kv), s->qk_dim);
		most = fmax(most, r->p[j]);
		r->keep[j] = check_keep(p->a.seed, p->a.offset + n, p->a.dropout);
	}
	for (int64_t j = r->begin; j < r->end; j++)
		sum += exp(r->p[j] - most);
	r->lse = most + log(sum);
	for (int64_t j = r->begin; j < r->end; j++)
		r->p[j] = exp(r->p[j] - r->lse);
}

static void forward(const struct problem *p, int64_t b, int64_t h, int64_t i, struct row *r)
{
	const struct shape *s = &p->s;
	int64_t kv = h / (s->heads / s->kv_heads);
	double *out = at(p->outs, s, s->heads, s->v_dim, b, i, h);

	softmax(p, b, h, i, r);
	p->lses[(b * s->heads + h) * s->seq + i] = r->lse;
	for (int64_t j = r->begin; j < r->end; j++) {
		const double *v = at(p->v->x, s, s->kv_heads, s->v_dim, b, j, kv);

		for (int64_t d = 0; d < s->v_dim; d++)
			out[d] += r->p[j] * r->keep[j] * v[d];
	}
}

/* What a query of a head adds to the gradients; the output is the one that the device rounded. */
static void backward(const struct problem *p, int64_t b, int64_t h, int64_t i, struct row *r)
{
	const struct shape *s = &p->s;
	int64_t kv = h / (s->heads / s->kv_heads);
	const double *q = at(p->q->x, s, s->heads, s->qk_dim, b, i, h);
	const double *dout = at(p->dout->x, s, s->heads, s->v_dim, b, i, h);
	const double *out = at(p->out->x, s, s->heads, s->v_dim, b, i, h);
	double *dq = at(p->dqs, s, s->heads, s->qk_dim, b, i, h);
	double all = dot(dout, out, s->v_dim);

	softmax(p, b, h, i, r);
	for (int64_t j = r->begin; j < r->end; j++) {
		const double *k = at(p->k->x, s, s->kv_heads, s->qk_dim, b, j, kv);
		const double *v = at(p->v->x, s, s->kv_heads, s->v_dim, b, j, kv);
		double *dk = at(p->dks, s, s->kv_heads, s->qk_dim, b, j, kv);
		double *dv = at(p->dvs, s, s->kv_heads, s->v_dim, b, j, kv);
		double ds =
			r->p[j] * (r->keep[j] * dot(dout, v, s->v_dim) - all) * (double)p->a.scale;

		for (int64_t d = 0; d < s->v_dim; d++)
			dv[d] += r->p[j] * r->keep[j] * dout[d];
		for (int64_t d = 0; d < s->qk_dim; d++) {
			dq[d] += ds * k[d];
			dk[d] += ds * q[d];
		}
	}
}

typedef void each_query(const struct problem *p, int64_t b, int64_t h, int64_t i, struct row *r);

static void expected(struct check *c, const struct problem *p, each_query *query)
{
	const struct shape *s = &p->s;
	struct row r = {0, 0, check_doubles(c, s->seq), check_doubles(c, s->seq), 0};

	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t h = 0; h < s->heads; h++)
			for (int64_t i = 0; i < s->seq; i++)
				query(p, b, h, i, &r);
}

/* First keys of documents that end at random, or of a window. */
static int32_t *first_keys(struct check *c, const struct shape *s, enum mask mask)
{
	int32_t *first = calloc((size_t)(s->batch * s->seq), 4);

	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t i = 1; i < s->seq; i++) {
			int32_t *f = first + b * s->seq + i;

			if (mask == WINDOW)
				*f = i > 20 ? (int32_t)i - 20 : 0;
			else
				*f = check_below(c, 30) ? f[-1] : (int32_t)i;
		}
	return first;
}

static void make(struct check *c, struct problem *p, enum mfk_dtype type)
{
	const struct shape *s = &p->s;
	int64_t q = s->batch * s->seq * s->heads, k = s->batch * s->seq * s->kv_heads;

	p->q = check_input(c, type, q * s->qk_dim, 0, 1);
	p->k = check_input(c, type, k * s->qk_dim, 0, 1.5);
	p->v = check_input(c, type, k * s->v_dim, 0.3, 1);
	p->dout = check_input(c, type, q * s->v_dim, 0.1, 1);
	p->out = check_output(c, type, q * s->v_dim);
	p->lse = check_output(c, MFK_F32, q);
	p->dq = check_output(c, type, q * s->qk_dim);
	p->dk = check_output(c, type, k * s->qk_dim);
	p->dv = check_output(c, type, k * s->v_dim);
	p->outs = check_doubles(c, q * s->v_dim);
	p->lses = check_doubles(c, q);
	p->dqs = check_doubles(c, q * s->qk_dim);
	p->dks = check_doubles(c, k * s->qk_dim);
	p->dvs = check_doubles(c, k * s->v_dim);
	p->a.q = p->q->p;
	p->a.k = p->k->p;
	p->a.v = p->v->p;
	p->a.dout = p->dout->p;
	p->a.out = p->out->p;
	p->a.lse = p->lse->p;
	p->a.dq = p->dq->p;
	p->a.dk = p->dk->p;
	p->a.dv = p->dv->p;
}

/* Tensor cores multiply probabilities that are rounded to the io type. */
static double tolerance(const struct check *c, enum mfk_dtype type, double fp32)
{
	if (type == MFK_F32 || !strcmp(c->backend->name, "cpu"))
		return fp32;
	return type == MFK_BF16 ? 0x1p-7 : 0x1p-10;
}

static size_t scratch_bytes(struct check *c, const struct mfk_attention *a, bool backward)
{
	return c->ops->attention_scratch ? c->ops->attention_scratch(c->device, a, backward) : 0;
}

static void attention_backward(struct check *c, struct problem *p)
{
	double allowed = tolerance(c, p->a.dtype, 8e-6);

	expected(c, p, backward);
	p->a.scratch =
		check_output(c, MFK_F32, (int64_t)(scratch_bytes(c, &p->a, true) + 3) / 4)->p;
	c->ops->attention_backward(c->ctx, &p->a);
	check_near(c, "dq", p->dq, p->dqs, allowed, 1);
	check_near(c, "dk", p->dk, p->dks, allowed, 1);
	check_near(c, "dv", p->dv, p->dvs, allowed, 1);
}

static void attention(struct check *c, struct shape s, enum mfk_dtype type, enum mask mask,
		      float dropout)
{
	struct problem p = {.s = s};
	int32_t *first = mask >= DOCUMENTS ? first_keys(c, &s, mask) : NULL;

	check_shape(c,
		    "batch %lld, seq %lld, heads %lld of %lld, dims %lld, %lld, %s, %s, dropout %g",
		    (long long)s.batch, (long long)s.seq, (long long)s.heads, (long long)s.kv_heads,
		    (long long)s.qk_dim, (long long)s.v_dim, check_type_name(type),
		    mask_names[mask], (double)dropout);
	p.a = (struct mfk_attention){.dtype = type,
				     .batch = s.batch,
				     .seq = s.seq,
				     .heads = s.heads,
				     .kv_heads = s.kv_heads,
				     .qk_dim = s.qk_dim,
				     .v_dim = s.v_dim,
				     .scale = 1 / sqrtf((float)s.qk_dim),
				     .causal = mask != ALL,
				     .dropout = dropout,
				     .seed = check_random(c),
				     .offset = check_random(c) >> 20};
	p.first_key = first;
	p.a.first_key = first ? check_ints(c, first, s.batch * s.seq) : NULL;
	make(c, &p, type);
	expected(c, &p, forward);
	p.a.scratch = check_output(c, MFK_F32, (int64_t)(scratch_bytes(c, &p.a, false) + 3) / 4)->p;
	c->ops->attention(c->ctx, &p.a);
	check_near(c, "out", p.out, p.outs, tolerance(c, type, 4e-6), 1);
	check_near(c, "lse", p.lse, p.lses, 4e-6, 1);
	if (c->ops->attention_backward)
		attention_backward(c, &p);
	free(first);
}
void check_attention(struct check *c)
{
	static const struct shape shapes[] = {{1, 1, 1, 1, 8, 8},	{2, 17, 4, 2, 16, 16},
					      {1, 129, 3, 1, 32, 32},	{1, 130, 4, 4, 64, 64},
					      {1, 257, 2, 1, 128, 128}, {2, 65, 2, 2, 192, 128},
					      {2, 100, 2, 1, 24, 16},	{1, 140, 2, 1, 96, 96}};

	if (!c->ops->attention)
		return;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (int t = 0; t < 3; t++) {
			/* Masks take turns with shapes and types. */
			enum mask mask = (enum mask)((i + (size_t)t) % 4);

			attention(c, shapes[i], check_types[t], mask, 0);
			attention(c, shapes[i], check_types[t], (mask + 1) % 4, 0.3f);
		}
}
