/* SGD, with momentum and without. */
#include <math.h>

#include "tests/kernels/check_i.h"

static void sgd(struct check *c, enum mfk_dtype weight, bool master, enum mfk_dtype grad,
		bool momentum, int64_t n)
{
	struct mfk_sgd a = {.weight_type = weight,
			    .grad_type = grad,
			    .main_type = MFK_F32,
			    .m_type = MFK_F32,
			    .count = n,
			    .lr = 1e-2f,
			    .momentum = 0.9f,
			    .wd = 0.1f,
			    .grad_scale = 0.25f};
	struct tensor *w = master ? check_output(c, weight, n) : check_input(c, weight, n, 0, 1);
	struct tensor *main = check_input(c, MFK_F32, n, 0, 1);
	struct tensor *g = check_input(c, grad, n, 0, 1), *m = check_input(c, MFK_F32, n, 0, 1);
	double *ws = check_doubles(c, n), *ms = check_doubles(c, n);
	double summand = 0; /* the greatest that m is added up of: they may cancel */

	check_shape(c, "%lld, weights %s%s, gradients %s%s", (long long)n, check_type_name(weight),
		    master ? " with main parameters" : "", check_type_name(grad),
		    momentum ? ", momentum" : "");
	for (int64_t i = 0; i < n; i++) {
		double x = master ? main->x[i] : w->x[i];
		double d = g->x[i] * (double)a.grad_scale + (double)a.wd * x;

		summand = fmax(summand, fmax(fabs(m->x[i]), fabs(x)));
		ms[i] = momentum ? (double)a.momentum * m->x[i] + d : m->x[i];
		ws[i] = x - (double)a.lr * (momentum ? ms[i] : d);
	}
	a.weight = w->p;
	a.main = master ? main->p : NULL;
	a.grad = g->p;
	a.m = momentum ? m->p : NULL;
	c->ops->sgd(c->ctx, &a);
	check_near(c, "weight", w, ws, 1e-6, 1);
	check_near(c, "m", m, ms, 5e-7, summand);
	if (master)
		check_near(c, "main", main, ws, 1e-6, 1);
}

void check_sgd(struct check *c)
{
	static const int64_t sizes[] = {1, 17, 2049, 70001};

	if (!c->ops->sgd)
		return;
	for (int s = 0; s < 4; s++)
		for (int momentum = 0; momentum < 2; momentum++) {
			sgd(c, MFK_F32, false, MFK_F32, momentum, sizes[s]);
			sgd(c, MFK_BF16, true, MFK_F32, momentum, sizes[s]);
			sgd(c, MFK_F16, true, MFK_F16, momentum, sizes[s]);
			sgd(c, MFK_BF16, true, MFK_BF16, momentum, sizes[s]);
		}
}
