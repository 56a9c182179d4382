/* Activations, with the gradients of their definitions by central differences. */
#include <math.h>

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

void check_act(struct check *c)
{
	static const enum mfk_activation kinds[] = {MFK_GELU_TANH, MFK_GELU_ERF, MFK_SILU,
						    MFK_RELU_SQUARED, MFK_QUICK_GELU};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (int t = 0; t < 3; t++)
			for (int bits = 0; bits < 4; bits++) {
				act(c, check_types[t], kinds[k], bits & 1, bits & 2, 1, 1);
				act(c, check_types[t], kinds[k], bits & 1, bits & 2, 65, 129);
				act(c, check_types[t], kinds[k], bits & 1, bits & 2, 3, 1000);
			}
}
