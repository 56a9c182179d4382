/* The driver of the checks, and their tensors. */
#include "tests/kernels/check_kernels.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/kernels/check_i.h"

#define GUARD	   256 /* bytes; keeps the alignment */
#define GUARD_BYTE 0xa5

const enum mfk_dtype check_types[3] = {MFK_F32, MFK_BF16, MFK_F16};

const char *check_type_name(enum mfk_dtype t)
{
	return mfk_dtype_row(t)->word;
}

/* ---- random numbers: splitmix64 ---- */

uint64_t check_random(struct check *c)
{
	uint64_t z = c->random += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

double check_uniform(struct check *c)
{
	return (double)(check_random(c) >> 11) * 0x1p-53;
}

int64_t check_below(struct check *c, int64_t end)
{
	return (int64_t)(check_random(c) % (uint64_t)end);
}

/* Nearly: the sum of four uniform numbers. Most of the time of all checks went into logarithms. */
double check_normal(struct check *c)
{
	uint64_t z = check_random(c);
	int64_t sum = -2 * 0xffff;

	for (int i = 0; i < 4; i++, z >>= 16)
		sum += (int64_t)(z & 0xffff);
	return (double)sum * (1.7320508075688772 / 0xffff);
}

/* ---- types, by arithmetic on doubles ---- */

static const struct {
	int bits, least; /* of the significand; exponent of the last bit of the smallest */
	double most;
} types[] = {[MFK_F32] = {24, -149, 0x1.fffffep127},
	     [MFK_BF16] = {8, -133, 0x1.fep127},
	     [MFK_F16] = {11, -24, 65504},
	     [MFK_E4M3] = {4, -9, 448},
	     [MFK_E5M2] = {3, -16, 57344}};

double check_round(enum mfk_dtype type, double x)
{
	int e;
	double rounded;

	if (!isfinite(x) || x == 0)
		return x;
	frexp(x, &e);
	e -= types[type].bits;
	if (e < types[type].least)
		e = types[type].least;
	rounded = ldexp(rint(ldexp(x, -e)), e);
	return fabs(rounded) > types[type].most ? copysign(INFINITY, x) : rounded;
}

static uint16_t half_bits(double x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	int e;

	x = fabs(x);
	if (isnan(x))
		return 0x7e00;
	if (isinf(x))
		return sign | 0x7c00;
	if (x < 0x1p-14)
		return sign | (uint16_t)ldexp(x, 24);
	frexp(x, &e);
	return sign | (uint16_t)((e + 13) * 1024 + (int)ldexp(x, 11 - e));
}

static double half_value(uint16_t h)
{
	int e = h >> 10 & 31, m = h & 1023;
	double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);

	return h & 0x8000 ? -x : x;
}

/* Exponents of normal numbers begin with 1. */
static uint8_t eight_bits(enum mfk_dtype type, double x)
{
	const int bits = types[type].bits - 1, least = types[type].least;
	const uint8_t sign = signbit(x) ? 0x80 : 0;
	int e;

	x = fabs(x);
	if (isnan(x))
		return 0x7f;
	if (isinf(x))
		return sign | 0x7c;
	frexp(x, &e);
	e -= least + bits; /* 1 of the smallest normal number */
	if (x == 0 || e < 1)
		return sign | (uint8_t)ldexp(x, -least);
	return sign | (uint8_t)(((e - 1) << bits) + (int)ldexp(x, 1 - e - least));
}

static double eight_value(enum mfk_dtype type, uint8_t v)
{
	const int bits = types[type].bits - 1, least = types[type].least;
	const int e = (v & 0x7f) >> bits, m = v & ((1 << bits) - 1);
	double x = e ? ldexp((1 << bits) + m, e - 1 + least) : ldexp(m, least);

	if (type == MFK_E4M3 ? (v & 0x7f) == 0x7f : e == 31)
		x = type == MFK_E5M2 && !m ? INFINITY : NAN;
	return v & 0x80 ? -x : x;
}

static void encode(enum mfk_dtype type, const double *x, int64_t count, void *to)
{
	for (int64_t i = 0; i < count; i++) {
		float f = (float)x[i];
		uint32_t u;

		memcpy(&u, &f, 4);
		if (mfk_is_scaled(type))
			((uint8_t *)to)[i] = eight_bits(type, x[i]);
		else if (type == MFK_F32)
			((float *)to)[i] = f;
		else
			((uint16_t *)to)[i] = type == MFK_BF16 ? u >> 16 : half_bits(x[i]);
	}
}

static void decode(enum mfk_dtype type, const void *from, int64_t count, double *x)
{
	for (int64_t i = 0; i < count; i++) {
		const uint16_t *half = from;
		uint32_t u;
		float f;

		if (mfk_is_scaled(type)) {
			x[i] = eight_value(type, ((const uint8_t *)from)[i]);
			continue;
		}
		if (type == MFK_F16) {
			x[i] = half_value(half[i]);
			continue;
		}
		if (type == MFK_F32)
			memcpy(&u, (const float *)from + i, 4);
		else
			u = (uint32_t)half[i] << 16;
		memcpy(&f, &u, 4);
		x[i] = f;
	}
}

/* ---- failures ---- */

void check_shape(struct check *c, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(c->shape, sizeof(c->shape), fmt, ap);
	va_end(ap);
}

void check_failed(struct check *c, const char *fmt, ...)
{
	va_list ap;

	c->failures++;
	fprintf(stderr, "%s %s (%s): ", c->backend->name, c->name, c->shape);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static void sync_device(struct check *c)
{
	char why[MFK_WHY];

	if (c->backend->device->sync(c->ctx, why))
		check_failed(c, "%s", why);
}

/* ---- tensors ---- */

static void *need(void *p)
{
	if (!p) {
		fprintf(stderr, "check_kernels: no memory\n");
		exit(1);
	}
	return p;
}

static struct tensor *tensor_new(struct check *c, enum mfk_dtype type, int64_t count)
{
	const struct mfk_device_ops *d = c->backend->device;
	size_t bytes = (size_t)count * mfk_dtype_size(type);
	struct tensor *t = need(calloc(1, sizeof(*t)));
	char *host = need(malloc(bytes + 2 * GUARD));

	*t = (struct tensor){.type = type, .count = count, .next = c->made};
	c->made = t;
	t->x = need(calloc((size_t)count + 1, sizeof(double)));
	t->memory = need(d->alloc(c->device, bytes + 2 * GUARD));
	t->p = t->memory + GUARD;
	memset(host, GUARD_BYTE, bytes + 2 * GUARD);
	d->copy_in(c->ctx, t->memory, host, bytes + 2 * GUARD);
	sync_device(c);
	free(host);
	return t;
}

static void put(struct check *c, struct tensor *t)
{
	size_t bytes = (size_t)t->count * mfk_dtype_size(t->type);
	char *host = need(malloc(bytes + 1));

	encode(t->type, t->x, t->count, host);
	c->backend->device->copy_in(c->ctx, t->p, host, bytes);
	sync_device(c);
	free(host);
}

struct tensor *check_values(struct check *c, enum mfk_dtype type, int64_t count, const double *x)
{
	struct tensor *t = tensor_new(c, type, count);

	for (int64_t i = 0; i < count; i++)
		t->x[i] = check_round(type, x[i]);
	put(c, t);
	return t;
}

struct tensor *check_input(struct check *c, enum mfk_dtype type, int64_t count, double mean,
			   double scale)
{
	struct tensor *t = tensor_new(c, type, count);

	for (int64_t i = 0; i < count; i++)
		t->x[i] = check_round(type, mean + scale * check_normal(c));
	put(c, t);
	return t;
}

struct tensor *check_output(struct check *c, enum mfk_dtype type, int64_t count)
{
	struct tensor *t = tensor_new(c, type, count);

	for (int64_t i = 0; i < count; i++)
		t->x[i] = NAN;
	put(c, t);
	return t;
}

const int32_t *check_ints(struct check *c, const int32_t *x, int64_t count)
{
	struct tensor *t = tensor_new(c, MFK_F32, count);

	c->backend->device->copy_in(c->ctx, t->p, x, (size_t)count * 4);
	sync_device(c);
	return t->p;
}

double *check_doubles(struct check *c, int64_t count)
{
	struct tensor *t = need(calloc(1, sizeof(*t)));

	t->next = c->made;
	c->made = t;
	return t->x = need(calloc((size_t)count + 1, sizeof(double)));
}

void check_free(struct check *c)
{
	while (c->made) {
		struct tensor *t = c->made;

		c->made = t->next;
		if (t->memory)
			c->backend->device->free(c->device, t->memory);
		free(t->x);
		free(t);
	}
}

static void add_to_hash(struct check *c, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		c->hash = (c->hash ^ (unsigned char)bytes[i]) * 0x100000001b3;
}

static bool is_guard(const char *p)
{
	for (int i = 0; i < GUARD; i++)
		if ((unsigned char)p[i] != GUARD_BYTE)
			return false;
	return true;
}

void check_fetch(struct check *c, struct tensor *t)
{
	size_t bytes = (size_t)t->count * mfk_dtype_size(t->type);
	char *host = need(malloc(bytes + 2 * GUARD));

	c->backend->device->copy_out(c->ctx, host, t->memory, bytes + 2 * GUARD);
	sync_device(c);
	if (!is_guard(host))
		check_failed(c, "bytes before a tensor of %lld have changed", (long long)t->count);
	if (!is_guard(host + GUARD + bytes))
		check_failed(c, "bytes behind a tensor of %lld have changed", (long long)t->count);
	decode(t->type, host + GUARD, t->count, t->x);
	add_to_hash(c, host + GUARD, bytes);
	free(host);
}

void check_fetch_ints(struct check *c, struct tensor *t, int32_t *ret)
{
	check_fetch(c, t);
	c->backend->device->copy_out(c->ctx, ret, t->p, (size_t)t->count * 4);
	sync_device(c);
}

void check_near(struct check *c, const char *what, struct tensor *t, const double *want,
		double tolerance, double floor)
{
	double most = floor;

	check_fetch(c, t);
	for (int64_t i = 0; i < t->count; i++)
		if (isfinite(want[i]) && fabs(want[i]) > most)
			most = fabs(want[i]);
	for (int64_t i = 0; i < t->count; i++) {
		double w = want[i];
		double allowed = ldexp(fabs(w), -types[t->type].bits) * 1.001 + tolerance * most +
				 ldexp(1, types[t->type].least);

		if (fabs(t->x[i] - w) <= allowed || t->x[i] == w || (isnan(t->x[i]) && isnan(w)))
			continue;
		check_failed(c,
			     "%s[%lld of %lld] is %.9g instead of %.9g (%.2g apart, %.2g allowed)",
			     what, (long long)i, (long long)t->count, t->x[i], w, fabs(t->x[i] - w),
			     allowed);
		return;
	}
}

void check_equal(struct check *c, const char *what, struct tensor *t, const double *want)
{
	check_fetch(c, t);
	for (int64_t i = 0; i < t->count; i++) {
		if (t->x[i] == want[i] || (isnan(t->x[i]) && isnan(want[i])))
			continue;
		check_failed(c, "%s[%lld of %lld] is %.9g instead of %.9g", what, (long long)i,
			     (long long)t->count, t->x[i], want[i]);
		return;
	}
}

/* ---- all checks ---- */

static int open_device(struct check *c, unsigned threads)
{
	const struct mfk_device_ops *d = c->backend->device;
	char why[MFK_WHY];

	if (d->open(0, threads, &c->device, why)) {
		fprintf(stderr, "%s: %s\n", c->backend->name, why);
		return 1;
	}
	if (d->ctx_new(c->device, false, &c->ctx, why)) {
		fprintf(stderr, "%s: %s\n", c->backend->name, why);
		d->close(c->device);
		return 1;
	}
	return 0;
}

static int run(struct check *c, const char *only, unsigned threads)
{
	if (open_device(c, threads))
		return 1;
	for (const struct check_entry *e = check_entries; e->name; e++) {
		if (only && strncmp(e->name, only, strlen(only)) != 0)
			continue;
		c->name = e->name;
		c->shape[0] = 0;
		e->run(c);
		check_free(c);
	}
	c->backend->device->ctx_free(c->ctx);
	c->backend->device->close(c->device);
	return c->failures;
}

/* Plain programs prove that the number of threads changes no bit. A sanitizer sees all that it can
 * in one run. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FEWEST_THREADS 3
#define MOST_THREADS   3
#else
#define FEWEST_THREADS 1
#define MOST_THREADS   3
#endif

int check_kernels(const struct mfk_backend *b, const char *only)
{
	const char *given = getenv("MFK_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	uint64_t hash = 0;
	int failures = 0;

	for (unsigned threads = FEWEST_THREADS; threads <= MOST_THREADS && !failures; threads++) {
		struct check c = {.backend = b, .ops = b->ops, .random = seed};

		failures = run(&c, only, threads);
		if (!failures && threads > FEWEST_THREADS && c.hash != hash) {
			fprintf(stderr, "%s: %u threads give other bits than %u\n", b->name,
				threads, threads - 1);
			failures = 1;
		}
		hash = c.hash;
	}
	if (failures)
		fprintf(stderr, "%s: MFK_SEED=%llu\n", b->name, (unsigned long long)seed);
	return failures;
}
