/* AdamW, of all types of state. */
#include <math.h>

#include "tests/kernels/check_i.h"

static void adamw(struct check *c, enum mfk_dtype weight, bool master, enum mfk_dtype grad,
		  enum mfk_dtype state, bool l2, int64_t n)
{
	struct mfk_adamw a = {.weight_type = weight,
			      .grad_type = grad,
			      .main_type = MFK_F32,
			      .m_type = state,
			      .v_type = state,
			      .count = n,
			      .lr = 1e-2f,
			      .beta1 = 0.9f,
			      .beta2 = 0.95f,
			      .eps = 1e-8f,
			      .wd = 0.1f,
			      .correction1 = 1 - 0.9f * 0.9f,
			      .correction2 = 1 - 0.95f * 0.95f,
			      .grad_scale = 0.25f,
			      .l2 = l2};
	struct tensor *w = master ? check_output(c, weight, n) : check_input(c, weight, n, 0, 1);
	struct tensor *main = check_input(c, MFK_F32, n, 0, 1);
	struct tensor *g = check_input(c, grad, n, 0, 1), *m = check_input(c, state, n, 0, 0.1);
	double *vs = check_doubles(c, n), *ws = check_doubles(c, n), *ms = check_doubles(c, n);
	double summand = 0; /* the greatest that m is added up of: they may cancel */
	struct tensor *v;

	check_shape(c, "%lld, weights %s%s, gradients %s, state %s%s", (long long)n,
		    check_type_name(weight), master ? " with main parameters" : "",
		    check_type_name(grad), check_type_name(state), l2 ? ", L2" : "");
	for (int64_t i = 0; i < n; i++)
		vs[i] = 0.01 + check_uniform(c);
	v = check_values(c, state, n, vs);
	for (int64_t i = 0; i < n; i++) {
		double x = master ? main->x[i] : w->x[i];
		double d = g->x[i] * (double)a.grad_scale + (l2 ? (double)a.wd * x : 0);

		summand = fmax(summand, fabs((double)a.beta1 * m->x[i]));
		ms[i] = (double)a.beta1 * m->x[i] + (1 - (double)a.beta1) * d;
		vs[i] = (double)a.beta2 * v->x[i] + (1 - (double)a.beta2) * d * d;
		ws[i] = x - (double)a.lr *
				    (ms[i] / (double)a.correction1 /
					     (sqrt(vs[i] / (double)a.correction2) + (double)a.eps) +
				     (l2 ? 0 : (double)a.wd * x));
	}
	a.weight = w->p;
	a.main = master ? main->p : NULL;
	a.grad = g->p;
	a.m = m->p;
	a.v = v->p;
	c->ops->adamw(c->ctx, &a);
	check_near(c, "weight", w, ws, 1e-6, 1);
	check_near(c, "m", m, ms, 5e-7, summand);
	check_near(c, "v", v, vs, 1e-6, 0);
	if (master)
		check_near(c, "main", main, ws, 1e-6, 1);
}

void check_adamw(struct check *c)
{
	static const int64_t sizes[] = {1, 17, 2049, 70001};

	if (!c->ops->adamw)
		return;
	for (int s = 0; s < 4; s++)
		for (int l2 = 0; l2 < 2; l2++) {
			adamw(c, MFK_F32, false, MFK_F32, MFK_F32, l2, sizes[s]);
			adamw(c, MFK_BF16, true, MFK_F32, MFK_F32, l2, sizes[s]);
			adamw(c, MFK_F16, true, MFK_F32, MFK_F32, l2, sizes[s]);
			adamw(c, MFK_BF16, true, MFK_BF16, MFK_BF16, l2, sizes[s]);
		}
}
