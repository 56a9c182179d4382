/*
 * The rule of a gated delta net, token by token. A part of the work is a sequence of the heads that
 * share a head of queries and keys, so that what these get is added up in one order.
 *
 * Backward goes through a sequence in chunks, from the last one on. It computes the states that
 * chunks begin with first, and then those of one chunk at a time.
 */
#include <math.h>
#include <string.h>

#include "kernels/ref/ref_i.h"

/* A head of values, and its head of queries and keys, in one sequence. */
struct head {
	const struct mfk_delta *a;
	int64_t sequence, values, keys;
};

/* A token of a head, as fp32; buffers are the caller's. */
struct token {
	const float *q, *k, *v;
	float fade, beta;
};

static int64_t state_floats(const struct mfk_delta *a)
{
	return a->key_dim * a->value_dim;
}

/* Elements before the token's q or k, its v, and its decay. */
static int64_t key_at(const struct head *h, int64_t t)
{
	return ((h->sequence * h->a->seq + t) * h->a->key_heads + h->keys) * h->a->key_dim;
}

static int64_t rate_at(const struct head *h, int64_t t)
{
	return (h->sequence * h->a->seq + t) * h->a->value_heads + h->values;
}

static int64_t value_at(const struct head *h, int64_t t)
{
	return rate_at(h, t) * h->a->value_dim;
}

/* buf: two rows of keys and one of values */
static struct token token_of(const struct head *h, int64_t t, float *buf)
{
	const struct mfk_delta *a = h->a;
	float *k = buf + a->key_dim, *v = k + a->key_dim;

	return (struct token){
		.q = mfk_load(a->dtype, a->q, key_at(h, t), a->key_dim, buf),
		.k = mfk_load(a->dtype, a->k, key_at(h, t), a->key_dim, k),
		.v = mfk_load(a->dtype, a->v, value_at(h, t), a->value_dim, v),
		.fade = expf(a->decay[rate_at(h, t)]),
		.beta = a->beta[rate_at(h, t)],
	};
}

/* ---- a token ---- */

/* ret = S^T x */
MFK_SIMD static void product(const struct mfk_delta *a, const float *state, const float *x,
			     float *ret)
{
	const int64_t n = a->value_dim;

	memset(ret, 0, (size_t)n * sizeof(float));
	for (int64_t i = 0; i < a->key_dim; i++) {
		const float by = x[i], *row = state + i * n;

#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			ret[j] += by * row[j];
	}
}

/* ret = fade S */
MFK_SIMD static void fade(int64_t n, float by, const float *state, float *ret)
{
#pragma omp simd
	for (int64_t i = 0; i < n; i++)
		ret[i] = by * state[i];
}

/* S += k d^T */
MFK_SIMD static void add_outer(const struct mfk_delta *a, const float *k, const float *d,
			       float *state)
{
	const int64_t n = a->value_dim;

	for (int64_t i = 0; i < a->key_dim; i++) {
		float by = k[i], *row = state + i * n;

#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			row[j] += by * d[j];
	}
}

/* d = v - d */
MFK_SIMD static void lack(int64_t n, const float *v, float *d)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		d[j] = v[j] - d[j];
}

MFK_SIMD static void multiply(int64_t n, float by, float *x)
{
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		x[j] *= by;
}

/* The state after a token, of the one before it, which may be the same; d: room for values. */
static void step(const struct mfk_delta *a, const struct token *t, const float *before, float *now,
		 float *d)
{
	fade(state_floats(a), t->fade, before, now);
	product(a, now, t->k, d);
	lack(a->value_dim, t->v, d);
	multiply(a->value_dim, t->beta, d);
	add_outer(a, t->k, d, now);
}

/* ---- forward ---- */

static void forward_head(const struct head *h, float *scratch)
{
	const struct mfk_delta *a = h->a;
	float *buf = scratch + state_floats(a), *d = buf + 2 * a->key_dim + a->value_dim;

	memset(scratch, 0, (size_t)state_floats(a) * sizeof(float));
	for (int64_t i = 0; i < a->seq; i++) {
		const struct token t = token_of(h, i, buf);
		float *out = mfk_begin(a->dtype, a->out, value_at(h, i), d);

		step(a, &t, scratch, scratch, d);
		product(a, scratch, t.q, out);
		multiply(a->value_dim, a->scale, out);
		mfk_end(a->dtype, a->out, value_at(h, i), a->value_dim, out);
	}
}

/* Heads of values that have the same queries and keys; arg: what all have. */
static void each_head(const struct mfk_delta *a, int64_t number,
		      void (*run)(const struct head *h, float *scratch), float *scratch)
{
	const int64_t share = a->value_heads / a->key_heads;
	struct head h = {a, number / a->key_heads, 0, number % a->key_heads};

	for (h.values = h.keys * share; h.values < (h.keys + 1) * share; h.values++)
		run(&h, scratch);
}

static void forward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	for (int64_t i = begin; i < end; i++)
		each_head(arg, i, forward_head, scratch);
}

void mfk_ref_delta_rule(struct mfk_ctx *c, const struct mfk_delta *a)
{
	mfk_parallel(c, a->batch * a->key_heads, 1,
		     (size_t)(state_floats(a) + 2 * (a->key_dim + a->value_dim)), forward_part, a);
}

/* ---- backward ---- */

/* A thread's memory. */
struct room {
	float *dq, *dk;	      /* [seq, key_dim]: sums over heads of values */
	float *begins;	      /* states before each chunk */
	float *states;	      /* those before each token of a chunk, and after its last one */
	float *dstate;	      /* gradient of the state after a token, and then of that before it */
	float *faded;	      /* a state times its token's fade */
	float *buf;	      /* a token's q, k and v */
	float *dout, *d, *dd; /* [value_dim] */
};

static int64_t chunks(const struct mfk_delta *a)
{
	const int64_t chunk = mfk_delta_chunk(a->seq);

	return (a->seq + chunk - 1) / chunk;
}

static size_t room_floats(const struct mfk_delta *a)
{
	return (size_t)(2 * a->seq * a->key_dim +
			(chunks(a) + mfk_delta_chunk(a->seq) + 3) * state_floats(a) +
			2 * a->key_dim + 4 * a->value_dim);
}

static struct room room_of(const struct mfk_delta *a, float *at)
{
	const int64_t state = state_floats(a), keys = a->seq * a->key_dim;
	struct room r = {.dq = at, .dk = at + keys, .begins = at + 2 * keys};

	r.states = r.begins + chunks(a) * state;
	r.dstate = r.states + (mfk_delta_chunk(a->seq) + 1) * state;
	r.faded = r.dstate + state;
	r.buf = r.faded + state;
	r.dout = r.buf + 2 * a->key_dim + a->value_dim;
	r.d = r.dout + a->value_dim;
	r.dd = r.d + a->value_dim;
	return r;
}

static void find_begins(const struct head *h, const struct room *r)
{
	const struct mfk_delta *a = h->a;
	const int64_t chunk = mfk_delta_chunk(a->seq), n = state_floats(a);
	float *now = r->faded;

	memset(now, 0, (size_t)n * sizeof(float));
	for (int64_t i = 0; i < a->seq; i++) {
		const struct token t = token_of(h, i, r->buf);

		if (i % chunk == 0)
			memcpy(r->begins + i / chunk * n, now, (size_t)n * sizeof(float));
		step(a, &t, now, now, r->d);
	}
}

static void find_states(const struct head *h, const struct room *r, int64_t begin, int64_t end)
{
	const struct mfk_delta *a = h->a;
	const int64_t n = state_floats(a);

	memcpy(r->states, r->begins + begin / mfk_delta_chunk(a->seq) * n,
	       (size_t)n * sizeof(float));
	for (int64_t i = begin; i < end; i++) {
		const struct token t = token_of(h, i, r->buf);
		float *before = r->states + (i - begin) * n;

		step(a, &t, before, before + n, r->d);
	}
}

MFK_SIMD static float dot(int64_t n, const float *x, const float *y)
{
	float sum = 0;

#pragma omp simd reduction(+ : sum)
	for (int64_t j = 0; j < n; j++)
		sum += x[j] * y[j];
	return sum;
}

/* ret += S x, times by */
static void add_rows(const struct mfk_delta *a, const float *state, const float *x, float by,
		     float *ret)
{
	for (int64_t i = 0; i < a->key_dim; i++)
		ret[i] += by * dot(a->value_dim, state + i * a->value_dim, x);
}

/* What a token gives gradients of: out = scale S^T q, of the state after it. */
static void out_backward(const struct mfk_delta *a, const struct room *r, const struct token *t,
			 const float *state, float *dq)
{
	multiply(a->value_dim, a->scale, r->dout);
	add_rows(a, state, r->dout, 1, dq);
	add_outer(a, t->q, r->dout, r->dstate);
}

/*
 * With faded = fade S and d = beta (v - faded^T k), the state after the token is faded + k d^T:
 *
 *   dd = dstate^T k;   dbeta = dd (v - faded^T k);   dv = beta dd
 *   dk += dstate d - faded dv;   dfaded = dstate - k dv^T
 *   ddecay = the sum of faded dfaded;   gradient of S = fade dfaded
 */
static void state_backward(const struct head *h, const struct room *r, const struct token *t,
			   int64_t i, const float *before)
{
	const struct mfk_delta *a = h->a;
	const int64_t n = state_floats(a), at = rate_at(h, i), width = a->value_dim;
	float *dk = r->dk + i * a->key_dim;

	fade(n, t->fade, before, r->faded);
	product(a, r->faded, t->k, r->d);
	lack(width, t->v, r->d);
	product(a, r->dstate, t->k, r->dd);
	a->dbeta[at] = dot(width, r->dd, r->d);
	multiply(width, t->beta, r->d);
	add_rows(a, r->dstate, r->d, 1, dk);
	multiply(width, t->beta, r->dd);
	mfk_from_f32(a->dtype, r->dd, width, mfk_at(a->dtype, a->dv, value_at(h, i)));
	add_rows(a, r->faded, r->dd, -1, dk);
	multiply(width, -1, r->dd);
	add_outer(a, t->k, r->dd, r->dstate);
	a->ddecay[at] = dot(n, r->faded, r->dstate);
	fade(n, t->fade, r->dstate, r->dstate);
}

static void backward_head(const struct head *h, float *scratch)
{
	const struct mfk_delta *a = h->a;
	const struct room r = room_of(a, scratch);
	const int64_t chunk = mfk_delta_chunk(a->seq), n = state_floats(a);

	find_begins(h, &r);
	memset(r.dstate, 0, (size_t)n * sizeof(float));
	for (int64_t begin = (chunks(a) - 1) * chunk; begin >= 0; begin -= chunk) {
		const int64_t end = begin + chunk < a->seq ? begin + chunk : a->seq;

		find_states(h, &r, begin, end);
		for (int64_t i = end - 1; i >= begin; i--) {
			const float *before = r.states + (i - begin) * n;
			const struct token t = token_of(h, i, r.buf);

			mfk_to_f32(a->dtype, mfk_at(a->dtype, a->dout, value_at(h, i)),
				   a->value_dim, r.dout);
			out_backward(a, &r, &t, before + n, r.dq + i * a->key_dim);
			state_backward(h, &r, &t, i, before);
		}
	}
}

static void backward_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_delta *a = arg;
	const struct room r = room_of(a, scratch);

	for (int64_t i = begin; i < end; i++) {
		const struct head h = {a, i / a->key_heads, 0, i % a->key_heads};

		memset(r.dq, 0, 2 * (size_t)(a->seq * a->key_dim) * sizeof(float));
		each_head(a, i, backward_head, scratch);
		for (int64_t t = 0; t < a->seq; t++) {
			const int64_t at = t * a->key_dim, to = key_at(&h, t);

			mfk_from_f32(a->dtype, r.dq + at, a->key_dim, mfk_at(a->dtype, a->dq, to));
			mfk_from_f32(a->dtype, r.dk + at, a->key_dim, mfk_at(a->dtype, a->dk, to));
		}
	}
}

/* Threads have their own. */
size_t mfk_ref_delta_scratch(struct mfk_device *d, const struct mfk_delta *a)
{
	(void)d;
	(void)a;
	return 0;
}

void mfk_ref_delta_rule_backward(struct mfk_ctx *c, const struct mfk_delta *a)
{
	mfk_parallel(c, a->batch * a->key_heads, 1, room_floats(a), backward_part, a);
}
