/* Cross entropy and its gradient. */
#include <math.h>
#include <stdlib.h>

#include "tests/kernels/check_i.h"

/* A few columns of each row, as a process has them that shares the vocabulary. */
struct part {
	int64_t first, count;
	struct tensor *x, *d;
	double *ds;
};

static void part_new(struct check *c, struct part *p, const struct mfk_cross_entropy *a,
		     const struct tensor *x, const double *ds)
{
	const int64_t count = a->rows * p->count;
	double *values = check_doubles(c, count);

	p->ds = check_doubles(c, count);
	for (int64_t i = 0; i < count; i++) {
		const int64_t at = i / p->count * a->ld + p->first + i % p->count;

		values[i] = x->x[at];
		p->ds[i] = ds[at];
	}
	p->x = check_values(c, a->dtype, count, values);
	p->d = check_output(c, a->dtype, count);
}

/* The same losses and gradients of logits whose columns are divided. */
static void divided(struct check *c, struct mfk_cross_entropy a, const struct tensor *x,
		    const double *losses, const double *lses, const double *ds)
{
	const int64_t parts = a.vocab < 3 ? 1 : 3, each = a.vocab / parts;
	struct tensor *stats = check_output(c, MFK_F32, 3 * parts * a.rows);
	struct part part[3];
	double most = 0; /* of all parts: a part's bound is that of the whole */

	for (int64_t i = 0; i < x->count; i++)
		if (isfinite(ds[i]))
			most = fmax(most, fabs(ds[i]));
	a.parts = parts;
	a.all = a.vocab;
	a.stats = stats->p;
	for (int64_t p = 0; p < parts; p++) {
		part[p].first = p * each;
		part[p].count = p + 1 < parts ? each : a.vocab - p * each;
		part_new(c, &part[p], &a, x, ds);
	}
	for (int join = 0; join < 2; join++)
		for (int64_t p = 0; p < parts; p++) {
			struct tensor *loss = check_output(c, MFK_F32, a.rows);
			struct tensor *lse = check_output(c, MFK_F32, a.rows);
			struct mfk_cross_entropy of = a;

			of.part = p;
			of.first = part[p].first;
			of.vocab = of.ld = part[p].count;
			of.logits = part[p].x->p;
			of.loss = loss->p;
			of.lse = lse->p;
			of.dlogits = part[p].d->p;
			if (!join) {
				c->ops->cross_entropy_part(c->ctx, &of);
				continue;
			}
			c->ops->cross_entropy_join(c->ctx, &of);
			check_near(c, "loss of parts", loss, losses, 1e-6, 1);
			check_near(c, "lse of parts", lse, lses, 1e-6, 1);
			check_near(c, "dlogits of parts", part[p].d, part[p].ds, 1e-5, most);
		}
}

static void cross_entropy(struct check *c, enum mfk_dtype type, int64_t rows, int64_t vocab,
			  int64_t ld, double spread)
{
	struct mfk_cross_entropy a = {.dtype = type, .rows = rows, .vocab = vocab, .ld = ld};
	struct tensor *x = check_input(c, type, rows * ld, 1, spread);
	struct tensor *scale = check_input(c, MFK_F32, rows, 0.01, 0.01);
	struct tensor *loss = check_output(c, MFK_F32, rows), *lse = check_output(c, MFK_F32, rows);
	struct tensor *d = check_output(c, type, rows * ld);
	double *losses = check_doubles(c, rows), *lses = check_doubles(c, rows);
	double *ds = check_doubles(c, rows * ld), *in_place = check_doubles(c, rows * ld);
	int32_t *labels = calloc((size_t)rows, 4);

	check_shape(c, "%lld x %lld of %lld, %s, spread %g", (long long)rows, (long long)vocab,
		    (long long)ld, check_type_name(type), spread);
	for (int64_t r = 0; r < rows; r++) {
		const double *row = x->x + r * ld;
		double most = row[0], sum = 0;

		labels[r] = (int32_t)check_below(c, vocab);
		for (int64_t i = 0; i < vocab; i++)
			most = fmax(most, row[i]);
		for (int64_t i = 0; i < vocab; i++)
			sum += exp(row[i] - most);
		lses[r] = most + log(sum);
		losses[r] = lses[r] - row[labels[r]];
		for (int64_t i = 0; i < ld; i++) {
			bool in = i < vocab; /* what is between the rows stays */

			ds[r * ld + i] =
				in ? scale->x[r] * (exp(row[i] - lses[r]) - (i == labels[r])) : NAN;
			in_place[r * ld + i] = in ? ds[r * ld + i] : row[i];
		}
	}
	a.labels = check_ints(c, labels, rows);
	free(labels);
	a.logits = x->p;
	a.scale = scale->p;
	a.loss = loss->p;
	c->ops->cross_entropy(c->ctx, &a);
	check_near(c, "loss", loss, losses, 1e-6, 1);
	a.lse = lse->p;
	a.dlogits = d->p;
	c->ops->cross_entropy(c->ctx, &a);
	check_near(c, "loss", loss, losses, 1e-6, 1);
	check_near(c, "lse", lse, lses, 1e-6, 1);
	check_near(c, "dlogits", d, ds, 1e-5, 0);
	if (c->ops->cross_entropy_part)
		divided(c, a, x, losses, lses, ds);
	a.dlogits = x->p;
	c->ops->cross_entropy(c->ctx, &a);
	check_near(c, "dlogits in place", x, in_place, 1e-5, 0);
}

void check_cross_entropy(struct check *c)
{
	if (!c->ops->cross_entropy)
		return;
	for (int t = 0; t < 3; t++) {
		cross_entropy(c, check_types[t], 1, 1, 1, 1);
		cross_entropy(c, check_types[t], 3, 17, 17, 30);
		cross_entropy(c, check_types[t], 17, 129, 136, 2);
		cross_entropy(c, check_types[t], 65, 5000, 5000, 5);
		cross_entropy(c, check_types[t], 2, 50304, 50304, 1);
		cross_entropy(c, check_types[t], 1300, 130, 136, 1); /* more than run at once */
	}
}
