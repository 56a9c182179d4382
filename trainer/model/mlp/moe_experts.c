/*
 * Experts: probability * fc2(activation(fc1(x))) of the rows that each has. The probability is
 * applied before fc2's weight, and to its bias.
 */
#include "trainer/model/base/eight.h"
#include "trainer/model/mlp/moe_i.h"

/* ---- memory ---- */

/* Parameter p of own expert e lies at one distance from those before it, which the second says. */
static bool follows(const struct mft_param *p, const struct mft_param *first, int64_t e,
		    int64_t *stride)
{
	if (!first)
		return true;
	if (e == 0)
		*stride = (int64_t)first->elements; /* of an expert that is alone */
	if (e == 1)
		*stride = (int64_t)(p->start - first->start);
	return p->start == first->start + (uint64_t)(e * *stride);
}

/* The weights of all own experts. */
static struct mft_eight_weight weights_of(const struct mft_dispatch *d,
					  const struct mft_grouped *linear)
{
	return (struct mft_eight_weight){.first = linear->of_first.weight,
					 .out = linear->of_first.out,
					 .in = linear->of_first.in,
					 .groups = d->experts,
					 .stride = linear->stride};
}

/* The linear of the first own expert, and that the others follow it at one distance. Weights are
 * written by the first pass of a step. */
static int find(struct mft_net *net, const char *prefix, uint32_t layer,
		const struct mft_dispatch *d, struct mft_grouped *ret, struct mfs_error *err)
{
	for (int64_t e = 0; e < d->experts; e++) {
		struct mft_linear l;
		const int r = mft_linear_find(net, prefix, (int32_t)layer, (int32_t)(d->first + e),
					      &l, err);

		if (r)
			return r;
		mft_linear_replaces(net, &l);
		if (e == 0)
			ret->of_first = l;
		if (!follows(l.weight, ret->of_first.weight, e, &ret->stride) ||
		    !follows(l.bias, ret->of_first.bias, e, &ret->bias_stride))
			return mfs_fail(err, -EINVAL,
					"%s of layer %u: experts do not lie at one distance from "
					"one another",
					prefix, layer);
	}
	if (ret->of_first.recipe) {
		const struct mft_eight_weight all = weights_of(d, ret);

		mft_eight_plan(net, &all, d->most);
	}
	return 0;
}

/* fc2 keeps the activation, transposed and in 8 bits, where its weights' gradient is of those. */
static bool keep_active(const struct mft_part *part, const struct mft_dispatch *d,
			struct mft_grouped *fc2, struct mft_part_plan *p)
{
	const struct mft_eight_weight all = weights_of(d, fc2);

	if (!mft_linear_has_eight(&fc2->of_first, MFT_WEIGHT_GRADIENT))
		return false;
	fc2->of_first.kept.part = part;
	fc2->of_first.kept.offset = mft_part_plan_keep(p, mft_eight_kept_bytes(&all, d->most));
	return true;
}

int mft_experts_plan(struct mft_net *net, const struct mft_part *part, const struct mft_dispatch *d,
		     struct mft_experts *e, struct mft_part_plan *p, struct mfs_error *err)
{
	const uint32_t layer = part->layer;
	int rc = find(net, "decoder.layers.mlp.experts.experts.linear_fc1", layer, d, &e->fc1, err);

	if (!rc)
		rc = find(net, "decoder.layers.mlp.experts.experts.linear_fc2", layer, d, &e->fc2,
			  err);
	if (rc)
		return rc;
	e->gated = mfs_args_gated(net->args);
	e->activation = mft_activation(net->args);
	e->act_again = mft_recomputes(net, "moe_act");
	e->hidden = mft_part_plan_keep(p, mft_matrix_bytes(net->io, d->most, e->fc1.of_first.out));
	e->active_is_scratch = e->act_again || keep_active(part, d, &e->fc2, p);
	if (!e->active_is_scratch)
		e->active = mft_part_plan_keep(
			p, mft_matrix_bytes(net->io, d->most, e->fc2.of_first.in));
	return 0;
}

void mft_experts_plan_scratch(const struct mft_net *net, const struct mft_dispatch *d,
			      struct mft_experts *e, struct mft_part_plan *p)
{
	const uint64_t active = mft_matrix_bytes(net->io, d->most, e->fc2.of_first.in);

	if (e->active_is_scratch)
		e->act = mft_part_plan_scratch(p, active);
	e->dactive = mft_part_plan_scratch(p, active);
	e->drow_prob = mft_part_plan_scratch(p, mft_matrix_bytes(MFK_F32, d->most, 1));
}

/* ---- what products are ---- */

/* A product of a linear of all experts. Callers that run it set its operands. Callers that only ask
 * what it needs do not look at them. */
static struct mfk_gemm product_of(const struct mft_net *net, int64_t rows,
				  const struct mft_linear *l, enum mft_product which)
{
	const bool forward = which == MFT_OUTPUT, weights = which == MFT_WEIGHT_GRADIENT;
	struct mfk_gemm g = {
		.m = weights ? l->out : rows,
		.n = forward ? l->out : l->in,
		.k = forward   ? l->in
		     : weights ? rows
			       : l->out,
		.trans_a = weights,
		.trans_b = forward,
		.dtype_a = net->io,
		.dtype_b = net->io,
		.dtype_c = weights ? net->grad : net->io,
		.lda = forward ? l->in : l->out,
		.ldb = l->in,
		.ldc = forward ? l->out : l->in,
		.alpha = 1,
		.alike = net->cache.sequences > 0,
	};

	if (!mft_linear_has_eight(l, which))
		return g;
	g.dtype_a = l->recipe->type[forward ? MFT_X : MFT_DY];
	g.dtype_b = l->recipe->type[weights ? MFT_X : MFT_WEIGHT];
	g.scaling = l->recipe->scaling;
	g.fast_accumulate = l->recipe->fast[which];
	return g;
}

/* Where rows were exchanged the host knows how many each expert has. Weights of 8 bits lie without
 * gaps. */
static struct mfk_gemm_grouped groups_of(const struct mft_net *net, const struct mft_dispatch *d,
					 int64_t rows, const struct mft_grouped *g,
					 enum mft_product which)
{
	const struct mft_linear *l = &g->of_first;
	const bool eight = mft_linear_has_eight(l, which), weights = which == MFT_WEIGHT_GRADIENT;

	return (struct mfk_gemm_grouped){
		.base = product_of(net, rows, l, which),
		.along_k = eight && weights,
		.groups = d->experts,
		.host_offsets = d->wants_host || d->exchanges ? mft_dispatch_offsets(net, d) : NULL,
		.stride = eight && !weights ? l->out * l->in : g->stride,
	};
}

bool mft_experts_want_host(const struct mft_net *net, const struct mft_part *part)
{
	const struct mft_moe *m = part->own;
	const struct mft_grouped *const both[] = {&m->experts.fc1, &m->experts.fc2};

	for (int i = 0; i < 2; i++)
		for (int which = 0; which < MFT_PRODUCTS; which++) {
			const struct mfk_gemm_grouped g =
				groups_of(net, &m->dispatch, m->dispatch.most, both[i],
					  (enum mft_product)which);

			if (net->backend->ops->gemm_grouped_wants_host(net->device, &g))
				return true;
		}
	return false;
}

static struct mfk_gemm_grouped product_now(const struct mft_net *net, const struct mft_part *part,
					   const struct mft_grouped *linear, enum mft_product which)
{
	const struct mft_moe *m = part->own;
	const struct mft_dispatch *d = &m->dispatch;
	struct mfk_gemm_grouped g = groups_of(net, d, mft_dispatch_rows(net, d), linear, which);

	g.offsets = mft_part_kept(net, part, d->offsets);
	return g;
}

/* ---- operands ---- */

/* Rows of all own experts, which become operands of products of outputs and inputs' gradients, and
 * their columns, of those of weights' gradients. */
struct operands {
	struct mft_operand rows, columns;
};

static struct mfk_quantise matrix_of(const struct mft_net *net, const struct mft_part *part,
				     int64_t cols, const void *x)
{
	const struct mft_moe *m = part->own;

	return (struct mfk_quantise){
		.rows = mft_dispatch_rows(net, &m->dispatch),
		.cols = cols,
		.ld = cols,
		.x = x,
		.groups = m->dispatch.experts,
		.offsets = mft_part_kept(net, part, m->dispatch.offsets),
	};
}

static struct operands operands_of(const struct mft_net *net, const struct mft_pass *pass,
				   const struct mft_eight_weight *w, enum mft_factor which,
				   const struct mfk_quantise *x, bool rows, bool columns)
{
	const struct mft_operand plain = {.type = net->io, .at = x->x, .ld = x->cols};
	struct operands ret = {plain, plain};

	if (rows || columns)
		mft_eight_matrix(net, pass, w, which, x, rows ? &ret.rows : NULL,
				 columns ? &ret.columns : NULL);
	return ret;
}

static struct mft_operand weights_operand(const struct mft_net *net, const struct mft_pass *pass,
					  const struct mft_part *part,
					  const struct mft_grouped *linear, enum mft_product which)
{
	const struct mft_moe *m = part->own;
	const struct mft_eight_weight all = weights_of(&m->dispatch, linear);

	if (mft_linear_has_eight(&linear->of_first, which))
		return mft_eight_weight(net, pass, &all, which == MFT_INPUT_GRADIENT);
	return (struct mft_operand){.type = net->io,
				    .at = mft_weight(net, linear->of_first.weight),
				    .ld = linear->of_first.in};
}

/* The gradient of what a linear gave. */
static struct operands gradient_of(const struct mft_net *net, const struct mft_pass *pass,
				   const struct mft_part *part, const struct mft_grouped *linear,
				   const void *dy)
{
	const struct mft_linear *l = &linear->of_first;
	const struct mfk_quantise matrix = matrix_of(net, part, l->out, dy);
	const struct mft_moe *m = part->own;
	const struct mft_eight_weight all = weights_of(&m->dispatch, linear);

	return operands_of(net, pass, &all, MFT_DY, &matrix,
			   mft_linear_has_eight(l, MFT_INPUT_GRADIENT),
			   mft_linear_has_eight(l, MFT_WEIGHT_GRADIENT));
}

static struct mft_operand x_columns(const struct mft_net *net, const struct mft_pass *pass,
				    const struct mft_part *part, const struct mft_grouped *linear,
				    const void *x)
{
	const struct mft_moe *m = part->own;
	const struct mft_linear *l = &linear->of_first;
	const struct mft_eight_weight all = weights_of(&m->dispatch, linear);
	const struct mfk_quantise matrix = matrix_of(net, part, l->in, x);

	if (l->kept.part)
		return mft_eight_kept(net, &all, &l->kept, &matrix);
	return operands_of(net, pass, &all, MFT_X, &matrix, false,
			   mft_linear_has_eight(l, MFT_WEIGHT_GRADIENT))
		.columns;
}

/* ---- products ---- */

/* y[rows, out] = x[rows, in] weight[out, in]^T. y NULL: it is not wanted, only what is kept of x
 * is. */
static void multiply(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const struct mft_grouped *linear, const void *x,
		     void *y)
{
	const struct mft_linear *l = &linear->of_first;
	const bool keeps = l->kept.part && pass->train;
	const struct mft_moe *m = part->own;
	const struct mft_eight_weight all = weights_of(&m->dispatch, linear);
	struct mfk_quantise matrix = matrix_of(net, part, l->in, x);
	struct mfk_gemm_grouped g;
	struct mft_operand b;
	struct operands a;

	if (keeps)
		mft_eight_keep(net, &l->kept, &matrix);
	a = operands_of(net, pass, &all, MFT_X, &matrix, y && mft_linear_has_eight(l, MFT_OUTPUT),
			keeps);
	if (!y)
		return;
	b = weights_operand(net, pass, part, linear, MFT_OUTPUT);
	g = product_now(net, part, linear, MFT_OUTPUT);
	mft_operands_set(&g.base, &a.rows, &b);
	g.base.c = y;
	net->backend->ops->gemm_grouped(pass->ctx, &g);
}

/* dx[rows, in] = dy[rows, out] weight[out, in] */
static void input_gradient(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_part *part, const struct mft_grouped *linear,
			   const struct operands *dy, void *dx)
{
	const struct mft_operand b = weights_operand(net, pass, part, linear, MFT_INPUT_GRADIENT);
	struct mfk_gemm_grouped g = product_now(net, part, linear, MFT_INPUT_GRADIENT);

	mft_operands_set(&g.base, &dy->rows, &b);
	g.base.c = dx;
	net->backend->ops->gemm_grouped(pass->ctx, &g);
}

/* dweight[out, in] += dy[rows, out]^T x[rows, in] */
static void weight_gradient(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_part *part, const struct mft_grouped *linear,
			    const void *x, const struct operands *dy)
{
	const struct mft_linear *l = &linear->of_first;
	const struct mft_operand b = x_columns(net, pass, part, linear, x);
	struct mfk_gemm_grouped g = product_now(net, part, linear, MFT_WEIGHT_GRADIENT);

	mft_operands_set(&g.base, &dy->columns, &b);
	g.base.c = mft_grad(net, l->weight);
	g.base.beta = mft_grad_is_new(net, pass, l->weight) ? 0 : 1;
	net->backend->ops->gemm_grouped(pass->ctx, &g);
}

/* ---- biases ---- */

/* Of the rows of all own experts; fc2's is multiplied by the row's probability, as its input is. */
static struct mfk_group_bias bias_of(const struct mft_net *net, const struct mft_part *part,
				     const struct mft_grouped *linear)
{
	const struct mft_moe *m = part->own;
	const bool scaled = linear == &m->experts.fc2;

	return (struct mfk_group_bias){
		.dtype = net->io,
		.grad = net->grad,
		.rows = mft_dispatch_rows(net, &m->dispatch),
		.cols = linear->of_first.out,
		.groups = m->dispatch.experts,
		.offsets = mft_part_kept(net, part, m->dispatch.offsets),
		.stride = linear->bias_stride,
		.scale = scaled ? mft_dispatch_probs(net, part) : NULL,
		.bias = mft_weight(net, linear->of_first.bias),
	};
}

static void add_bias(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const struct mft_grouped *linear, void *y)
{
	struct mfk_group_bias b;

	if (!linear->of_first.bias)
		return;
	b = bias_of(net, part, linear);
	b.y = y;
	net->backend->ops->group_bias(pass->ctx, &b);
}

/* dprob: probabilities' gradients are added; NULL: the bias was not multiplied by them. */
static void bias_gradient(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_part *part, const struct mft_grouped *linear,
			  const void *dy, float *dprob)
{
	struct mfk_group_bias b;

	if (!linear->of_first.bias)
		return;
	b = bias_of(net, part, linear);
	b.dy = dy;
	b.dbias = mft_grad(net, linear->of_first.bias);
	b.dscale = dprob;
	net->backend->ops->group_bias_backward(pass->ctx, &b);
}

/* ---- forward and backward ---- */

static struct mfk_act act_of(const struct mft_net *net, const struct mft_part *part)
{
	const struct mft_moe *m = part->own;
	const struct mft_experts *e = &m->experts;

	return (struct mfk_act){
		.dtype = net->io,
		.kind = e->activation,
		.gated = e->gated,
		.rows = mft_dispatch_rows(net, &m->dispatch),
		.cols = e->fc2.of_first.in,
		.row_scale = mft_dispatch_probs(net, part),
		.x = mft_part_kept(net, part, e->hidden),
		.y = e->active_is_scratch ? mft_net_scratch(net, e->act)
					  : mft_part_kept(net, part, e->active),
	};
}

void mft_experts_forward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, void *rows, bool wanted)
{
	const struct mft_moe *m = part->own;
	const struct mft_experts *e = &m->experts;
	const struct mfk_act act = act_of(net, part);

	multiply(net, pass, part, &e->fc1, rows, mft_part_kept(net, part, e->hidden));
	add_bias(net, pass, part, &e->fc1, mft_part_kept(net, part, e->hidden));
	if (wanted || !e->act_again)
		net->backend->ops->act(pass->ctx, &act);
	multiply(net, pass, part, &e->fc2, act.y, wanted ? rows : NULL);
	if (wanted)
		add_bias(net, pass, part, &e->fc2, rows);
}

/* The gradient of what fc1 gave takes that one's place. */
float *mft_experts_backward(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_part *part, const void *x, const void *dy)
{
	const struct mft_moe *m = part->own;
	const struct mft_experts *e = &m->experts;
	struct mfk_act act = act_of(net, part);
	struct operands d;
	void *rows, *dactive = mft_net_scratch(net, e->dactive);

	if (e->act_again)
		net->backend->ops->act(pass->ctx, &act);
	rows = mft_dispatch_to_experts(net, pass, part, dy);
	mft_experts_await(net, pass->ctx);
	d = gradient_of(net, pass, part, &e->fc2, rows);
	input_gradient(net, pass, part, &e->fc2, &d, dactive);
	weight_gradient(net, pass, part, &e->fc2, act.y, &d);

	act.dy = dactive;
	act.dx = mft_part_kept(net, part, e->hidden);
	act.drow_scale = mft_net_scratch(net, e->drow_prob);
	net->backend->ops->act_backward(pass->ctx, &act);
	bias_gradient(net, pass, part, &e->fc2, rows, act.drow_scale);
	bias_gradient(net, pass, part, &e->fc1, act.dx, NULL);

	rows = mft_dispatch_to_experts(net, pass, part, x);
	mft_experts_await(net, pass->ctx);
	d = gradient_of(net, pass, part, &e->fc1, act.dx);
	weight_gradient(net, pass, part, &e->fc1, rows, &d);
	input_gradient(net, pass, part, &e->fc1, &d, rows);
	return act.drow_scale;
}
