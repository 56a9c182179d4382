/* LayerNorm and RMSNorm. */
#include <math.h>

#include "formats/base/array.h"
#include "tests/kernels/check_i.h"

struct variant {
	bool layernorm, zero_centered, bias, residual;
};

struct row {
	double mean, rstd;
};

static struct row statistics(const double *x, int64_t n, bool layernorm, double eps)
{
	struct row r = {0, 0};
	double squares = 0;

	for (int64_t i = 0; i < n && layernorm; i++)
		r.mean += x[i] / (double)n;
	for (int64_t i = 0; i < n; i++)
		squares += (x[i] - r.mean) * (x[i] - r.mean);
	r.rstd = 1 / sqrt(squares / (double)n + eps);
	return r;
}

static void forward(struct check *c, enum mfk_dtype type, int64_t rows, int64_t n, struct variant v)
{
	struct mfk_norm a = {.dtype = type,
			     .rows = rows,
			     .cols = n,
			     .layernorm = v.layernorm,
			     .zero_centered = v.zero_centered,
			     .eps = 1e-5f};
	struct tensor *x = check_input(c, type, rows * n, 0.5, 2);
	struct tensor *residual = check_input(c, type, rows * n, 0, 1);
	struct tensor *w = check_input(c, type, n, v.zero_centered ? 0 : 1, 0.3);
	struct tensor *bias = check_input(c, type, n, 0, 1);
	struct tensor *sum = check_output(c, type, rows * n), *y = check_output(c, type, rows * n);
	struct tensor *mean = check_output(c, MFK_F32, rows),
		      *rstd = check_output(c, MFK_F32, rows);
	double *in = check_doubles(c, rows * n), *want = check_doubles(c, rows * n);
	double *means = check_doubles(c, rows), *rstds = check_doubles(c, rows);

	for (int64_t i = 0; i < rows * n; i++)
		in[i] = v.residual ? check_round(type, x->x[i] + residual->x[i]) : x->x[i];
	for (int64_t r = 0; r < rows; r++) {
		struct row s = statistics(in + r * n, n, v.layernorm, (double)a.eps);

		means[r] = s.mean;
		rstds[r] = s.rstd;
		for (int64_t i = 0; i < n; i++)
			want[r * n + i] =
				(in[r * n + i] - s.mean) * s.rstd * (w->x[i] + v.zero_centered) +
				(v.bias ? bias->x[i] : 0);
	}
	a.x = x->p;
	a.residual = v.residual ? residual->p : NULL;
	a.weight = w->p;
	a.bias = v.bias ? bias->p : NULL;
	a.sum = sum->p;
	a.y = y->p;
	a.mean = mean->p;
	a.rstd = rstd->p;
	c->ops->norm(c->ctx, &a);
	check_near(c, "y", y, want, 2e-6, 1);
	check_near(c, "rstd", rstd, rstds, 4e-6, 0);
	if (v.layernorm)
		check_near(c, "mean", mean, means, 4e-6, 1);
	if (!v.residual)
		return;
	check_near(c, "sum", sum, in, 0, 0);
	a.sum = x->p; /* the residual stream in place */
	c->ops->norm(c->ctx, &a);
	check_near(c, "sum in place", x, in, 0, 0);
}

static void backward(struct check *c, enum mfk_dtype type, enum mfk_dtype grad, int64_t rows,
		     int64_t n, struct variant v)
{
	struct mfk_norm_backward a = {.dtype = type,
				      .grad = grad,
				      .rows = rows,
				      .cols = n,
				      .layernorm = v.layernorm,
				      .zero_centered = v.zero_centered};
	struct tensor *x = check_input(c, type, rows * n, 0.5, 2);
	struct tensor *dy = check_input(c, type, rows * n, 0, 1);
	struct tensor *w = check_input(c, type, n, v.zero_centered ? 0 : 1, 0.3);
	struct tensor *dx =
		v.residual ? check_input(c, type, rows * n, 0, 1) : check_output(c, type, rows * n);
	struct tensor *dw = check_input(c, grad, n, 0, 1), *db = check_input(c, grad, n, 0, 1);
	double *means = check_doubles(c, rows), *rstds = check_doubles(c, rows);
	double *dxs = check_doubles(c, rows * n);
	double *dws = check_doubles(c, n), *dbs = check_doubles(c, n);

	for (int64_t i = 0; i < n; i++) {
		dws[i] = dw->x[i];
		dbs[i] = db->x[i];
	}
	for (int64_t r = 0; r < rows; r++) {
		const double *xs = x->x + r * n, *dys = dy->x + r * n;
		struct row s = statistics(xs, n, v.layernorm, 1e-5);
		double g = 0, gh = 0;

		/* As the device keeps them. */
		means[r] = s.mean = check_round(MFK_F32, s.mean);
		rstds[r] = s.rstd = check_round(MFK_F32, s.rstd);
		for (int64_t i = 0; i < n; i++) {
			double h = (xs[i] - s.mean) * s.rstd;

			g += dys[i] * (w->x[i] + v.zero_centered) / (double)n;
			gh += dys[i] * (w->x[i] + v.zero_centered) * h / (double)n;
			dws[i] += dys[i] * h;
			dbs[i] += dys[i];
		}
		for (int64_t i = 0; i < n; i++)
			dxs[r * n + i] =
				s.rstd * (dys[i] * (w->x[i] + v.zero_centered) -
					  (v.layernorm ? g : 0) - (xs[i] - s.mean) * s.rstd * gh) +
				(v.residual ? dx->x[r * n + i] : 0);
	}
	a.x = x->p;
	a.weight = w->p;
	a.dy = dy->p;
	a.dx = dx->p;
	a.dresidual = v.residual ? dx->p : NULL;
	a.mean = check_values(c, MFK_F32, rows, means)->p;
	a.rstd = check_values(c, MFK_F32, rows, rstds)->p;
	a.dweight = dw->p;
	a.dbias = v.bias ? db->p : NULL;
	c->ops->norm_backward(c->ctx, &a);
	check_near(c, "dx", dx, dxs, 1e-5, 1);
	check_near(c, "dweight", dw, dws, 1e-5, 1);
	if (v.bias)
		check_near(c, "dbias", db, dbs, 1e-5, 1);
}

void check_norm(struct check *c)
{
	static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {65, 129}, {517, 64}, {33, 1024}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(shapes); i++)
		for (int t = 0; t < 3; t++)
			for (int bits = 0; bits < 16; bits++) {
				struct variant v = {bits & 1, bits & 2, bits & 4, bits & 8};

				if (shapes[i][1] == 1 && v.layernorm)
					continue; /* a variance of 0 has no direction */
				if (i >= 3 && check_below(c, 4))
					continue; /* of the large ones, some */
				check_shape(c, "%lld x %lld %s, %s%s%s%s", (long long)shapes[i][0],
					    (long long)shapes[i][1],
					    check_type_name(check_types[t]),
					    v.layernorm ? "LayerNorm" : "RMSNorm",
					    v.zero_centered ? ", zero-centred" : "",
					    v.bias ? ", bias" : "", v.residual ? ", residual" : "");
				if (c->ops->norm)
					forward(c, check_types[t], shapes[i][0], shapes[i][1], v);
				if (c->ops->norm_backward)
					backward(c, check_types[t],
						 bits & 1 ? MFK_F32 : check_types[t], shapes[i][0],
						 shapes[i][1], v);
			}
}
