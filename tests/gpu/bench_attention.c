/*
 * Attention on a GPU: each implementation's result against definitions in double precision, and its
 * speed.
 *
 *	bench_attention [check | time]	a line for each case; 1 if a result is wrong
 *
 * Of large shapes, rows are compared that are drawn at random: out, lse and dq of a query need all
 * keys; dk and dv of a key need all queries' lse, which is compared itself. All outputs hold NaNs
 * before, and none may hold one afterwards. Backward runs twice: `same` says that the bits are.
 * TFLOP/s count 4 (backward 10) operations for each of half of the scores and each element of a
 * head, as Megatron does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/cudnn.h"

struct shape {
	enum mfk_dtype dtype;
	int64_t batch, seq, heads, kv_heads, qk_dim, v_dim;
	bool causal;
	int first; /* first_key: 0: none, 1: documents, > 1: a window of so many keys */
};

enum { POOL = 1 << 25, BACKWARD = 2 };

/* The device, and random halves that all inputs are taken from. */
static struct mfk_device *device;
static struct mfk_ctx *ctx;
static uint16_t *pool[3]; /* by type */
static int failures;

static uint64_t random_state = 88172645463325252u;

static uint64_t drawn(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void fatal(const char *what, const char *why)
{
	printf("FAIL %s: %s\n", what, why);
	exit(1);
}

/* ---- halves ---- */

static double value_of(enum mfk_dtype type, uint16_t bits)
{
	if (type == MFK_BF16) {
		uint32_t u = (uint32_t)bits << 16;
		float f;

		memcpy(&f, &u, 4);
		return f;
	}
	int e = bits >> 10 & 31, m = bits & 1023;
	double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return bits & 0x8000 ? -x : x;
}

/* Bits of random numbers of about normal size: a sign, one of four exponents (8 to 1 times
 * 2^-2 ... 2^1) and a fraction. */
static void fill_pool(void)
{
	static const int exponents[] = {-3, -2, -1, -1, 0, 0, 0, 1};

	for (int t = MFK_BF16; t <= MFK_F16; t++) {
		int fraction = t == MFK_BF16 ? 7 : 10, bias = t == MFK_BF16 ? 127 : 15;

		pool[t] = malloc(POOL * sizeof(uint16_t));
		if (!pool[t])
			fatal("pool", "out of memory");
		for (int64_t i = 0; i < POOL; i++) {
			uint64_t r = drawn();

			pool[t][i] =
				(uint16_t)((r >> 63) << 15 |
					   (uint64_t)(exponents[r >> 40 & 7] + bias) << fraction |
					   (r & ((1u << fraction) - 1)));
		}
	}
}

/* ---- one shape's tensors ---- */

struct tensor {
	uint16_t *host;
	void *p; /* device */
	int64_t count;
};

struct run {
	struct shape s;
	struct mfk_attention a;
	struct tensor q, k, v, dout, out, dq, dk, dv;
	float *lse;
	int32_t *first;
	size_t scratch;
};

static void *device_alloc(size_t bytes)
{
	void *p = mfk_cuda_device.alloc(device, bytes ? bytes : 1);

	if (!p)
		fatal("allocation", "no device memory");
	return p;
}

static void wait(const char *what)
{
	char why[MFK_WHY] = "";

	if (mfk_cuda_device.sync(ctx, why))
		fatal(what, why);
}

static struct tensor input(enum mfk_dtype type, int64_t count)
{
	struct tensor t = {malloc((size_t)count * 2), device_alloc((size_t)count * 2), count};

	for (int64_t at = 0; at < count;) {
		int64_t from = (int64_t)(drawn() % (POOL / 2));
		int64_t n = count - at < POOL / 2 ? count - at : POOL / 2;

		memcpy(t.host + at, pool[type] + from, (size_t)n * 2);
		at += n;
	}
	mfk_cuda_device.copy_in(ctx, t.p, t.host, (size_t)count * 2);
	wait("copy");
	return t;
}

static struct tensor output(int64_t count)
{
	return (struct tensor){malloc((size_t)count * 2), device_alloc((size_t)count * 2), count};
}

static void poison(struct tensor *t)
{
	cudaMemsetAsync(t->p, 0xff, (size_t)t->count * 2, ctx->stream);
}

static void fetch(struct tensor *t)
{
	mfk_cuda_device.copy_out(ctx, t->host, t->p, (size_t)t->count * 2);
	wait("copy");
}

static void release(struct tensor *t)
{
	free(t->host);
	mfk_cuda_device.free(device, t->p);
}

static void make_first(struct run *r)
{
	const struct shape *s = &r->s;
	int64_t tokens = s->batch * s->seq;
	void *p = device_alloc((size_t)tokens * 4);

	r->first = malloc((size_t)tokens * 4);
	for (int64_t b = 0; b < s->batch; b++)
		for (int64_t i = 0, document = 0; i < s->seq; i++) {
			if (s->first == 1 && drawn() % 300 == 0)
				document = i;
			r->first[b * s->seq + i] =
				s->first == 1 ? (int32_t)document
					      : (int32_t)(i < s->first ? 0 : i - s->first + 1);
		}
	mfk_cuda_device.copy_in(ctx, p, r->first, (size_t)tokens * 4);
	wait("copy");
	r->a.first_key = p;
}

static void run_init(struct run *r, const struct shape *s)
{
	int64_t tokens = s->batch * s->seq, queries = tokens * s->heads;
	int64_t keys = tokens * s->kv_heads;

	*r = (struct run){.s = *s};
	r->q = input(s->dtype, queries * s->qk_dim);
	r->k = input(s->dtype, keys * s->qk_dim);
	r->v = input(s->dtype, keys * s->v_dim);
	r->dout = input(s->dtype, queries * s->v_dim);
	r->out = output(queries * s->v_dim);
	r->dq = output(queries * s->qk_dim);
	r->dk = output(keys * s->qk_dim);
	r->dv = output(keys * s->v_dim);
	r->lse = malloc((size_t)queries * 4);
	r->a = (struct mfk_attention){
		.dtype = s->dtype,
		.batch = s->batch,
		.seq = s->seq,
		.heads = s->heads,
		.kv_heads = s->kv_heads,
		.qk_dim = s->qk_dim,
		.v_dim = s->v_dim,
		.scale = 1 / sqrtf((float)s->qk_dim),
		.causal = s->causal,
		.q = r->q.p,
		.k = r->k.p,
		.v = r->v.p,
		.out = r->out.p,
		.lse = device_alloc((size_t)queries * 4),
		.dout = r->dout.p,
		.dq = r->dq.p,
		.dk = r->dk.p,
		.dv = r->dv.p,
	};
	if (s->first)
		make_first(r);
}

static void run_release(struct run *r)
{
	struct tensor *all[] = {&r->q, &r->k, &r->v, &r->dout, &r->out, &r->dq, &r->dk, &r->dv};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		release(all[i]);
	mfk_cuda_device.free(device, r->a.lse);
	mfk_cuda_device.free(device, (void *)r->a.first_key);
	free(r->lse);
	free(r->first);
}

static void scratch_new(struct run *r)
{
	size_t x = mfk_cuda_attention_scratch(device, &r->a, false);
	size_t y = mfk_cuda_attention_scratch(device, &r->a, true);

	r->scratch = x > y ? x : y;
	r->a.scratch = device_alloc(r->scratch);
}

static void scratch_free(struct run *r)
{
	mfk_cuda_device.free(device, r->a.scratch);
	r->a.scratch = NULL;
}

static void context_new(void)
{
	char why[MFK_WHY] = "";

	if (mfk_cuda_device.ctx_new(device, false, &ctx, why))
		fatal("context", why);
}

/* False: the operations failed; a new context is there. */
static bool finished(const char *what)
{
	char why[MFK_WHY] = "";

	if (!mfk_cuda_device.sync(ctx, why))
		return true;
	printf("FAIL %s: %s\n", what, why);
	failures++;
	mfk_cuda_device.ctx_free(ctx);
	context_new();
	return false;
}

/* ---- expected values ---- */

struct error {
	double difference, norm;
};

static void compare(struct error *e, double found, double right)
{
	e->difference += (found - right) * (found - right);
	e->norm += right * right;
}

static double relative(const struct error *e)
{
	return sqrt(e->difference / (e->norm > 0 ? e->norm : 1));
}

static double at(const struct run *r, const struct tensor *t, int64_t row, int64_t dim, int64_t c)
{
	return value_of(r->s.dtype, t->host[row * dim + c]);
}

static double dot(const struct run *r, const struct tensor *x, int64_t row, const struct tensor *y,
		  int64_t other, int64_t dim)
{
	double sum = 0;

	for (int64_t c = 0; c < dim; c++)
		sum += at(r, x, row, dim, c) * at(r, y, other, dim, c);
	return sum;
}

static bool sees(const struct run *r, int64_t b, int64_t i, int64_t j)
{
	const struct shape *s = &r->s;

	return !s->causal || (j <= i && (!s->first || j >= r->first[b * s->seq + i]));
}

/* out, lse and dq of query i of head h. */
static void check_query(const struct run *r, int64_t b, int64_t i, int64_t h, struct error *e,
			double *p, double *dp)
{
	const struct shape *s = &r->s;
	int64_t row = (b * s->seq + i) * s->heads + h, g = s->heads / s->kv_heads;
	double top = -INFINITY, sum = 0, mean = 0;

	for (int64_t j = 0; j < s->seq; j++) {
		int64_t key = (b * s->seq + j) * s->kv_heads + h / g;

		p[j] = dp[j] = 0;
		if (!sees(r, b, i, j))
			continue;
		p[j] = dot(r, &r->q, row, &r->k, key, s->qk_dim) * r->a.scale;
		dp[j] = dot(r, &r->dout, row, &r->v, key, s->v_dim);
		top = fmax(top, p[j]);
	}
	for (int64_t j = 0; j < s->seq; j++) {
		p[j] = sees(r, b, i, j) ? exp(p[j] - top) : 0;
		sum += p[j];
	}
	for (int64_t j = 0; j < s->seq; j++) {
		p[j] /= sum;
		mean += p[j] * dp[j];
	}
	compare(&e[1], r->lse[(b * s->heads + h) * s->seq + i], top + log(sum));
	for (int64_t c = 0; c < s->v_dim; c++) {
		double x = 0;

		for (int64_t j = 0; j < s->seq; j++)
			if (p[j] > 0)
				x += p[j] * at(r, &r->v, (b * s->seq + j) * s->kv_heads + h / g,
					       s->v_dim, c);
		compare(&e[0], at(r, &r->out, row, s->v_dim, c), x);
	}
	for (int64_t c = 0; c < s->qk_dim; c++) {
		double x = 0;

		for (int64_t j = 0; j < s->seq; j++)
			if (p[j] > 0)
				x += p[j] * (dp[j] - mean) * r->a.scale *
				     at(r, &r->k, (b * s->seq + j) * s->kv_heads + h / g, s->qk_dim,
					c);
		compare(&e[2], at(r, &r->dq, row, s->qk_dim, c), x);
	}
}

/* dk and dv of key j of key head h; lse and out are the device's. */
static void check_key(const struct run *r, int64_t b, int64_t j, int64_t h, struct error *e)
{
	const struct shape *s = &r->s;
	int64_t key = (b * s->seq + j) * s->kv_heads + h, g = s->heads / s->kv_heads;
	double *dk = calloc((size_t)s->qk_dim, sizeof(double));
	double *dv = calloc((size_t)s->v_dim, sizeof(double));

	for (int64_t n = 0; n < g * s->seq; n++) {
		int64_t head = h * g + n / s->seq, i = n % s->seq;
		int64_t row = (b * s->seq + i) * s->heads + head;

		if (!sees(r, b, i, j))
			continue;

		double p = exp(dot(r, &r->q, row, &r->k, key, s->qk_dim) * r->a.scale -
			       r->lse[(b * s->heads + head) * s->seq + i]);
		double ds = p * r->a.scale *
			    (dot(r, &r->dout, row, &r->v, key, s->v_dim) -
			     dot(r, &r->dout, row, &r->out, row, s->v_dim));

		for (int64_t c = 0; c < s->v_dim; c++)
			dv[c] += p * at(r, &r->dout, row, s->v_dim, c);
		for (int64_t c = 0; c < s->qk_dim; c++)
			dk[c] += ds * at(r, &r->q, row, s->qk_dim, c);
	}
	for (int64_t c = 0; c < s->qk_dim; c++)
		compare(&e[3], at(r, &r->dk, key, s->qk_dim, c), dk[c]);
	for (int64_t c = 0; c < s->v_dim; c++)
		compare(&e[4], at(r, &r->dv, key, s->v_dim, c), dv[c]);
	free(dk);
	free(dv);
}

static int64_t nans(const struct shape *s, const struct tensor *t)
{
	int64_t n = 0;

	for (int64_t i = 0; i < t->count; i++)
		n += s->dtype == MFK_BF16 ? (t->host[i] & 0x7fff) > 0x7f80
					  : (t->host[i] & 0x7fff) > 0x7c00;
	return n;
}

static void fetch_all(struct run *r)
{
	fetch(&r->out);
	fetch(&r->dq);
	fetch(&r->dk);
	fetch(&r->dv);
	mfk_cuda_device.copy_out(ctx, r->lse, r->a.lse,
				 (size_t)(r->s.batch * r->s.heads * r->s.seq) * 4);
	wait("copy");
}

/* ---- lines ---- */

static const char *described(const struct shape *s)
{
	static char text[128];
	char dims[32], mask[32];

	snprintf(dims, sizeof(dims), s->qk_dim == s->v_dim ? "%d" : "%d/%d", (int)s->qk_dim,
		 (int)s->v_dim);
	snprintf(mask, sizeof(mask), "window %d", s->first);
	snprintf(text, sizeof(text), "%s B%d S%d H%d/%d d%s %s",
		 s->dtype == MFK_BF16 ? "bf16" : "fp16", (int)s->batch, (int)s->seq, (int)s->heads,
		 (int)s->kv_heads, dims,
		 !s->causal	 ? "full"
		 : !s->first	 ? "causal"
		 : s->first == 1 ? "documents"
				 : mask);
	return text;
}

/* Whether the implementation does the shape in both directions; else says why not. */
static bool is_done(const struct run *r, const char *name)
{
	char why[MFK_WHY];

	for (int backward = 0; backward < BACKWARD; backward++)
		if (!strcmp(mfk_cuda_attention_choice(device, &r->a, backward, why), "none")) {
			printf("none %-13s %s %s: %s\n", name, described(&r->s),
			       backward ? "backward" : "forward", why);
			return false;
		}
	return true;
}

/* Backward again, over what is there now: whether the bits are those that were fetched before. */
static bool same_again(struct run *r)
{
	struct tensor *all[] = {&r->dq, &r->dk, &r->dv};
	bool same = true;

	mfk_cuda_attention_backward(ctx, &r->a);
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
		size_t bytes = (size_t)all[i]->count * 2;
		uint16_t *before = malloc(bytes);

		memcpy(before, all[i]->host, bytes);
		fetch(all[i]);
		same = same && !memcmp(before, all[i]->host, bytes);
		free(before);
	}
	return same;
}

static void check_shape(struct run *r, const char *name)
{
	const struct shape *s = &r->s;
	struct error e[5] = {{0, 0}};
	double *p = malloc((size_t)s->seq * 8), *dp = malloc((size_t)s->seq * 8);
	double limit = s->dtype == MFK_BF16 ? 8e-3 : 1.5e-3;
	bool good = true, same;

	poison(&r->out);
	poison(&r->dq);
	poison(&r->dk);
	poison(&r->dv);
	cudaMemsetAsync(r->a.lse, 0xff, (size_t)(s->batch * s->heads * s->seq) * 4, ctx->stream);
	cudaMemsetAsync(r->a.scratch, 0xff, r->scratch, ctx->stream);
	mfk_cuda_attention(ctx, &r->a);
	if (!finished(name))
		return;
	mfk_cuda_attention_backward(ctx, &r->a);
	if (!finished(name))
		return;
	fetch_all(r);

	same = same_again(r);

	int queries = s->seq < 512 ? 60 : 24, keys = s->seq < 512 ? 30 : 6;

	for (int n = 0; n < queries; n++) {
		int64_t i = n == 0 ? s->seq - 1 : (int64_t)(drawn() % (uint64_t)s->seq);

		check_query(r, (int64_t)(drawn() % (uint64_t)s->batch), i,
			    (int64_t)(drawn() % (uint64_t)s->heads), e, p, dp);
	}
	for (int n = 0; n < keys; n++) {
		int64_t j = n == 0 ? s->seq - 1 : (int64_t)(drawn() % (uint64_t)s->seq);

		check_key(r, (int64_t)(drawn() % (uint64_t)s->batch), j,
			  (int64_t)(drawn() % (uint64_t)s->kv_heads), e);
	}
	int64_t bad = nans(s, &r->out) + nans(s, &r->dq) + nans(s, &r->dk) + nans(s, &r->dv);

	for (int i = 0; i < 5; i++)
		good = good && relative(&e[i]) < (i == 1 ? 1e-4 : limit);
	good = good && !bad && (same || !strcmp(name, "cudnn-atomics"));
	failures += !good;
	printf("%s %-13s %s: out %.1e lse %.1e dq %.1e dk %.1e dv %.1e%s, scratch %.1f MiB",
	       good ? "ok  " : "FAIL", name, described(s), relative(&e[0]), relative(&e[1]),
	       relative(&e[2]), relative(&e[3]), relative(&e[4]), same ? ", same" : ", differs",
	       (double)r->scratch / (1 << 20));
	printf(bad ? ", %lld NaNs\n" : "\n", (long long)bad);
	free(p);
	free(dp);
}

/* Milliseconds of one of `times`, by events; the least of three rounds. */
static double milliseconds(struct run *r, bool backward, int times)
{
	cudaEvent_t from, to;
	float best = INFINITY;

	cudaEventCreate(&from);
	cudaEventCreate(&to);
	for (int round = 0; round < 4; round++) {
		float ms;

		cudaEventRecord(from, ctx->stream);
		for (int i = 0; i < times; i++)
			(backward ? mfk_cuda_attention_backward : mfk_cuda_attention)(ctx, &r->a);
		cudaEventRecord(to, ctx->stream);
		cudaEventSynchronize(to);
		if (!cudaEventElapsedTime(&ms, from, to) && round)
			best = fminf(best, ms / (float)times);
	}
	cudaEventDestroy(from);
	cudaEventDestroy(to);
	return best;
}

static void time_shape(struct run *r, const char *name)
{
	const struct shape *s = &r->s;
	double flops = 2.0 * (double)(s->batch * s->heads * s->seq * s->seq) *
		       (double)(s->qk_dim + s->v_dim) / (s->causal ? 2 : 1);
	double forward = milliseconds(r, false, 10), backward = milliseconds(r, true, 5);

	if (!finished(name))
		return;
	printf("time %-13s %s: forward %.3f ms %.0f TFLOP/s, backward %.3f ms %.0f TFLOP/s\n", name,
	       described(s), forward, flops / forward * 1e-9, backward,
	       2.5 * flops / backward * 1e-9);
}

static void for_each(const struct shape *shapes, int count, const char *const *names, bool timed)
{
	for (int i = 0; i < count; i++) {
		struct run r;

		run_init(&r, &shapes[i]);
		for (const char *const *name = names; *name; name++) {
			setenv("MFK_ATTENTION", *name, 1);
			if (!is_done(&r, *name))
				continue;
			scratch_new(&r);
			check_shape(&r, *name);
			if (timed)
				time_shape(&r, *name);
			scratch_free(&r);
			fflush(stdout);
		}
		run_release(&r);
	}
}

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

int main(int argc, char **argv)
{
	static const struct shape small[] = {
		{MFK_BF16, 2, 256, 4, 2, 128, 128, true, 0},
		{MFK_F16, 2, 256, 4, 4, 64, 64, true, 0},
		{MFK_BF16, 1, 384, 4, 1, 128, 128, false, 0},
		{MFK_BF16, 1, 333, 4, 2, 128, 128, true, 0},
		{MFK_F16, 2, 100, 2, 1, 24, 16, true, 0},
		{MFK_BF16, 2, 150, 2, 2, 32, 32, false, 0},
		{MFK_BF16, 1, 1000, 4, 2, 96, 96, true, 0},
		{MFK_BF16, 2, 640, 4, 4, 192, 128, true, 0},
		{MFK_F16, 1, 290, 2, 2, 192, 128, true, 40},
		{MFK_BF16, 2, 777, 4, 2, 64, 64, true, 1},
		{MFK_F16, 2, 1024, 4, 2, 128, 128, true, 1},
		{MFK_BF16, 1, 2048, 4, 2, 128, 128, true, 500},
		{MFK_BF16, 1, 1, 2, 2, 64, 64, true, 0},
		{MFK_BF16, 2, 333, 4, 1, 64, 64, true, 0},
		{MFK_BF16, 2, 1000, 6, 2, 64, 64, false, 0},
		{MFK_F16, 2, 777, 4, 2, 128, 128, false, 0},
		{MFK_F16, 3, 1025, 4, 2, 64, 64, true, 0},
		{MFK_F16, 1, 2048, 4, 2, 128, 128, true, 0},
	};
	static const struct shape large[] = {
		{MFK_BF16, 2, 4096, 32, 8, 128, 128, true, 0},
		{MFK_BF16, 2, 4096, 16, 8, 128, 128, true, 0},
		{MFK_BF16, 2, 4096, 32, 8, 64, 64, true, 0},
		{MFK_BF16, 4, 1024, 32, 8, 128, 128, true, 0},
		{MFK_BF16, 4, 1024, 16, 8, 128, 128, true, 0},
		{MFK_BF16, 4, 1024, 32, 8, 64, 64, true, 0},
		{MFK_BF16, 32, 1024, 25, 25, 64, 64, true, 0},
		{MFK_BF16, 32, 1024, 14, 2, 64, 64, true, 0},
		{MFK_BF16, 32, 1024, 12, 2, 128, 128, true, 0},
		{MFK_BF16, 2, 4096, 25, 25, 64, 64, true, 0},
		{MFK_BF16, 2, 4096, 32, 32, 128, 128, true, 0},
		{MFK_BF16, 2, 4096, 16, 16, 192, 128, true, 0},
		{MFK_BF16, 2, 4096, 32, 8, 128, 128, true, 1},
		{MFK_BF16, 4, 2048, 32, 8, 64, 64, true, 0},
	};
	/* Pairs of pieces of long sequences (trainer/model/attention/core_pieces.c). */
	static const struct shape pieces[] = {
		{MFK_BF16, 1, 8192, 32, 8, 64, 64, false, 0},
		{MFK_BF16, 1, 8192, 32, 8, 128, 128, false, 0},
		{MFK_BF16, 1, 1024, 32, 8, 128, 128, false, 0},
	};
	/* Where cuDNN works in parts: how large they should be. */
	static const struct shape part[] = {
		{MFK_BF16, 2, 4096, 32, 8, 128, 128, true, 0},
		{MFK_BF16, 2, 4096, 32, 8, 64, 64, true, 0},
		{MFK_BF16, 1, 8192, 32, 8, 128, 128, true, 0},
	};
	static const char *const sizes[] = {"128", "256", "1024", "2048"};
	static const char *const cudnn[] = {"cudnn", NULL};
	static const char *const all[] = {"hopper", "flash", "cudnn", "simple", NULL};
	static const char *const fast[] = {"hopper", "flash", "cudnn", "cudnn-atomics", NULL};
	const char *only = argc > 1 ? argv[1] : "";
	char why[MFK_WHY] = "";
	struct mfk_device_info info;

	if (mfk_cuda_device.open(0, 0, &device, why))
		fatal("device", why);
	mfk_cuda_device.info(device, &info);
	context_new();
	fill_pool();
	printf("%s, sm_%u, cuDNN %zu\n", info.name, info.capability, mfk_cudnn_version());
	const bool checks = !*only || !strcmp(only, "check"),
		   times = !*only || !strcmp(only, "time");

	if (checks)
		for_each(small, COUNT(small), all, false);
	if (times)
		for_each(large, COUNT(large), fast, true);
	if (times || !strcmp(only, "pieces"))
		for_each(pieces, COUNT(pieces), fast, true);
	for (int i = 0; i < COUNT(sizes) && times; i++) {
		setenv("MFK_ATTENTION_SCRATCH", sizes[i], 1);
		printf("parts of %s MiB\n", sizes[i]);
		for_each(part, COUNT(part), cudnn, true);
	}
	printf("%d failures\n", failures);
	return failures > 0;
}
