/* Attention and its gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

struct shape {
	int64_t batch, seq, heads, kv_heads, qk_dim, v_dim; /* seq: queries */
	int64_t keys, whole;
};

enum mask { ALL, CAUSAL, DOCUMENTS, WINDOW };

static const char *const mask_names[] = {"all keys", "causal", "documents", "window"};

/* Which positions queries and keys have. PARTS processes share a sequence: process r has the pieces
 * r and 2 PARTS - 1 - r of 2 PARTS. */
enum part { ALL_OF_IT, OWN_QUERIES, EARLIER_KEYS, LATER_KEYS };
#define PARTS 3

static const char *const part_names[] = {"", ", a part's queries", ", and an earlier part's keys",
					 ", and a later part's keys"};

/* Probabilities of one row of [batch, heads, seq], and what dropout does to them; p of keys that
 * are not seen is 0. */
struct row {
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
	const int32_t *first_key, *query_at, *key_at; /* here */
	struct tensor *q, *k, *v, *dout, *out, *lse, *dq, *dk, *dv;
	double *outs, *lses, *dqs, *dks, *dvs;
};

/* Row i of a head of one of `rows` positions. */
static double *at(double *x, int64_t rows, int64_t heads, int64_t dim, int64_t b, int64_t i,
		  int64_t head)
{
	return x + ((b * rows + i) * heads + head) * dim;
}

static bool sees(const struct problem *p, int64_t b, int64_t i, int64_t j)
{
	return !p->a.causal || (p->key_at[j] <= p->query_at[i] &&
				(!p->first_key || p->key_at[j] >= p->first_key[b * p->s.seq + i]));
}

static void softmax(const struct problem *p, int64_t b, int64_t h, int64_t i, struct row *r)
{
	const struct shape *s = &p->s;
	const double *q = at(p->q->x, s->seq, s->heads, s->qk_dim, b, i, h);
	int64_t kv = h / (s->heads / s->kv_heads);
	int64_t query = (b * s->heads + h) * s->whole + p->query_at[i];
	double most = -INFINITY, sum = 0;

	for (int64_t j = 0; j < s->keys; j++) {
		uint64_t n = (uint64_t)(query * s->whole + p->key_at[j]);

		r->p[j] = (double)p->a.scale *
			  dot(q, at(p->k->x, s->keys, s->kv_heads, s->qk_dim, b, j, kv), s->qk_dim);
		if (!sees(p, b, i, j))
			r->p[j] = -INFINITY;
		most = fmax(most, r->p[j]);
		r->keep[j] = check_keep(p->a.seed, p->a.offset + n, p->a.dropout);
	}
	for (int64_t j = 0; j < s->keys; j++)
		sum += r->p[j] > -INFINITY ? exp(r->p[j] - most) : 0;
	r->lse = most + log(sum);
	for (int64_t j = 0; j < s->keys; j++)
		r->p[j] = r->p[j] > -INFINITY ? exp(r->p[j] - r->lse) : 0;
}

static void forward(const struct problem *p, int64_t b, int64_t h, int64_t i, struct row *r)
{
	const struct shape *s = &p->s;
	int64_t kv = h / (s->heads / s->kv_heads);
	double *out = at(p->outs, s->seq, s->heads, s->v_dim, b, i, h);

	softmax(p, b, h, i, r);
	p->lses[(b * s->heads + h) * s->seq + i] = r->lse;
	for (int64_t j = 0; j < s->keys; j++) {
		const double *v = at(p->v->x, s->keys, s->kv_heads, s->v_dim, b, j, kv);

		for (int64_t d = 0; d < s->v_dim; d++)
			out[d] += r->p[j] * r->keep[j] * v[d];
	}
}

/* What a query of a head adds to the gradients; the output is the one that the device rounded. */
static void backward(const struct problem *p, int64_t b, int64_t h, int64_t i, struct row *r)
{
	const struct shape *s = &p->s;
	int64_t kv = h / (s->heads / s->kv_heads);
	const double *q = at(p->q->x, s->seq, s->heads, s->qk_dim, b, i, h);
	const double *dout = at(p->dout->x, s->seq, s->heads, s->v_dim, b, i, h);
	const double *out = at(p->out->x, s->seq, s->heads, s->v_dim, b, i, h);
	double *dq = at(p->dqs, s->seq, s->heads, s->qk_dim, b, i, h);
	double all = dot(dout, out, s->v_dim);

	softmax(p, b, h, i, r);
	for (int64_t j = 0; j < s->keys; j++) {
		const double *k = at(p->k->x, s->keys, s->kv_heads, s->qk_dim, b, j, kv);
		const double *v = at(p->v->x, s->keys, s->kv_heads, s->v_dim, b, j, kv);
		double *dk = at(p->dks, s->keys, s->kv_heads, s->qk_dim, b, j, kv);
		double *dv = at(p->dvs, s->keys, s->kv_heads, s->v_dim, b, j, kv);
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
	struct row r = {check_doubles(c, s->keys), check_doubles(c, s->keys), 0};

	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t h = 0; h < s->heads; h++)
			for (int64_t i = 0; i < s->seq; i++)
				query(p, b, h, i, &r);
}

/* First keys of documents that end at random, or of a window. */
static int32_t *first_keys(struct check *c, const struct shape *s, const int32_t *query_at,
			   enum mask mask)
{
	int32_t *first = calloc((size_t)(s->batch * s->seq), 4);

	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t at = 0, start = 0, i = 0; i < s->seq; at++) {
			start = mask == WINDOW	     ? (at > 20 ? at - 20 : 0)
				: check_below(c, 30) ? start
						     : at;
			if (at == query_at[i])
				first[b * s->seq + i++] = (int32_t)start;
		}
	return first;
}

/* Positions 0 to count - 1, or those of a process that has `count` of `whole`. */
static int32_t *positions(int64_t whole, int64_t count, int64_t of)
{
	const int64_t piece = whole / (2 * PARTS);
	int32_t *at = calloc((size_t)count, sizeof(*at));

	for (int64_t i = 0; i < count; i++)
		at[i] = (int32_t)(count == whole ? i
				  : i < piece	 ? of * piece + i
						 : (2 * PARTS - 1 - of) * piece + i - piece);
	return at;
}

static void make(struct check *c, struct problem *p, enum mfk_dtype type)
{
	const struct shape *s = &p->s;
	int64_t q = s->batch * s->seq * s->heads, k = s->batch * s->keys * s->kv_heads;

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

/* What a shape says, and which part of it is looked at. */
static void set(struct check *c, struct problem *p, enum mfk_dtype type, enum mask mask,
		enum part part, float dropout)
{
	const struct shape *s = &p->s;

	p->a = (struct mfk_attention){.dtype = type,
				      .batch = s->batch,
				      .seq = s->seq,
				      .heads = s->heads,
				      .kv_heads = s->kv_heads,
				      .qk_dim = s->qk_dim,
				      .v_dim = s->v_dim,
				      .scale = 1 / sqrtf((float)s->qk_dim),
				      .causal = mask != ALL,
				      .dropout = dropout,
				      .seed = check_random(c),
				      .offset = check_random(c) >> 20};
	if (part == ALL_OF_IT)
		return;
	p->a.keys = s->keys;
	p->a.whole = s->whole;
	p->a.query_at = check_ints(c, p->query_at, s->seq);
	if (part != OWN_QUERIES)
		p->a.key_at = check_ints(c, p->key_at, s->keys);
}

/* What two parts' keys give, joined: the first join finds nothing before it. */
static void joined(struct check *c, const struct problem *p)
{
	const struct shape *s = &p->s;
	const int64_t rows = s->batch * s->seq * s->heads, count = rows * s->v_dim;
	double *outs = check_doubles(c, count), *lses = check_doubles(c, rows);
	struct tensor *part[2], *lse[2], *out = check_output(c, MFK_F32, count), *all;

	for (int64_t i = 0; i < rows; i++)
		lses[i] = -INFINITY;
	all = check_values(c, MFK_F32, rows, lses);
	for (int k = 0; k < 2; k++) {
		struct mfk_attention_join j = {.dtype = p->a.dtype,
					       .batch = s->batch,
					       .seq = s->seq,
					       .heads = s->heads,
					       .v_dim = s->v_dim,
					       .out = out->p,
					       .lse = all->p};

		part[k] = check_input(c, p->a.dtype, count, 0, 1);
		lse[k] = check_input(c, MFK_F32, rows, 1, 2);
		j.part = part[k]->p;
		j.part_lse = lse[k]->p;
		c->ops->attention_join(c->ctx, &j);
		for (int64_t r = 0; r < rows; r++) {
			const int64_t token = r / s->heads, head = r % s->heads;
			const int64_t at =
				(token / s->seq * s->heads + head) * s->seq + token % s->seq;
			const double more = lse[k]->x[at];
			const double sum = log(exp(lses[at]) + exp(more));

			for (int64_t d = r * s->v_dim; d < (r + 1) * s->v_dim; d++)
				outs[d] = outs[d] * exp(lses[at] - sum) +
					  part[k]->x[d] * exp(more - sum);
			lses[at] = sum;
		}
		check_near(c, "joined", out, outs, 1e-6, 1);
		check_near(c, "joined lse", all, lses, 1e-6, 1);
	}
}

/* The first head's largest score, before, is above its own. */
static void largest(struct check *c, const struct problem *p)
{
	const struct shape *s = &p->s;
	double *most = check_doubles(c, s->heads);
	struct tensor *max;

	most[0] = 100;
	max = check_values(c, MFK_F32, s->heads, most);
	for (int64_t n = 0; n < s->batch * s->heads * s->seq * s->keys; n++) {
		const int64_t j = n % s->keys, i = n / s->keys % s->seq;
		const int64_t h = n / s->keys / s->seq % s->heads,
			      b = n / s->keys / s->seq / s->heads;
		const int64_t kv = h / (s->heads / s->kv_heads);
		const double *q = at(p->q->x, s->seq, s->heads, s->qk_dim, b, i, h);
		const double *k = at(p->k->x, s->keys, s->kv_heads, s->qk_dim, b, j, kv);

		if (sees(p, b, i, j))
			most[h] = fmax(most[h], (double)p->a.scale * dot(q, k, s->qk_dim));
	}
	c->ops->attention_max(c->ctx, &p->a, max->p);
	check_near(c, "largest score", max, most, 1e-5, 1);
}

static void attention(struct check *c, struct shape s, enum mfk_dtype type, enum mask mask,
		      enum part part, float dropout)
{
	struct problem p;
	int32_t *query_at, *key_at, *first;

	s.whole = s.keys = s.seq;
	if (part != ALL_OF_IT) {
		s.whole = s.keys = s.seq / (2 * PARTS) * (2 * PARTS);
		s.seq = s.whole / PARTS;
		s.keys = part == OWN_QUERIES ? s.whole : s.seq;
	}
	query_at = positions(s.whole, s.seq, 1);
	key_at = positions(s.whole, s.keys, part == EARLIER_KEYS ? 0 : 2);
	first = mask >= DOCUMENTS ? first_keys(c, &s, query_at, mask) : NULL;
	check_shape(c,
		    "batch %lld, seq %lld, heads %lld of %lld, dims %lld, %lld, %s, %s, dropout "
		    "%g%s",
		    (long long)s.batch, (long long)s.seq, (long long)s.heads, (long long)s.kv_heads,
		    (long long)s.qk_dim, (long long)s.v_dim, check_type_name(type),
		    mask_names[mask], (double)dropout, part_names[part]);
	p = (struct problem){.s = s, .first_key = first, .query_at = query_at, .key_at = key_at};
	set(c, &p, type, mask, part, dropout);
	p.a.first_key = first ? check_ints(c, first, s.batch * s.seq) : NULL;
	make(c, &p, type);
	expected(c, &p, forward);
	p.a.scratch = check_output(c, MFK_F32, (int64_t)(scratch_bytes(c, &p.a, false) + 3) / 4)->p;
	c->ops->attention(c->ctx, &p.a);
	check_near(c, "out", p.out, p.outs, tolerance(c, type, 4e-6), 1);
	check_near(c, "lse", p.lse, p.lses, 4e-6, 1);
	if (c->ops->attention_backward)
		attention_backward(c, &p);
	if (c->ops->attention_max && part == ALL_OF_IT && dropout == 0)
		largest(c, &p);
	if (c->ops->attention_join && part == OWN_QUERIES)
		joined(c, &p);
	free(query_at);
	free(key_at);
	free(first);
}

void check_attention(struct check *c)
{
	static const struct shape shapes[] = {
		{1, 1, 1, 1, 8, 8, 0, 0},	{2, 17, 4, 2, 16, 16, 0, 0},
		{1, 129, 3, 1, 32, 32, 0, 0},	{1, 130, 4, 4, 64, 64, 0, 0},
		{1, 257, 2, 1, 128, 128, 0, 0}, {2, 65, 2, 2, 192, 128, 0, 0},
		{2, 100, 2, 1, 24, 16, 0, 0},	{1, 140, 2, 1, 96, 96, 0, 0}};

	if (!c->ops->attention)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3; t++) {
			/* Masks and parts take turns with shapes and types. */
			enum mask mask = (enum mask)((i + (size_t)t) % 4);
			enum part part = (enum part)(1 + (i / 2 + (size_t)t) % 3);

			attention(c, shapes[i], check_types[t], mask, ALL_OF_IT, 0);
			attention(c, shapes[i], check_types[t], (mask + 1) % 4, ALL_OF_IT, 0.3f);
			if (shapes[i].seq < 2 * PARTS)
				continue;
			attention(c, shapes[i], check_types[t], (mask + 1) % 4, part, 0);
			attention(c, shapes[i], check_types[t], mask, part, 0.3f);
		}
}
