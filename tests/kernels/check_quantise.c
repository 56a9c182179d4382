/* Matrices of 8 bits: how they are made, and their products. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "formats/base/array.h"
#include "kernels/eight_bits.h"
#include "tests/kernels/check_i.h"

#define GROUPS_MOST 5

/* ---- what a matrix becomes ---- */

struct matrix {
	enum mfk_dtype from, to;
	int64_t rows, cols, groups;
	int64_t offsets[GROUPS_MOST + 1];
	double size; /* of numbers */
	double odd;  /* instead of one of them; 0: none */
	bool given;
};

static int64_t group_count(const struct matrix *m)
{
	return m->groups ? m->groups : 1;
}

static int64_t first_row(const struct matrix *m, int64_t group)
{
	return m->groups ? m->offsets[group] : group * m->rows;
}

static int64_t first_column(const struct matrix *m, int64_t group)
{
	return m->groups ? mfk_group_column(m->offsets[group], group) : 0;
}

static double largest(enum mfk_dtype to)
{
	return to == MFK_E4M3 ? 448 : 57344;
}

/* Scales as kernels.h describes them, in C. */
static void scale_of(enum mfk_dtype to, float amax, double *ret)
{
	const float most = (float)largest(to);
	float scale = amax > 0 && isfinite(amax) ? most / amax : 1;

	if (isinf(scale))
		scale = FLT_MAX;
	ret[0] = 1 / scale;
	ret[1] = scale;
	ret[2] = amax;
	ret[3] = NAN; /* nobody writes it */
}

/* x times the scale in fp32, rounded once more. */
static double code_of(enum mfk_dtype to, double x, float scale)
{
	const float y = (float)x * scale;

	if (isnan(y))
		return NAN;
	return fabs((double)y) >= largest(to) ? copysign(largest(to), (double)y)
					      : check_round(to, (double)y);
}

static float amax_of(const struct matrix *m, const struct tensor *x, int64_t ld, int64_t group)
{
	double most = 0;

	for (int64_t i = first_row(m, group); i < first_row(m, group + 1); i++)
		for (int64_t j = 0; j < m->cols; j++)
			most = fmax(most, fabs(x->x[i * ld + j]));
	return (float)most;
}

struct made {
	struct tensor *x, *q, *qt, *scales;
	struct mfk_quantise a;
};

/* Outputs, all NaNs: what nobody writes stays one. */
static struct made make(struct check *c, const struct matrix *m)
{
	const int64_t pad = check_below(c, 2) * 8 + check_below(c, 2);
	const int64_t columns = m->groups ? mfk_group_columns(m->rows, m->groups) : m->rows;
	struct made made = {.a = {.from = m->from,
				  .to = m->to,
				  .rows = m->rows,
				  .cols = m->cols,
				  .ld = m->cols + pad,
				  .ld_qt = mfk_scaled_round(columns) + 16,
				  .groups = m->groups,
				  .given = m->given}};

	made.x = check_input(c, m->from, m->rows * made.a.ld, 0, m->size);
	if (m->odd != 0 && made.x->count) {
		made.x->x[made.x->count / 2 / made.a.ld * made.a.ld] = m->odd;
		made.x = check_values(c, m->from, made.x->count, made.x->x);
	}
	made.q = check_output(c, m->to, m->rows * m->cols);
	made.qt = check_output(c, m->to, m->cols * made.a.ld_qt);
	made.scales = check_output(c, MFK_F32, 4 * group_count(m));
	made.a.x = made.x->p;
	made.a.q = made.q->p;
	made.a.qt = made.qt->p;
	made.a.scales = made.scales->p;
	return made;
}

static const int64_t *offsets_of(struct check *c, const struct matrix *m)
{
	return (const int64_t *)check_ints(c, (const int32_t *)m->offsets, 2 * (GROUPS_MOST + 1));
}

/* The scales of all groups, codes and the transposed ones. */
static void want_codes(const struct matrix *m, const struct made *made, const double *scales,
		       double *q, double *qt)
{
	for (int64_t g = 0; g < group_count(m); g++) {
		const int64_t first = first_row(m, g), rows = first_row(m, g + 1) - first;

		for (int64_t j = 0; j < m->cols; j++) {
			double *to = qt + j * made->a.ld_qt + first_column(m, g);

			for (int64_t i = 0; i < rows; i++)
				q[(first + i) * m->cols + j] = to[i] =
					code_of(m->to, made->x->x[(first + i) * made->a.ld + j],
						(float)scales[4 * g + 1]);
			for (int64_t i = rows; i < mfk_scaled_round(rows); i++)
				to[i] = 0;
		}
	}
}

/* amax() gives each group's, and want becomes the scales that quantise makes of them. */
static void take_amax(struct check *c, const struct matrix *m, const struct made *made,
		      double *want)
{
	c->ops->amax(c->ctx, &made->a);
	check_fetch(c, made->scales);
	for (int64_t g = 0; g < group_count(m); g++) {
		const float amax = amax_of(m, made->x, made->a.ld, g);

		scale_of(m->to, amax, want + 4 * g);
		if (made->scales->x[4 * g + 2] != (double)amax)
			check_failed(c, "amax of group %lld is %g instead of %g", (long long)g,
				     made->scales->x[4 * g + 2], (double)amax);
	}
}

/* Other scales, and an amax that is there before: half of what there is, or twice. */
static void give_scales(struct check *c, const struct matrix *m, struct made *made, double *want)
{
	double *before = check_doubles(c, 4 * group_count(m));

	for (int64_t g = 0; g < group_count(m); g++) {
		double *now = before + 4 * g, *then = want + 4 * g;

		then[1] = check_round(MFK_F32, 0.37 * (double)(g + 1) / fmax(m->size, 1e-30));
		memcpy(now, then, 4 * sizeof(*now));
		now[2] = check_round(MFK_F32, then[2] * (g % 2 ? 2 : 0.5));
		then[2] = fmax(then[2], now[2]);
	}
	made->scales = check_values(c, MFK_F32, 4 * group_count(m), before);
	made->a.scales = made->scales->p;
}

static void matrix(struct check *c, const struct matrix *m)
{
	struct made made = make(c, m);
	double *scales = check_doubles(c, 4 * group_count(m));
	double *q = check_doubles(c, made.q->count), *qt = check_doubles(c, made.qt->count);

	check_shape(c, "%lld x %lld, ld %lld, %lld groups, %s to %s, numbers of %g, %g%s",
		    (long long)m->rows, (long long)m->cols, (long long)made.a.ld,
		    (long long)m->groups, check_type_name(m->from), check_type_name(m->to), m->size,
		    m->odd, m->given ? ", given" : "");
	made.a.offsets = offsets_of(c, m);
	take_amax(c, m, &made, scales);
	if (m->given)
		give_scales(c, m, &made, scales);
	for (int64_t i = 0; i < made.q->count; i++)
		q[i] = NAN;
	for (int64_t i = 0; i < made.qt->count; i++)
		qt[i] = NAN;
	want_codes(m, &made, scales, q, qt);
	c->ops->quantise(c->ctx, &made.a);
	check_equal(c, "scales", made.scales, scales);
	check_equal(c, "q", made.q, q);
	check_equal(c, "qt", made.qt, qt);
}

/* One of q and qt alone. */
static void parts(struct check *c, const struct matrix *m)
{
	struct made made = make(c, m);
	const struct mfk_quantise all = made.a;
	double *q = check_doubles(c, made.q->count);
	float scale;

	check_shape(c, "parts of %lld x %lld", (long long)m->rows, (long long)m->cols);
	c->ops->amax(c->ctx, &made.a);
	made.a.qt = NULL;
	c->ops->quantise(c->ctx, &made.a);
	check_fetch(c, made.scales);
	scale = (float)largest(m->to) / amax_of(m, made.x, all.ld, 0);
	for (int64_t i = 0; i < m->rows; i++)
		for (int64_t j = 0; j < m->cols; j++)
			q[i * m->cols + j] = code_of(m->to, made.x->x[i * all.ld + j], scale);
	check_equal(c, "q", made.q, q);
	made.a.q = NULL;
	made.a.qt = made.qt->p;
	c->ops->quantise(c->ctx, &made.a);
	check_fetch(c, made.qt);
	for (int64_t j = 0; j < m->cols; j++)
		for (int64_t i = 0; i < m->rows; i++)
			if (made.qt->x[j * all.ld_qt + i] != q[i * m->cols + j]) {
				check_failed(c, "qt[%lld, %lld] differs from q", (long long)j,
					     (long long)i);
				return;
			}
}

void check_quantise(struct check *c)
{
	static const int64_t sizes[][2] = {{1, 16},    {16, 128}, {127, 129}, {128, 7},
					   {129, 272}, {260, 48}, {0, 16}};
	static const double numbers[] = {1, 1e-3, 300, 1e-41};
	static const double odd[] = {0, NAN, INFINITY, -INFINITY};

	if (!c->ops->quantise)
		return;
	for (size_t s = 0; s < MFS_ARRAY_SIZE(sizes); s++)
		for (int i = 0; i < 8; i++) {
			struct matrix m = {.from = check_types[i % 3],
					   .to = i % 2 ? MFK_E4M3 : MFK_E5M2,
					   .rows = sizes[s][0],
					   .cols = sizes[s][1],
					   .size = numbers[i % 4],
					   .odd = odd[i / 2]};

			if (m.from == MFK_F16 && m.size < 1e-10)
				m.from = MFK_BF16;
			matrix(c, &m);
			m.given = true;
			m.odd = 0;
			m.groups = i % 2 ? GROUPS_MOST : 0;
			m.offsets[1] = m.rows / 7;
			m.offsets[2] = m.offsets[3] = m.rows / 5;
			m.offsets[4] = m.rows / 2;
			m.offsets[5] = m.rows;
			matrix(c, &m);
			m.given = false;
			m.groups = GROUPS_MOST;
			matrix(c, &m);
		}
	for (int i = 0; i < 2; i++)
		parts(c, &(struct matrix){.from = MFK_BF16,
					  .to = i ? MFK_E4M3 : MFK_E5M2,
					  .rows = 150,
					  .cols = 144,
					  .size = 2});
	matrix(c, &(struct matrix){.from = MFK_BF16, .to = MFK_E4M3, .rows = 20, .cols = 48});
}

/* ---- delayed scaling ---- */

/* TransformerEngine's rule, a step of it for one scale: h is its history, newest last. */
static void follow(struct mfk_update_scales *u, float m, float *h, double *scale)
{
	float a = m;

	for (int64_t k = 1; k < u->length && u->greatest; k++)
		a = fmaxf(a, h[k]);
	if (m == 0)
		return;
	if (u->length > 1) {
		memmove(h + 1, h + 2, (size_t)(u->length - 2) * sizeof(*h));
		h[u->length - 1] = m;
	}
	h[0] = 0;
	if (isfinite(a))
		scale[1] = (double)(isinf(u->most / a) ? FLT_MAX : u->most / a);
	scale[0] = 1 / (float)scale[1];
}

/* Seven scales, of which some see nothing, infinity or almost nothing, for so many steps. */
static void delayed(struct check *c, int64_t length, bool greatest, bool apart)
{
	enum { COUNT = 7, STEPS = 9, LONGEST = 5 };
	double all[4 * COUNT], histories[LONGEST * COUNT] = {0},
						   *want = check_doubles(c, 4 * COUNT);
	float h[COUNT][LONGEST] = {{0}};
	struct mfk_update_scales u = {
		.count = COUNT, .length = length, .most = 224, .greatest = greatest};
	struct tensor *history = check_values(c, MFK_F32, length * COUNT, histories), *scales,
		      *seen;

	check_shape(c, "delayed, %lld steps%s%s", (long long)length, greatest ? ", greatest" : "",
		    apart ? ", apart" : "");
	for (int i = 0; i < 4 * COUNT; i++)
		all[i] = i % 4 < 2;
	scales = seen = check_values(c, MFK_F32, 4 * COUNT, all);
	for (int step = 0; step < STEPS; step++) {
		memcpy(want, scales->x, 4 * COUNT * sizeof(*want));
		for (int i = 0; i < COUNT; i++) {
			const float m = i == step % COUNT    ? 0
					: i == 5 && step > 4 ? INFINITY
					: i == 6	     ? 1e-40f
							     : (float)check_normal(c);

			all[4 * i + 2] = fabs((double)m);
			follow(&u, fabsf(m), h[i], want + 4 * i);
		}
		seen = check_values(c, MFK_F32, 4 * COUNT, all);
		if (!apart) {
			memcpy(seen->x, scales->x, 4 * COUNT * sizeof(double));
			for (int i = 0; i < COUNT; i++)
				seen->x[4 * i + 2] = all[4 * i + 2];
			scales = seen = check_values(c, MFK_F32, 4 * COUNT, seen->x);
		}
		u.scales = scales->p;
		u.seen = seen->p;
		u.history = history->p;
		c->ops->update_scales(c->ctx, &u);
		check_equal(c, "scales", scales, want);
		check_fetch(c, seen);
		for (int i = 0; i < COUNT; i++)
			if (seen->x[4 * i + 2] != 0)
				check_failed(c, "amax of scale %d is left", i);
		for (int i = 0; i < COUNT; i++)
			for (int64_t k = 0; k < length; k++)
				histories[k * COUNT + i] = (double)h[i][k];
		check_equal(c, "history", history, histories);
	}
}

void check_update_scales(struct check *c)
{
	static const int64_t lengths[] = {1, 2, 5};

	if (!c->ops->update_scales)
		return;
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < 4; k++)
			delayed(c, lengths[i], k & 1, k & 2);
}

/* ---- products ---- */

struct shape {
	int64_t m, n, k;
};

/* Of the sum of magnitudes of products. A tensor core of sm_90 keeps about 14 bits of a sum, over
 * 128 products or over all. */
static double inexact(const struct check *c, bool fast)
{
	return !strcmp(c->backend->name, "cpu") ? 0x1p-20 : fast ? 0x1p-7 : 0x1p-9;
}

static struct tensor *scale(struct check *c)
{
	const double x[] = {check_round(MFK_F32, 0.5 + check_uniform(c)), NAN, NAN, NAN};

	return check_values(c, MFK_F32, 4, x);
}

/* y[i] may be as far from want[i] as magnitudes[i] allows, and its own rounding. */
static void near_sums(struct check *c, struct tensor *y, const double *want,
		      const double *magnitudes, double tolerance)
{
	const double own = y->type == MFK_F32 ? 0x1p-23 : 0x1p-8;

	check_fetch(c, y);
	for (int64_t i = 0; i < y->count; i++) {
		const double allowed = tolerance * magnitudes[i] + own * fabs(want[i]);

		if (fabs(y->x[i] - want[i]) <= allowed || (isnan(want[i]) && isnan(y->x[i])))
			continue;
		check_failed(c, "c[%lld of %lld] is %.9g instead of %.9g (%.2g allowed)",
			     (long long)i, (long long)y->count, y->x[i], want[i], allowed);
		return;
	}
}

static void product(struct check *c, struct shape s, enum mfk_dtype of_a, enum mfk_dtype of_b,
		    bool gradient, bool biased)
{
	struct tensor *ra = scale(c), *rb = scale(c), *a, *b, *bias, *y;
	const enum mfk_dtype out = gradient ? MFK_F32 : MFK_BF16;
	struct mfk_gemm g = {.m = s.m,
			     .n = s.n,
			     .k = s.k,
			     .trans_b = true,
			     .dtype_a = of_a,
			     .dtype_b = of_b,
			     .dtype_c = out,
			     .dtype_bias = MFK_BF16,
			     .alpha = 1,
			     .beta = gradient,
			     .scaling = MFK_SCALING_TENSOR,
			     .scale_a = ra->p,
			     .scale_b = rb->p,
			     .fast_accumulate = !gradient && check_below(c, 2)};
	const double by = (double)((float)ra->x[0] * (float)rb->x[0]);
	double *want, *magnitudes;

	g.lda = s.k + 16 * check_below(c, 3);
	g.ldb = s.k + 16 * check_below(c, 3);
	g.ldc = s.n + 16 * check_below(c, 3);
	check_shape(c, "%lld x %lld x %lld, %s and %s to %s%s%s", (long long)s.m, (long long)s.n,
		    (long long)s.k, check_type_name(of_a), check_type_name(of_b),
		    check_type_name(out), biased ? ", bias" : "",
		    g.fast_accumulate ? ", fast" : "");
	a = check_input(c, of_a, s.m * g.lda, 0, 1);
	b = check_input(c, of_b, s.n * g.ldb, 0.1, 1);
	bias = check_input(c, MFK_BF16, s.n, 0, 1);
	y = gradient ? check_input(c, out, s.m * g.ldc, 0, 1) : check_output(c, out, s.m * g.ldc);
	want = check_doubles(c, y->count);
	magnitudes = check_doubles(c, y->count);
	for (int64_t i = 0; i < y->count; i++)
		want[i] = y->x[i];
	for (int64_t i = 0; i < s.m; i++)
		for (int64_t j = 0; j < s.n; j++) {
			double sum = 0, *to = want + i * g.ldc + j;

			for (int64_t k = 0; k < s.k; k++) {
				const double p = a->x[i * g.lda + k] * b->x[j * g.ldb + k];

				sum += p;
				magnitudes[i * g.ldc + j] += by * fabs(p);
			}
			*to = by * sum + (biased ? bias->x[j] : 0) + (gradient ? *to : 0);
		}
	g.a = a->p;
	g.b = b->p;
	g.c = y->p;
	g.bias = biased ? bias->p : NULL;
	c->ops->gemm(c->ctx, &g);
	near_sums(c, y, want, magnitudes, inexact(c, g.fast_accumulate));
}

void check_gemm_eight(struct check *c)
{
	static const struct shape shapes[] = {
		{1, 16, 16}, {3, 48, 64}, {17, 272, 208}, {129, 16, 1040}, {64, 128, 400}};

	if (!c->ops->quantise || !c->ops->gemm)
		return;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++) {
		product(c, shapes[i], MFK_E4M3, MFK_E4M3, false, false);
		product(c, shapes[i], MFK_E4M3, MFK_E4M3, false, true);
		product(c, shapes[i], MFK_E5M2, MFK_E4M3, false, false);
		product(c, shapes[i], MFK_E5M2, MFK_E4M3, true, false);
		product(c, shapes[i], MFK_E4M3, MFK_E4M3, true, false);
	}
}

/* ---- products of groups ---- */

static const struct matrix rows_of_groups = {
	.groups = 5, .rows = 168, .offsets = {0, 5, 5, 38, 39, 168}};

/* Operands, and the result, of one form: forward, or gradients of weights. */
struct grouped {
	int64_t n, k, columns;
	bool weights;
	struct tensor *a, *b, *y, *ra, *rb;
};

/* a of [rows, k] and b of [groups][n, k]; of weights a [n, columns] and b [k, columns], with zeros
 * after each group's rows. */
static void make_grouped(struct check *c, struct grouped *s)
{
	const struct matrix *m = &rows_of_groups;
	double *x[2];

	s->ra = check_input(c, MFK_F32, 4 * m->groups, 1, 0.1);
	s->rb = check_input(c, MFK_F32, 4 * m->groups, 1, 0.1);
	s->columns = mfk_group_columns(m->rows, m->groups);
	s->y = check_output(c, s->weights ? MFK_F32 : MFK_BF16,
			    s->weights ? m->groups * s->n * s->k : m->rows * s->n);
	if (!s->weights) {
		s->a = check_input(c, MFK_E4M3, m->rows * s->k, 0, 1);
		s->b = check_input(c, MFK_E4M3, m->groups * s->n * s->k, 0, 1);
		return;
	}
	x[0] = check_doubles(c, s->n * s->columns);
	x[1] = check_doubles(c, s->k * s->columns);
	for (int which = 0; which < 2; which++)
		for (int64_t j = 0; j < (which ? s->k : s->n) * s->columns; j++)
			x[which][j] = NAN;
	for (int which = 0; which < 2; which++)
		for (int64_t j = 0; j < (which ? s->k : s->n); j++)
			for (int64_t g = 0; g < m->groups; g++) {
				const int64_t rows = m->offsets[g + 1] - m->offsets[g];
				double *to = x[which] + j * s->columns + first_column(m, g);

				for (int64_t i = 0; i < mfk_scaled_round(rows); i++)
					to[i] = i < rows ? check_normal(c) : 0;
			}
	s->a = check_values(c, MFK_E5M2, s->n * s->columns, x[0]);
	s->b = check_values(c, MFK_E4M3, s->k * s->columns, x[1]);
}

/* Products of group g and their magnitudes, of one element of y. */
static void add_products(const struct grouped *s, int64_t g, int64_t row, int64_t col, double *sum,
			 double *magnitude)
{
	const struct matrix *m = &rows_of_groups;
	const double by = (double)((float)s->ra->x[4 * g] * (float)s->rb->x[4 * g]);
	const int64_t rows = m->offsets[g + 1] - m->offsets[g];

	for (int64_t i = 0; i < (s->weights ? rows : s->k); i++) {
		const int64_t at = first_column(m, g) + i;
		const double p =
			s->weights ? s->a->x[row * s->columns + at] * s->b->x[col * s->columns + at]
				   : s->a->x[row * s->k + i] * s->b->x[(g * s->n + col) * s->k + i];

		*sum += by * p;
		*magnitude += by * fabs(p);
	}
}

static void grouped(struct check *c, int64_t n, int64_t k, bool weights)
{
	const struct matrix *m = &rows_of_groups;
	struct grouped s = {.n = n, .k = k, .weights = weights};
	struct mfk_gemm_grouped p = {.groups = m->groups, .along_k = weights, .stride = n * k};
	double *want, *magnitudes;

	check_shape(c, "%lld x %lld, %s", (long long)n, (long long)k,
		    weights ? "weight gradients" : "forward");
	make_grouped(c, &s);
	want = check_doubles(c, s.y->count);
	magnitudes = check_doubles(c, s.y->count);
	for (int64_t g = 0; g < m->groups; g++)
		for (int64_t i = weights ? 0 : m->offsets[g]; i < (weights ? n : m->offsets[g + 1]);
		     i++)
			for (int64_t j = 0; j < (weights ? k : n); j++) {
				const int64_t at = weights ? g * n * k + i * k + j : i * n + j;

				add_products(&s, g, i, j, &want[at], &magnitudes[at]);
			}
	p.base = (struct mfk_gemm){.m = weights ? n : m->rows,
				   .n = weights ? k : n,
				   .k = weights ? m->rows : k,
				   .trans_b = true,
				   .dtype_a = s.a->type,
				   .dtype_b = s.b->type,
				   .dtype_c = s.y->type,
				   .a = s.a->p,
				   .b = s.b->p,
				   .c = s.y->p,
				   .lda = weights ? s.columns : k,
				   .ldb = weights ? s.columns : k,
				   .ldc = weights ? k : n,
				   .alpha = 1,
				   .scaling = MFK_SCALING_TENSOR,
				   .scale_a = s.ra->p,
				   .scale_b = s.rb->p};
	p.offsets = offsets_of(c, m);
	if (c->ops->gemm_grouped_wants_host(c->device, &p))
		p.host_offsets = m->offsets;
	c->ops->gemm_grouped(c->ctx, &p);
	near_sums(c, s.y, want, magnitudes, inexact(c, false));
}

void check_grouped_eight(struct check *c)
{
	if (!c->ops->quantise || !c->ops->gemm_grouped)
		return;
	for (int weights = 0; weights < 2; weights++) {
		grouped(c, 32, 48, weights);
		grouped(c, 144, 272, weights);
	}
}
