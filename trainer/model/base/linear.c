/* What attention, MLPs and the head are made of: linears and norms of named parameters. */
#include <stdio.h>

#include "formats/ckpt/names.h"
#include "trainer/model/base/eight.h"
#include "trainer/model/base/linear.h"
#include "trainer/model/base/part.h"
#include "trainer/model/base/tensor_parallel.h"

static const struct mft_param *find(const struct mft_net *net, const char *prefix, const char *leaf,
				    int32_t layer, int32_t expert)
{
	char name[MFS_NAME_MAX];

	snprintf(name, sizeof(name), "%s.%s", prefix, leaf);
	return mft_params_find(net->params, name, layer, expert);
}

static int missing(const char *prefix, int32_t layer, struct mfs_error *err)
{
	return mfs_fail(err, -ENODATA, "the model has no %s.weight in layer %d", prefix, layer);
}

const void *mft_weight(const struct mft_net *net, const struct mft_param *p)
{
	return p ? mft_param_weights(net->params, p) : NULL;
}

void *mft_grad(const struct mft_net *net, const struct mft_param *p)
{
	return p ? mft_param_grads(net->params, p) : NULL;
}

/* What is whole for a pass alone begins anew with each. */
bool mft_grad_is_new(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_param *p)
{
	const struct mft_bucket *b = &net->params->buckets[p->bucket];

	return !pass->adds && (pass->info->first || mft_bucket_grads_part(net->params, b));
}

/* ---- linears ---- */

/* Of the processes that share a parameter. */
static bool is_first(const struct mft_net *net, const struct mft_param *p)
{
	return !(p->is_expert ? net->parallel->place.etp : net->parallel->place.tp);
}

/* The whole weight, of which a linear may be a part. */
static struct mft_eight_weight whole_weight(const struct mft_linear *l)
{
	return (struct mft_eight_weight){.first = l->weight,
					 .out = mft_param_size(l->weight, 0),
					 .in = mft_param_size(l->weight, 1),
					 .groups = 1};
}

static int find_recipe(const struct mft_net *net, const char *prefix, int32_t layer, bool expert,
		       struct mft_linear *l, struct mfs_error *err)
{
	const struct mft_eight_weight weight = whole_weight(l);

	l->recipe = mft_eight_recipe(net, prefix, layer);
	if (l->recipe && !expert)
		mft_eight_plan(net, &weight, net->tokens);
	return l->recipe ? mft_eight_check(prefix, layer, l->out, l->in, err) : 0;
}

/* All but its recipe. */
static int find_linear(const struct mft_net *net, const char *prefix, int32_t layer, int32_t expert,
		       struct mft_linear *ret, struct mfs_error *err)
{
	const struct mft_param *weight = find(net, prefix, "weight", layer, expert);

	if (!weight)
		return missing(prefix, layer, err);
	*ret = (struct mft_linear){
		.weight = weight,
		.bias = find(net, prefix, "bias", layer, expert),
		.biased = weight->part.split != MFS_TP_COLS || is_first(net, weight),
		.out = mft_param_size(weight, 0),
		.in = mft_param_size(weight, 1),
	};
	return 0;
}

int mft_linear_find(const struct mft_net *net, const char *prefix, int32_t layer, int32_t expert,
		    struct mft_linear *ret, struct mfs_error *err)
{
	const int r = find_linear(net, prefix, layer, expert, ret, err);

	return r ? r : find_recipe(net, prefix, layer, expert >= 0, ret, err);
}

int mft_linear_find_whole(const struct mft_net *net, const char *prefix, int32_t layer,
			  struct mft_linear *ret, struct mfs_error *err)
{
	const int r = find_linear(net, prefix, layer, -1, ret, err);

	if (r)
		return r;
	if (!mft_is_divided(net) || ret->weight->part.split == MFS_TP_NONE)
		return find_recipe(net, prefix, layer, false, ret, err);
	ret->gathered = true;
	ret->out *= net->parallel->size.tp;
	return 0;
}

/* The address of an element of a weight, or of a bias. */
static const void *element(enum mfk_dtype type, const void *p, int64_t number)
{
	return p ? (const char *)p + (size_t)number * mfk_dtype_size(type) : NULL;
}

/* Elements between rows of the weight. */
static int64_t weight_row(const struct mft_linear *l)
{
	return l->row ? l->row : l->in;
}

static int64_t first_weight(const struct mft_linear *l)
{
	return l->first * weight_row(l) + l->col;
}

static const void *weight_of(const struct mft_net *net, const struct mft_linear *l)
{
	const void *weight =
		l->gathered ? mft_net_scratch(net, l->whole) : mft_weight(net, l->weight);

	return element(net->io, weight, first_weight(l));
}

static const void *bias_of(const struct mft_net *net, const struct mft_linear *l)
{
	return l->biased ? element(net->io, mft_weight(net, l->bias), l->first) : NULL;
}

static void *grad_of(const struct mft_net *net, const struct mft_linear *l)
{
	void *grad = l->gathered ? mft_net_scratch(net, l->term) : mft_grad(net, l->weight);

	return (void *)(uintptr_t)element(net->grad, grad, first_weight(l));
}

/* A term of a gradient is of this pass. */
static bool writes_grad(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_linear *l)
{
	return l->gathered || (l->replaces && mft_grad_is_new(net, pass, l->weight));
}

static void *bias_grad_of(const struct mft_net *net, const struct mft_linear *l)
{
	return (void *)(uintptr_t)element(net->grad, mft_grad(net, l->bias), l->first);
}

static int64_t row_of(const struct mft_linear *l)
{
	return l->ld ? l->ld : l->out;
}

/* ---- operands ---- */

static struct mft_operand io_operand(const struct mft_net *net, const void *at, int64_t ld)
{
	return (struct mft_operand){.type = net->io, .at = at, .ld = ld};
}

/* Of which outputs and inputs' gradients are products. */
static struct mft_operand weight_operand(const struct mft_net *net, const struct mft_pass *pass,
					 const struct mft_linear *l, enum mft_product which)
{
	const bool transposed = which == MFT_INPUT_GRADIENT;
	const struct mft_eight_weight whole = whole_weight(l);
	struct mft_operand w;

	if (!mft_linear_has_eight(l, which))
		return io_operand(net, weight_of(net, l), weight_row(l));
	w = mft_eight_weight(net, pass, &whole, transposed);
	w.at = element(w.type, w.at,
		       transposed ? l->col * w.ld + l->first : l->first * w.ld + l->col);
	return w;
}

bool mft_linear_keep(const struct mft_net *net, const struct mft_part *part, struct mft_linear *l,
		     struct mft_part_plan *plan)
{
	const struct mft_eight_weight weight = whole_weight(l);

	if (!mft_linear_has_eight(l, MFT_WEIGHT_GRADIENT))
		return false;
	l->kept.part = part;
	l->kept.offset = mft_part_plan_keep(plan, mft_eight_kept_bytes(&weight, net->tokens));
	return true;
}

bool mft_linear_keep_stream(const struct mft_net *net, const struct mft_part *part,
			    struct mft_linear *l, struct mft_part_plan *plan)
{
	return net->rows == net->tokens && mft_linear_keep(net, part, l, plan);
}

/* The input of forward, and what is kept of it. output: it is an operand of a product. */
static struct mft_operand x_rows(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_linear *l, int64_t rows, const void *x,
				 bool output)
{
	const bool keeps = l->kept.part && pass->train;
	const struct mft_eight_weight weight = whole_weight(l);
	struct mfk_quantise matrix = {.rows = rows, .cols = l->in, .ld = l->in, .x = x};
	struct mft_operand ret = io_operand(net, x, l->in), columns;

	if (!mft_linear_has_eight(l, MFT_OUTPUT) || (!output && !keeps))
		return ret;
	if (keeps)
		mft_eight_keep(net, &l->kept, &matrix);
	mft_eight_matrix(net, pass, &weight, MFT_X, &matrix, output ? &ret : NULL,
			 keeps ? &columns : NULL);
	return ret;
}

static struct mft_operand x_columns(const struct mft_net *net, const struct mft_pass *pass,
				    const struct mft_linear *l, int64_t rows, const void *x)
{
	const struct mfk_quantise matrix = {.rows = rows, .cols = l->in, .ld = l->in, .x = x};
	const struct mft_eight_weight weight = whole_weight(l);
	struct mft_operand ret;

	if (!mft_linear_has_eight(l, MFT_WEIGHT_GRADIENT))
		return io_operand(net, x, l->in);
	if (l->kept.part)
		return mft_eight_kept(net, &weight, &l->kept, &matrix);
	mft_eight_matrix(net, pass, &weight, MFT_X, &matrix, NULL, &ret);
	return ret;
}

/* The gradient of what a linear gave, for its two products in backward. */
struct gradient {
	struct mft_operand rows, columns;
};

static struct gradient gradient_of(const struct mft_net *net, const struct mft_pass *pass,
				   const struct mft_linear *l, int64_t rows, const void *dy)
{
	const struct mfk_quantise matrix = {.rows = rows, .cols = l->out, .ld = row_of(l), .x = dy};
	const struct mft_eight_weight whole = whole_weight(l);
	const bool input = mft_linear_has_eight(l, MFT_INPUT_GRADIENT);
	const bool weight = mft_linear_has_eight(l, MFT_WEIGHT_GRADIENT);
	struct gradient d = {io_operand(net, dy, row_of(l)), io_operand(net, dy, row_of(l))};

	if (input || weight)
		mft_eight_matrix(net, pass, &whole, MFT_DY, &matrix, input ? &d.rows : NULL,
				 weight ? &d.columns : NULL);
	return d;
}

/* ---- products ---- */

/* What a product has of its linear's recipe. */
static void apply_recipe(const struct mft_linear *l, enum mft_product which, struct mfk_gemm *g)
{
	if (!mft_linear_has_eight(l, which))
		return;
	g->scaling = l->recipe->scaling;
	g->fast_accumulate = l->recipe->fast[which];
}

static struct mfk_gemm output_of(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_linear *l, int64_t rows, const void *x, void *y)
{
	const struct mft_operand a = x_rows(net, pass, l, rows, x, true);
	const struct mft_operand b = weight_operand(net, pass, l, MFT_OUTPUT);
	struct mfk_gemm g = {
		.m = rows,
		.n = l->out,
		.k = l->in,
		.trans_b = true,
		.dtype_c = net->io,
		.dtype_bias = net->io,
		.c = y,
		.ldc = row_of(l),
		.bias = bias_of(net, l),
		.alpha = 1,
		.beta = l->sums,
		.alike = net->cache.sequences > 0,
	};

	mft_operands_set(&g, &a, &b);
	apply_recipe(l, MFT_OUTPUT, &g);
	return g;
}

void mft_linear_forward(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_linear *l, int64_t rows, const void *x, void *y)
{
	struct mfk_gemm product;

	if (!y) {
		x_rows(net, pass, l, rows, x, false);
		return;
	}
	product = output_of(net, pass, l, rows, x, y);
	net->backend->ops->gemm(pass->ctx, &product);
}

void mft_linear_forward_act(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_linear *l, const void *x, const struct mfk_act *act)
{
	const struct mfk_gemm product =
		output_of(net, pass, l, act->rows, x, (void *)(uintptr_t)act->x);

	net->backend->ops->gemm_act(pass->ctx, &product, act);
}

void mft_linear_replaces(struct mft_net *net, struct mft_linear *l)
{
	l->replaces = true;
	net->replaced[l->weight - net->params->list] = true;
}

/* dx[rows, in] = dy[rows, out] weight[out, in] */
static struct mfk_gemm input_gradient(const struct mft_net *net, const struct mft_pass *pass,
				      const struct mft_linear *l, int64_t rows,
				      const struct gradient *dy, void *dx)
{
	const struct mft_operand b = weight_operand(net, pass, l, MFT_INPUT_GRADIENT);
	struct mfk_gemm g = {
		.m = rows,
		.n = l->in,
		.k = l->out,
		.dtype_c = net->io,
		.c = dx,
		.ldc = l->in,
		.alpha = 1,
		.beta = l->adds,
	};

	mft_operands_set(&g, &dy->rows, &b);
	apply_recipe(l, MFT_INPUT_GRADIENT, &g);
	return g;
}

/* dweight[out, in] += dy[rows, out]^T x[rows, in] */
static void weight_gradient(const struct mft_net *net, const struct mft_pass *pass,
			    const struct mft_linear *l, int64_t rows, const void *x,
			    const struct gradient *dy)
{
	const struct mft_operand b = x_columns(net, pass, l, rows, x);
	struct mfk_gemm g = {
		.m = l->out,
		.n = l->in,
		.k = mft_linear_has_eight(l, MFT_WEIGHT_GRADIENT) ? mft_eight_columns(rows) : rows,
		.trans_a = true,
		.dtype_c = net->grad,
		.c = grad_of(net, l),
		.ldc = weight_row(l),
		.alpha = 1,
		.beta = writes_grad(net, pass, l) ? 0 : 1,
	};

	mft_operands_set(&g, &dy->columns, &b);
	apply_recipe(l, MFT_WEIGHT_GRADIENT, &g);
	net->backend->ops->gemm(pass->ctx, &g);
}

static void bias_gradient(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_linear *l, int64_t rows, const void *dy)
{
	if (l->bias)
		net->backend->ops->bias_backward(pass->ctx, net->io, net->grad,
						 bias_grad_of(net, l), dy, rows, l->out);
}

void mft_linear_backward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_linear *l, int64_t rows, const void *x, const void *dy,
			 void *dx)
{
	const struct gradient d = gradient_of(net, pass, l, rows, dy);

	if (dx) {
		const struct mfk_gemm product = input_gradient(net, pass, l, rows, &d, dx);

		net->backend->ops->gemm(pass->ctx, &product);
	}
	if (l->ends_dx)
		mft_dx_sum_begin(net, pass);
	weight_gradient(net, pass, l, rows, x, &d);
	bias_gradient(net, pass, l, rows, dy);
}

void mft_linear_backward_act(const struct mft_net *net, const struct mft_pass *pass,
			     const struct mft_linear *l, const void *dy, const struct mfk_act *act)
{
	const struct gradient d = gradient_of(net, pass, l, act->rows, dy);
	const struct mfk_gemm product =
		input_gradient(net, pass, l, act->rows, &d, (void *)(uintptr_t)act->dy);

	net->backend->ops->gemm_act_backward(pass->ctx, &product, act);
	weight_gradient(net, pass, l, act->rows, act->y, &d);
	bias_gradient(net, pass, l, act->rows, dy);
}

/* ---- weights that are gathered ---- */

void mft_linear_gather(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_linear *l)
{
	if (l->gathered)
		mft_tensor_gather(net, pass->ctx, net->io, mft_net_scratch(net, l->whole),
				  mft_weight(net, l->weight), l->weight->elements);
}

void mft_linear_scatter(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_linear *l)
{
	const uint64_t count = l->weight ? l->weight->elements : 0;
	void *grad = mft_grad(net, l->weight);
	char *term, *own;

	if (!l->gathered)
		return;
	term = mft_net_scratch(net, l->term);
	own = term + net->parallel->place.tp * count * mfk_dtype_size(net->grad);
	mft_tensor_scatter(net, pass->ctx, net->grad, own, term, count);
	if (mft_grad_is_new(net, pass, l->weight))
		net->backend->device->copy(pass->ctx, grad, own, count * mfk_dtype_size(net->grad));
	else
		net->backend->ops->add(pass->ctx, net->grad, grad, grad, own, (int64_t)count);
}

/* ---- norms ---- */

int mft_norm_find(const struct mft_net *net, const char *prefix, int32_t layer,
		  struct mft_norm *ret, struct mfs_error *err)
{
	const struct mft_param *weight = find(net, prefix, "weight", layer, -1);

	if (!weight)
		return missing(prefix, layer, err);
	*ret = (struct mft_norm){
		.weight = weight,
		.bias = find(net, prefix, "bias", layer, -1),
		.cols = mft_param_size(weight, 0),
	};
	return 0;
}

uint64_t mft_norm_stats_bytes(int64_t rows)
{
	return mft_matrix_bytes(MFK_F32, 2, rows);
}

void mft_norm_forward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_norm *n, int64_t rows, const void *x, const void *residual,
		      void *sum, void *y, float *stats)
{
	const struct mfk_norm norm = {
		.dtype = net->io,
		.rows = rows,
		.cols = n->cols,
		.layernorm = net->args->layernorm,
		.zero_centered = net->args->zero_centered_gamma,
		.eps = (float)net->args->norm_epsilon,
		.x = x,
		.residual = residual,
		.weight = mft_weight(net, n->weight),
		.bias = mft_weight(net, n->bias),
		.sum = sum,
		.y = y,
		.mean = stats,
		.rstd = stats + rows,
	};

	net->backend->ops->norm(pass->ctx, &norm);
}

void mft_norm_backward(const struct mft_net *net, const struct mft_pass *pass,
		       const struct mft_norm *n, int64_t rows, const void *x, const float *stats,
		       const void *dy, const void *dresidual, void *dx)
{
	const struct mfk_norm_backward norm = {
		.dtype = net->io,
		.grad = net->grad,
		.rows = rows,
		.cols = n->cols,
		.layernorm = net->args->layernorm,
		.zero_centered = net->args->zero_centered_gamma,
		.x = x,
		.weight = mft_weight(net, n->weight),
		.dy = dy,
		.dresidual = dresidual,
		.mean = stats,
		.rstd = stats + rows,
		.dx = dx,
		.dweight = mft_grad(net, n->weight),
		.dbias = mft_grad(net, n->bias),
	};

	net->backend->ops->norm_backward(pass->ctx, &norm);
}
