/* Attention to cached keys. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

#define LENGTH	  70
#define SEQUENCES 3
#define TOKENS	  6

/* One is none, two are of one sequence, in the reverse order of their positions. */
static const int32_t sequence[TOKENS] = {2, 0, -1, 0, 1, 2};
static const int32_t position[TOKENS] = {LENGTH - 1, 34, 0, 33, 0, 40};

struct problem {
	struct mfk_attention_cached a;
	struct tensor *q, *k, *v, *keys, *values, *out;
	double *outs, *cached_keys, *cached_values;
};

static void make(struct check *c, struct problem *p)
{
	const struct mfk_attention_cached *a = &p->a;
	const int64_t rows = SEQUENCES * LENGTH * a->kv_heads;

	p->q = check_input(c, a->dtype, TOKENS * a->heads * a->qk_dim, 0, 1);
	p->k = check_input(c, a->dtype, TOKENS * a->kv_heads * a->qk_dim, 0, 1.5);
	p->v = check_input(c, a->dtype, TOKENS * a->kv_heads * a->v_dim, 0.3, 1);
	p->keys = check_input(c, a->dtype, rows * a->qk_dim, 0, 1.5);
	p->values = check_input(c, a->dtype, rows * a->v_dim, 0.3, 1);
	p->out = check_output(c, a->dtype, TOKENS * a->heads * a->v_dim);
	p->outs = check_doubles(c, TOKENS * a->heads * a->v_dim);
	p->cached_keys = check_doubles(c, rows * a->qk_dim);
	p->cached_values = check_doubles(c, rows * a->v_dim);
	p->a.q = p->q->p;
	p->a.k = p->k->p;
	p->a.v = p->v->p;
	p->a.keys = p->keys->p;
	p->a.values = p->values->p;
	p->a.out = p->out->p;
}

/* What the caches are afterwards. */
static void expect_cached(struct problem *p)
{
	const struct mfk_attention_cached *a = &p->a;
	const int64_t k = a->kv_heads * a->qk_dim, v = a->kv_heads * a->v_dim;

	memcpy(p->cached_keys, p->keys->x, (size_t)p->keys->count * sizeof(double));
	memcpy(p->cached_values, p->values->x, (size_t)p->values->count * sizeof(double));
	for (int64_t t = 0; t < TOKENS; t++) {
		const int64_t row = sequence[t] * LENGTH + position[t];

		if (sequence[t] < 0)
			continue;
		memcpy(p->cached_keys + row * k, p->k->x + t * k, (size_t)k * sizeof(double));
		memcpy(p->cached_values + row * v, p->v->x + t * v, (size_t)v * sizeof(double));
	}
}

static void expect_head(struct problem *p, int64_t t, int64_t h)
{
	const struct mfk_attention_cached *a = &p->a;
	const int64_t kv = h / (a->heads / a->kv_heads), end = position[t] + 1;
	const int64_t first = a->window && end > a->window ? end - a->window : 0;
	const double *q = p->q->x + (t * a->heads + h) * a->qk_dim;
	double *out = p->outs + (t * a->heads + h) * a->v_dim, e[LENGTH], sum = 0;

	for (int64_t j = first; j < end; j++) {
		const int64_t row = (sequence[t] * LENGTH + j) * a->kv_heads + kv;
		double score = 0;

		for (int64_t d = 0; d < a->qk_dim; d++)
			score += q[d] * p->cached_keys[row * a->qk_dim + d];
		e[j] = exp((double)a->scale * score);
		sum += e[j];
	}
	for (int64_t j = first; j < end; j++) {
		const int64_t row = (sequence[t] * LENGTH + j) * a->kv_heads + kv;

		for (int64_t d = 0; d < a->v_dim; d++)
			out[d] += e[j] / sum * p->cached_values[row * a->v_dim + d];
	}
}

static void cached(struct check *c, enum mfk_dtype type, const int64_t shape[5])
{
	struct problem p = {.a = {.dtype = type,
				  .tokens = TOKENS,
				  .heads = shape[0],
				  .kv_heads = shape[1],
				  .qk_dim = shape[2],
				  .v_dim = shape[3],
				  .window = shape[4],
				  .length = LENGTH,
				  .scale = 1 / sqrtf((float)shape[2]),
				  .sequence = check_ints(c, sequence, TOKENS),
				  .position = check_ints(c, position, TOKENS)}};

	check_shape(c, "heads %lld of %lld, dims %lld, %lld, window %lld, %s", (long long)shape[0],
		    (long long)shape[1], (long long)shape[2], (long long)shape[3],
		    (long long)shape[4], check_type_name(type));
	make(c, &p);
	expect_cached(&p);
	for (int64_t t = 0; t < TOKENS; t++)
		for (int64_t h = 0; h < shape[0] && sequence[t] >= 0; h++)
			expect_head(&p, t, h);
	c->ops->attention_cached(c->ctx, &p.a);
	check_near(c, "out", p.out, p.outs, 4e-6, 1);
	check_equal(c, "keys", p.keys, p.cached_keys);
	check_equal(c, "values", p.values, p.cached_values);
}

void check_attention_cached(struct check *c)
{
	static const int64_t shapes[][5] = {
		{1, 1, 1, 1, 0},       {4, 4, 8, 8, 0},	    {8, 2, 64, 64, 7},
		{14, 2, 64, 64, 0},    {4, 4, 192, 128, 0}, {6, 3, 17, 23, 1},
		{32, 1, 128, 128, 40}, {20, 2, 40, 300, 0}, {9, 1, 5, 1, 0},
		{3, 1, 1024, 1024, 0},
	};

	if (!c->ops->attention_cached)
		return;
	for (int t = 0; t < 3; t++)
		for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
			cached(c, check_types[t], shapes[i]);
}
