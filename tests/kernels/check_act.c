/* Activations, with the gradients of their definitions by central differences. */
#include <math.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

static double activation(enum mfk_activation kind, double x)
{
	switch (kind) {
	case MFK_GELU_TANH:
		return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
	case MFK_GELU_ERF:
		return 0.5 * x * erfc(-x / sqrt(2));
	case MFK_SILU:
		return x / (1 + exp(-x));
	case MFK_RELU_SQUARED:
		return x > 0 ? x * x : 0;
	case MFK_QUICK_GELU:
		return x / (1 + exp(-1.702 * x));
	}
	return NAN;
}

static double slope(enum mfk_activation kind, double x)
{
	const double h = 1e-5;

	return (activation(kind, x + h) - activation(kind, x - h)) / (2 * h);
}

static void act(struct check *c, enum mfk_dtype type, enum mfk_activation kind, bool gated,
		bool scaled, int64_t rows, int64_t n)
{
	int64_t width = gated ? 2 * n : n;
	struct mfk_act a = {.dtype = type, .kind = kind, .gated = gated, .rows = rows, .cols = n};
	struct tensor *x = check_input(c, type, rows * width, 0, 3);
	struct tensor *scale = check_input(c, MFK_F32, rows, 1, 0.5);
	struct tensor *dy = check_input(c, type, rows * n, 0, 1);
	struct tensor *y = check_output(c, type, rows * n);
	struct tensor *dx = check_output(c, type, rows * width);
	struct tensor *dscale = check_output(c, MFK_F32, rows);
	double *ys = check_doubles(c, rows * n), *dxs = check_doubles(c, rows * width);
	double *dscales = check_doubles(c, rows);

	check_shape(c, "%lld x %lld %s, kind %d%s%s", (long long)rows, (long long)n,
		    check_type_name(type), kind, gated ? ", gated" : "", scaled ? ", scaled" : "");
	for (int64_t i = 0; i < rows * n; i++) {
		int64_t row = i / n, at = row * width + i % n;
		double s = scaled ? scale->x[row] : 1, f = activation(kind, x->x[at]);
		double up = gated ? x->x[at + n] : 1;

		ys[i] = s * f * up;
		dscales[row] += dy->x[i] * f * up;
		dxs[at] = dy->x[i] * s * up * slope(kind, x->x[at]);
		if (gated)
			dxs[at + n] = dy->x[i] * s * f;
	}
	a.row_scale = scaled ? scale->p : NULL;
	a.x = x->p;
	a.y = y->p;
	a.dy = dy->p;
	a.dx = dx->p;
	a.drow_scale = scaled ? dscale->p : NULL;
	if (c->ops->act) {
		c->ops->act(c->ctx, &a);
		check_near(c, "y", y, ys, 2e-6, 1);
	}
	if (!c->ops->act_backward)
		return;
	c->ops->act_backward(c->ctx, &a);
	check_near(c, "dx", dx, dxs, 2e-6, 1);
	if (scaled)
		check_near(c, "drow_scale", dscale, dscales, 1e-5, 1);
	a.dx = x->p;
	c->ops->act_backward(c->ctx, &a);
	check_near(c, "dx in place", x, dxs, 2e-6, 1);
}

/* ---- after a product ---- */

struct fused {
	int64_t rows, n, k;
	enum mfk_dtype type;
	enum mfk_activation kind;
	bool gated, scaled, biased;
};

/*
 * What is activated, or the gradient that is multiplied, may have been rounded before: by 2^-8 of
 * itself in bf16, by 2^-11 in fp16. The most that such roundings of `factors` factors make of a
 * product. An activation's x counts for one and a half: |x f'(x)| reaches 1.3 |f(x)|.
 */
static double rounded_before(enum mfk_dtype type, double factors)
{
	return factors * (type == MFK_F32 ? 1e-5 : type == MFK_BF16 ? 4e-3 : 5e-4);
}

/* want[m, n] = a[m, k] b[n, k]^T / sqrt(k) (+ bias), or with b[k, n]; numbers of unit size. */
static struct mfk_gemm product(struct check *c, const struct fused *s, int64_t n, bool trans_b,
			       double *want)
{
	struct tensor *a = check_input(c, s->type, s->rows * s->k, 0, 1);
	struct tensor *b = check_input(c, s->type, s->k * n, 0, 1);
	struct tensor *bias = check_input(c, s->type, n, 0, 1);
	const double alpha = 1 / sqrt((double)s->k);

	for (int64_t i = 0; i < s->rows * n; i++) {
		double sum = 0;

		for (int64_t k = 0; k < s->k; k++)
			sum += a->x[i / n * s->k + k] *
			       b->x[trans_b ? i % n * s->k + k : k * n + i % n];
		want[i] = (float)alpha * sum + (s->biased ? bias->x[i % n] : 0);
	}
	return (struct mfk_gemm){.m = s->rows,
				 .n = n,
				 .k = s->k,
				 .trans_b = trans_b,
				 .dtype_a = s->type,
				 .dtype_b = s->type,
				 .dtype_c = s->type,
				 .dtype_bias = s->type,
				 .a = a->p,
				 .b = b->p,
				 .bias = s->biased ? bias->p : NULL,
				 .lda = s->k,
				 .ldb = trans_b ? s->k : n,
				 .ldc = n,
				 .alpha = (float)alpha};
}

static struct mfk_act act_of(const struct fused *s, const struct tensor *scale)
{
	return (struct mfk_act){.dtype = s->type,
				.kind = s->kind,
				.gated = s->gated,
				.rows = s->rows,
				.cols = s->n,
				.row_scale = s->scaled ? scale->p : NULL};
}

static void forward_after(struct check *c, const struct fused *s, const struct tensor *scale)
{
	const int64_t width = s->gated ? 2 * s->n : s->n;
	double *xs = check_doubles(c, s->rows * width), *ys = check_doubles(c, s->rows * s->n);
	struct tensor *x = check_output(c, s->type, s->rows * width);
	struct tensor *y = check_output(c, s->type, s->rows * s->n);
	struct mfk_gemm g = product(c, s, width, true, xs);
	struct mfk_act a = act_of(s, scale);

	for (int64_t i = 0; i < s->rows * s->n; i++) {
		int64_t row = i / s->n, at = row * width + i % s->n;

		ys[i] = (s->scaled ? scale->x[row] : 1) * activation(s->kind, xs[at]) *
			(s->gated ? xs[at + s->n] : 1);
	}
	g.c = x->p;
	a.x = x->p;
	a.y = y->p;
	c->ops->gemm_act(c->ctx, &g, &a);
	check_near(c, "x", x, xs, 1e-5, 1);
	check_near(c, "y", y, ys, rounded_before(s->type, s->gated ? 2.5 : 1.5), 1);
}

/* In the place of dy where nothing is gated, as an MLP does it. */
static void backward_after(struct check *c, struct fused s, const struct tensor *scale)
{
	const int64_t width = s.gated ? 2 * s.n : s.n;
	double *dys = check_doubles(c, s.rows * s.n), *dxs = check_doubles(c, s.rows * width);
	double *dscales = check_doubles(c, s.rows), *terms = check_doubles(c, s.rows), most = 1;
	struct tensor *x = check_input(c, s.type, s.rows * width, 0, 1);
	struct tensor *dy = check_output(c, s.type, s.rows * s.n);
	struct tensor *dscale = check_output(c, MFK_F32, s.rows);
	struct mfk_act a = act_of(&s, scale);
	struct mfk_gemm g;

	s.biased = false;
	g = product(c, &s, s.n, false, dys);
	for (int64_t i = 0; i < s.rows * s.n; i++) {
		int64_t row = i / s.n, at = row * width + i % s.n;
		double d = dys[i] * (s.scaled ? scale->x[row] : 1);
		double f = activation(s.kind, x->x[at]), up = s.gated ? x->x[at + s.n] : 1;

		dscales[row] += dys[i] * f * up;
		terms[row] += fabs(dys[i] * f * up);
		most = fmax(most, terms[row]);
		dxs[at] = d * up * slope(s.kind, x->x[at]);
		if (s.gated)
			dxs[at + s.n] = d * f;
	}
	g.c = dy->p;
	a.x = x->p;
	a.dy = dy->p;
	a.dx = s.gated ? x->p : dy->p;
	a.drow_scale = s.scaled ? dscale->p : NULL;
	c->ops->gemm_act_backward(c->ctx, &g, &a);
	check_near(c, "dx", s.gated ? x : dy, dxs, rounded_before(s.type, 1), 1);
	/* Terms of both signs: their roundings add up where they themselves cancel. */
	if (s.scaled)
		check_near(c, "drow_scale", dscale, dscales, rounded_before(s.type, 1), most);
}

/* Sizes with which cublasLt has the activation in its epilogue, and others. */
static void after_product(struct check *c, struct fused s)
{
	static const struct {
		int64_t rows, n, k;
	} sizes[] = {{40, 72, 64}, {129, 264, 136}, {17, 33, 20}, {1, 8, 8}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(sizes); i++) {
		const struct tensor *scale = check_input(c, MFK_F32, sizes[i].rows, 1, 0.5);

		s.rows = sizes[i].rows;
		s.n = sizes[i].n;
		s.k = sizes[i].k;
		check_shape(c, "behind a product, %lld x %lld x %lld %s, kind %d%s%s%s",
			    (long long)s.rows, (long long)s.n, (long long)s.k,
			    check_type_name(s.type), s.kind, s.gated ? ", gated" : "",
			    s.scaled ? ", scaled" : "", s.biased ? ", bias" : "");
		forward_after(c, &s, scale);
		backward_after(c, s, scale);
	}
}

static void after_products(struct check *c)
{
	for (int t = 0; t < 3; t++) {
		struct fused s = {.type = check_types[t]};

		after_product(c, s);
		s.biased = true;
		after_product(c, s);
		s.scaled = true;
		after_product(c, s);
		s.gated = true;
		s.kind = MFK_SILU;
		after_product(c, s);
	}
}

void check_act(struct check *c)
{
	static const enum mfk_activation kinds[] = {MFK_GELU_TANH, MFK_GELU_ERF, MFK_SILU,
						    MFK_RELU_SQUARED, MFK_QUICK_GELU};

	for (size_t k = 0; k < MFS_ARRAY_SIZE(kinds); k++)
		for (int t = 0; t < 3; t++)
			for (int bits = 0; bits < 4; bits++) {
				act(c, check_types[t], kinds[k], bits & 1, bits & 2, 1, 1);
				act(c, check_types[t], kinds[k], bits & 1, bits & 2, 65, 129);
				act(c, check_types[t], kinds[k], bits & 1, bits & 2, 3, 1000);
			}
	if (c->ops->gemm_act)
		after_products(c);
}
