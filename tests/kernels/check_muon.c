/* What Muon does apart from products. */
#include <math.h>

#include "tests/kernels/check_i.h"

static void momentum(struct check *c, enum mfk_dtype grad, double beta, bool nesterov, int64_t n)
{
	struct mfk_momentum a = {.grad_type = grad,
				 .count = n,
				 .momentum = (float)beta,
				 .rest = (float)(1 - beta),
				 .grad_scale = 0.25f,
				 .nesterov = nesterov};
	struct tensor *g = check_input(c, grad, n, 0, 1), *m = check_input(c, MFK_F32, n, 0, 1);
	struct tensor *update = check_output(c, MFK_F32, n);
	double *ms = check_doubles(c, n), *us = check_doubles(c, n);

	check_shape(c, "%lld, gradients %s, momentum %g%s", (long long)n, check_type_name(grad),
		    beta, nesterov ? ", nesterov" : "");
	for (int64_t i = 0; i < n; i++) {
		const double x = g->x[i] * (double)a.grad_scale;

		ms[i] = m->x[i] + (double)a.rest * (x - m->x[i]);
		us[i] = nesterov ? x + (double)a.momentum * (ms[i] - x) : ms[i];
	}
	a.grad = g->p;
	a.m = m->p;
	a.update = update->p;
	c->ops->momentum(c->ctx, &a);
	check_near(c, "m", m, ms, 5e-7, 1);
	check_near(c, "update", update, us, 5e-7, 1);
}

void check_momentum(struct check *c)
{
	static const int64_t sizes[] = {1, 17, 2049, 70001};

	if (!c->ops->momentum)
		return;
	for (int s = 0; s < 4; s++)
		for (int nesterov = 0; nesterov < 2; nesterov++) {
			momentum(c, MFK_F32, 0.95, nesterov, sizes[s]);
			momentum(c, MFK_BF16, 0.9, nesterov, sizes[s]);
			momentum(c, MFK_F32, 0.25, nesterov, sizes[s]);
		}
}

/* What is between rows stays. */
static void copy_rows(struct check *c, enum mfk_dtype from, enum mfk_dtype to, int64_t rows,
		      int64_t cols, double norm)
{
	struct mfk_copy_rows a = {.from_type = from,
				  .to_type = to,
				  .rows = rows,
				  .cols = cols,
				  .ld_from = cols + 3,
				  .ld_to = cols + 5,
				  .least = 0.5f,
				  .scale = 1.5f};
	const double squares = norm * norm, by = norm < 0 ? 1 : fmax(norm, (double)a.least);
	struct tensor *x = check_input(c, from, rows * a.ld_from, 0, 1);
	struct tensor *y = check_input(c, to, rows * a.ld_to, 0, 1);
	double *ys = check_doubles(c, rows * a.ld_to);
	double *sum = c->backend->device->alloc(c->device, sizeof(*sum));

	check_shape(c, "%lld x %lld, %s to %s, norm %g", (long long)rows, (long long)cols,
		    check_type_name(from), check_type_name(to), norm);
	for (int64_t i = 0; i < rows * a.ld_to; i++) {
		const int64_t row = i / a.ld_to, col = i % a.ld_to;

		ys[i] = col < cols ? (double)a.scale * x->x[row * a.ld_from + col] / by : y->x[i];
	}
	c->backend->device->copy_in(c->ctx, sum, &squares, sizeof(squares));
	a.from = x->p;
	a.to = y->p;
	a.squares = norm < 0 ? NULL : sum;
	c->ops->copy_rows(c->ctx, &a);
	check_near(c, "rows", y, ys, 3e-7, 1);
	c->backend->device->free(c->device, sum);
}

void check_copy_rows(struct check *c)
{
	static const int64_t sizes[][2] = {{1, 1}, {3, 17}, {2, 5003}, {301, 129}};
	static const double norms[] = {-1, 0, 7}; /* nothing divides; the least; it */

	if (!c->ops->copy_rows)
		return;
	for (int s = 0; s < 4; s++)
		for (int n = 0; n < 3; n++) {
			copy_rows(c, MFK_F32, MFK_F32, sizes[s][0], sizes[s][1], norms[n]);
			copy_rows(c, MFK_F32, MFK_BF16, sizes[s][0], sizes[s][1], norms[n]);
			copy_rows(c, MFK_BF16, MFK_F32, sizes[s][0], sizes[s][1], norms[n]);
		}
}
