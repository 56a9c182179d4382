/* Operations on single elements, and sums of vectors. */
#include <math.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

static void add(struct check *c, enum mfk_dtype type, int64_t n)
{
	struct tensor *a = check_input(c, type, n, 0, 1), *b = check_input(c, type, n, 0, 1);
	struct tensor *y = check_output(c, type, n);
	double *want = check_doubles(c, n);

	for (int64_t i = 0; i < n; i++)
		want[i] = check_round(type, a->x[i] + b->x[i]);
	c->ops->add(c->ctx, type, y->p, a->p, b->p, n);
	check_equal(c, "a + b", y, want);
	c->ops->add(c->ctx, type, b->p, a->p, b->p, n);
	check_equal(c, "a + b in place", b, want);
}

static void scale(struct check *c, enum mfk_dtype type, int64_t n)
{
	struct tensor *x = check_input(c, type, n, 0, 1);
	double *want = check_doubles(c, n);

	for (int64_t i = 0; i < n; i++)
		want[i] = check_round(type, x->x[i] * 0.375);
	c->ops->scale(c->ctx, type, x->p, 0.375f, n);
	check_equal(c, "0.375 x", x, want);
}

static void fill(struct check *c, enum mfk_dtype type, int64_t n)
{
	struct tensor *x = check_output(c, type, n);
	double *want = check_doubles(c, n);

	for (int64_t i = 0; i < n; i++)
		want[i] = check_round(type, 0.1f);
	c->ops->fill(c->ctx, type, x->p, n, 0.1f);
	check_equal(c, "x", x, want);
}

/* Values of all sizes: subnormal results, ties, the largest numbers and beyond. */
static void cast(struct check *c, enum mfk_dtype to, enum mfk_dtype from, int64_t n)
{
	static const double special[] = {0,
					 -0.0,
					 INFINITY,
					 -INFINITY,
					 NAN,
					 65504,
					 65519.99,
					 65520,
					 65536,
					 0x1p-24,
					 0x1p-25,
					 0x1.8p-25,
					 0x1.000002p-25,
					 0x1p-14,
					 0x1.ffcp-15,
					 0x1.ffep-15,
					 1 + 0x1p-8,
					 1 + 0x1.8p-7,
					 1 + 0x1p-11,
					 1 + 0x1.8p-10,
					 0x1.fffffep127,
					 -0x1.fep127};
	const int64_t specials = MFS_ARRAY_SIZE(special);
	double *in = check_doubles(c, n), *want = check_doubles(c, n);
	struct tensor *x, *y;

	for (int64_t i = 0; i < n; i++)
		in[i] = i < specials ? special[i]
				     : ldexp(check_normal(c), (int)check_below(c, 60) - 40);
	x = check_values(c, from, n, in);
	y = check_output(c, to, n);
	for (int64_t i = 0; i < n; i++)
		want[i] = check_round(to, x->x[i]);
	c->ops->cast(c->ctx, to, y->p, from, x->p, n);
	check_shape(c, "cast of %lld %s to %s", (long long)n, check_type_name(from),
		    check_type_name(to));
	check_equal(c, "x", y, want);
}

void check_elementwise(struct check *c)
{
	static const int64_t sizes[] = {1, 3, 129, 100003};

	for (int t = 0; t < 3; t++)
		for (int s = 0; s < 4; s++) {
			enum mfk_dtype type = check_types[t];

			check_shape(c, "%lld %s", (long long)sizes[s], check_type_name(type));
			if (c->ops->add)
				add(c, type, sizes[s]);
			if (c->ops->scale)
				scale(c, type, sizes[s]);
			if (c->ops->fill)
				fill(c, type, sizes[s]);
			for (int to = 0; to < 3 && c->ops->cast; to++)
				cast(c, check_types[to], type, sizes[s]);
		}
}

/* ---- sums ---- */

/* Doubles on the device, in a tensor of twice as many floats. */
static void doubles_in(struct check *c, struct tensor *t, const double *x, size_t count)
{
	char why[MFK_WHY];

	c->backend->device->copy_in(c->ctx, t->p, x, count * sizeof(double));
	c->backend->device->sync(c->ctx, why);
}

static void expect_doubles(struct check *c, const char *what, struct tensor *t, const double *want,
			   size_t count)
{
	double got[2];
	char why[MFK_WHY];

	c->backend->device->copy_out(c->ctx, got, t->p, count * sizeof(double));
	c->backend->device->sync(c->ctx, why);
	check_fetch(c, t); /* guards, and the bits */
	for (size_t i = 0; i < count; i++)
		if (!(fabs(got[i] - want[i]) <= 1e-12 * fabs(want[i])) && got[i] != want[i])
			check_failed(c, "%s[%zu] is %.17g instead of %.17g", what, i, got[i],
				     want[i]);
}

static void sum_squares(struct check *c, enum mfk_dtype type, int64_t n)
{
	struct tensor *x = check_input(c, type, n, 0, 3), *sums = check_output(c, MFK_F32, 4);
	double want[2] = {7, 0};

	doubles_in(c, sums, want, 2);
	for (int64_t i = 0; i < n; i++)
		want[0] += x->x[i] * x->x[i];
	c->ops->sum_squares(c->ctx, type, x->p, n, sums->p);
	expect_doubles(c, "sums", sums, want, 2);
}

static void not_finite(struct check *c, enum mfk_dtype type, int64_t n, double bad)
{
	struct tensor *sums = check_output(c, MFK_F32, 4);
	double *in = check_doubles(c, n), got[2] = {0, 0};
	char why[MFK_WHY];

	for (int64_t i = 0; i < n; i++)
		in[i] = check_normal(c);
	in[check_below(c, n)] = bad;
	doubles_in(c, sums, got, 2);
	c->ops->sum_squares(c->ctx, type, check_values(c, type, n, in)->p, n, sums->p);
	c->backend->device->copy_out(c->ctx, got, sums->p, sizeof(got));
	c->backend->device->sync(c->ctx, why);
	if (got[1] != 1)
		check_failed(c, "%g among %lld was not seen", bad, (long long)n);
}

/* Zeros of both signs count, the smallest numbers of a type do not. */
static void count_zeros(struct check *c, enum mfk_dtype type, int64_t n)
{
	const double least[] = {[MFK_F32] = 0x1p-149, [MFK_BF16] = 0x1p-133, [MFK_F16] = 0x1p-24};
	struct tensor *zeros = check_output(c, MFK_F32, 2);
	double *in = check_doubles(c, n), want = 5;

	doubles_in(c, zeros, &want, 1);
	for (int64_t i = 0; i < n; i++) {
		const double values[] = {0, -0.0, least[type], -least[type], 1, -INFINITY, NAN};
		const int64_t k = check_below(c, 7);

		in[i] = values[k];
		want += k < 2;
	}
	c->ops->count_zeros(c->ctx, type, check_values(c, type, n, in)->p, n, zeros->p);
	expect_doubles(c, "zeros", zeros, &want, 1);
}

static void weighted_sum(struct check *c, int64_t n, bool weighted)
{
	struct tensor *x = check_input(c, MFK_F32, n, 1, 3), *w = check_input(c, MFK_F32, n, 1, 1);
	struct tensor *sum = check_output(c, MFK_F32, 2);
	double want = -3;

	doubles_in(c, sum, &want, 1);
	for (int64_t i = 0; i < n; i++)
		want += x->x[i] * (weighted ? w->x[i] : 1);
	c->ops->weighted_sum(c->ctx, x->p, weighted ? w->p : NULL, n, sum->p);
	expect_doubles(c, "sum", sum, &want, 1);
}

void check_sums(struct check *c)
{
	static const int64_t sizes[] = {1, 3, 129, 100003};

	for (int s = 0; s < 4; s++) {
		check_shape(c, "%lld", (long long)sizes[s]);
		for (int t = 0; t < 3 && c->ops->sum_squares; t++) {
			sum_squares(c, check_types[t], sizes[s]);
			not_finite(c, check_types[t], sizes[s], NAN);
			not_finite(c, check_types[t], sizes[s], -INFINITY);
		}
		for (int t = 0; t < 3 && c->ops->count_zeros; t++)
			count_zeros(c, check_types[t], sizes[s]);
		if (!c->ops->weighted_sum)
			continue;
		weighted_sum(c, sizes[s], true);
		weighted_sum(c, sizes[s], false);
	}
}
