/* Dropout and normal numbers, of a Philox4x32-10 that is written here a second time. */
#include <math.h>
#include <string.h>

#include "tests/kernels/check_i.h"

static void philox(const uint32_t counter[4], uint32_t key0, uint32_t key1, uint32_t x[4])
{
	memcpy(x, counter, 16);
	for (int i = 0; i < 10; i++) {
		uint64_t p0 = (uint64_t)0xd2511f53 * x[0], p1 = (uint64_t)0xcd9e8d57 * x[2];
		uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ x[1] ^ key0, (uint32_t)p1,
				    (uint32_t)(p0 >> 32) ^ x[3] ^ key1, (uint32_t)p0};

		memcpy(x, next, 16);
		key0 += 0x9e3779b9;
		key1 += 0xbb67ae85;
	}
}

uint32_t check_number(uint64_t seed, uint64_t n)
{
	uint32_t counter[4] = {(uint32_t)(n / 4), (uint32_t)(n / 4 >> 32), 0, 0}, x[4];

	philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32), x);
	return x[n % 4];
}

double check_keep(uint64_t seed, uint64_t n, float p)
{
	if (p <= 0)
		return 1;
	return (check_number(seed, n) >> 8) * 0x1p-24 >= (double)p ? 1 / (1 - (double)p) : 0;
}

/* The known answers of the paper's own code (Random123, kat_vectors). */
static void known_answers(struct check *c)
{
	static const struct {
		uint32_t counter[4], key[2], x[4];
	} known[] = {{{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		     {{~0u, ~0u, ~0u, ~0u},
		      {~0u, ~0u},
		      {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}};

	for (int i = 0; i < 2; i++) {
		uint32_t x[4];

		philox(known[i].counter, known[i].key[0], known[i].key[1], x);
		if (memcmp(x, known[i].x, 16) != 0)
			check_failed(c, "Philox of known answer %d is wrong here", i);
	}
}

static void dropout(struct check *c, enum mfk_dtype type, int64_t n, bool residual, float p)
{
	struct mfk_dropout a = {.dtype = type,
				.count = n,
				.p = p,
				.seed = check_random(c),
				.offset = check_random(c) >> 20};
	struct tensor *x = check_input(c, type, n, 0, 1), *r = check_input(c, type, n, 0, 1);
	struct tensor *y = check_output(c, type, n);
	double *want = check_doubles(c, n), *plain = check_doubles(c, n);

	check_shape(c, "%lld %s, p %g%s", (long long)n, check_type_name(type), (double)p,
		    residual ? ", residual" : "");
	for (int64_t i = 0; i < n; i++) {
		plain[i] = x->x[i] * check_keep(a.seed, a.offset + (uint64_t)i, p);
		want[i] = plain[i] + (residual ? r->x[i] : 0);
	}
	a.x = x->p;
	a.residual = residual ? r->p : NULL;
	a.y = y->p;
	c->ops->dropout(c->ctx, &a);
	check_near(c, "y", y, want, 1e-7, 1);
	c->ops->dropout_backward(c->ctx, &a);
	check_near(c, "dx", y, plain, 1e-7, 1);
	a.y = x->p;
	c->ops->dropout(c->ctx, &a);
	check_near(c, "y in place", x, want, 1e-7, 1);
}

void check_dropout(struct check *c)
{
	known_answers(c);
	if (!c->ops->dropout)
		return;
	for (int t = 0; t < 3; t++)
		for (int residual = 0; residual < 2; residual++) {
			dropout(c, check_types[t], 1, residual, 0.5f);
			dropout(c, check_types[t], 17, residual, 0.1f);
			dropout(c, check_types[t], 100003, residual, 0.1f);
			dropout(c, check_types[t], 129, residual, 0);
		}
}

/* Box and Muller, of numbers 2n and 2n + 1 (kernels.h). */
static double normal(uint64_t seed, uint64_t n)
{
	double u = ((check_number(seed, n & ~1ull) >> 8) + 1) * 0x1p-24;
	double v = (check_number(seed, n | 1) >> 8) * 0x1p-24;

	return sqrt(-2 * log(u)) * (n & 1 ? sin(2 * M_PI * v) : cos(2 * M_PI * v));
}

void check_fill_normal(struct check *c)
{
	static const int64_t sizes[] = {1, 3, 129, 100003};

	if (!c->ops->fill_normal)
		return;
	for (int t = 0; t < 3; t++)
		for (int s = 0; s < 4; s++) {
			uint64_t seed = check_random(c), offset = check_random(c) >> 20;
			struct tensor *x = check_output(c, check_types[t], sizes[s]);
			double *want = check_doubles(c, sizes[s]);

			check_shape(c, "%lld %s", (long long)sizes[s],
				    check_type_name(check_types[t]));
			for (int64_t i = 0; i < sizes[s]; i++)
				want[i] = 0.5 + 0.02 * normal(seed, offset + (uint64_t)i);
			c->ops->fill_normal(c->ctx, check_types[t], x->p, sizes[s], 0.5f, 0.02f,
					    seed, offset);
			check_near(c, "x", x, want, 1e-6, 1);
		}
}

void check_fill_uniform(struct check *c)
{
	static const int64_t sizes[] = {1, 3, 129, 100003};

	if (!c->ops->fill_uniform)
		return;
	for (int t = 0; t < 3; t++)
		for (int s = 0; s < 4; s++) {
			struct tensor *x = check_output(c, check_types[t], sizes[s]);
			double *want = check_doubles(c, sizes[s]);
			struct mfk_uniform a = {.dtype = check_types[t],
						.x = x->p,
						.count = sizes[s],
						.low = 1,
						.high = 16,
						.logarithm = s % 2,
						.seed = check_random(c),
						.offset = check_random(c) >> 20};

			check_shape(c, "%lld %s", (long long)sizes[s],
				    check_type_name(check_types[t]));
			for (int64_t i = 0; i < sizes[s]; i++) {
				const uint32_t n = check_number(a.seed, a.offset + (uint64_t)i);

				want[i] = 1 + 15 * (((n >> 8) + 1) * 0x1p-24);
				want[i] = a.logarithm ? log(want[i]) : want[i];
			}
			c->ops->fill_uniform(c->ctx, &a);
			check_near(c, "x", x, want, 1e-6, 1);
		}
}
