/*
 * The router of a mixture of experts.
 *
 * Auxiliary losses are means over a microbatch. Megatron scales their gradients by the loss scale
 * over the number of microbatches, and, with per-token loss, by the loss scale times the
 * microbatch's tokens (core/pipeline_parallel/schedules.py, core/transformer/moe/router.py).
 *
 * With --sequence-parallel a process has some rows of the stream, and logits of these. They are
 * gathered, so that each knows the choices and the losses of all tokens of the microbatch: logits
 * are small compared with rows. Backward is of the process's rows alone.
 *
 * Source: megatron/core/transformer/moe/router.py.
 */
#include "formats/base/str.h"
#include "trainer/model/base/dropout.h"
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/mlp/moe_i.h"

/* ---- what can be computed ---- */

static int check_choice(const struct mft_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;
	const bool grouped = a->moe_router_group_topk != MFS_ABSENT;
	const int64_t groups = a->moe_router_num_groups, take = a->moe_router_group_topk;

	if (!mfs_str_is(a->moe_router_score_function, "softmax") &&
	    !mfs_str_is(a->moe_router_score_function, "sigmoid") &&
	    !mfs_str_is(a->moe_router_score_function, "sqrtsoftplus"))
		return mfs_fail(err, -ENOTSUP,
				"--moe-router-score-function: expected softmax, sigmoid or "
				"sqrtsoftplus, found %s",
				a->moe_router_score_function);
	if (a->moe_router_enable_expert_bias && mfs_str_is(a->moe_router_score_function, "softmax"))
		return mfs_fail(
			err, -EINVAL,
			"--moe-router-enable-expert-bias: expected "
			"--moe-router-score-function sigmoid or sqrtsoftplus, found softmax");
	if (a->moe_router_topk > a->num_experts)
		return mfs_fail(err, -EINVAL,
				"--moe-router-topk: expected at most %lld, found %lld",
				(long long)a->num_experts, (long long)a->moe_router_topk);
	if (grouped &&
	    (groups == MFS_ABSENT || a->num_experts % groups || take > groups ||
	     a->moe_router_topk < take || a->moe_router_topk > take * (a->num_experts / groups) ||
	     a->moe_router_topk / take > a->num_experts / groups))
		return mfs_fail(err, -EINVAL,
				"--moe-router-group-topk %lld: %lld experts in %lld groups cannot "
				"give %lld of them",
				(long long)take, (long long)a->num_experts, (long long)groups,
				(long long)a->moe_router_topk);
	if (net->config->moe_sinkhorn && !net->cache.sequences && net->seq % net->parallel->size.tp)
		return mfs_fail(
			err, -EINVAL,
			"--moe-router-load-balancing-type sinkhorn: expected sequences that "
			"--tensor-model-parallel-size %u divides, found %lld tokens",
			net->parallel->size.tp, (long long)net->seq);
	return 0;
}

/* ---- memory ---- */

static int64_t count_layers(const struct mfs_megatron_args *a)
{
	int64_t count = 0;

	for (int64_t i = 0; i < a->num_layers; i++)
		count += mfs_args_is_moe(a, i);
	if (a->mtp_num_layers > 0 && mfs_args_is_moe(a, a->num_layers - 1))
		count += a->mtp_num_layers;
	return count;
}

static uint64_t numbers(int64_t rows, int64_t cols)
{
	return mft_matrix_bytes(MFK_F32, rows, cols); /* int32 have the size of fp32 */
}

static void plan_kept(const struct mft_net *net, struct mft_router *r, struct mft_part_plan *p)
{
	const int64_t choices = net->tokens * r->top_k;

	r->logits = mft_part_plan_keep(p, mft_matrix_bytes(r->type, net->tokens, r->experts));
	r->expert = mft_part_plan_keep(p, numbers(choices, 1));
	r->prob = mft_part_plan_keep(p, numbers(choices, 1));
}

/* Forward's and backward's lie in one place. */
void mft_router_plan_scratch(const struct mft_net *net, struct mft_router *r,
			     struct mft_part_plan *p)
{
	const uint64_t begin = p->scratch;

	r->losses = mft_part_plan_scratch(p, numbers(2, net->tokens));
	mft_balance_plan_scratch(net, r, p);
	if (net->config->moe_sinkhorn)
		r->key = mft_part_plan_scratch(p, numbers(net->tokens, r->experts));
	p->scratch = begin;
	r->dlogits = mft_part_plan_scratch(p, mft_matrix_bytes(r->type, net->rows, r->experts));
	if (r->type == net->io)
		return;
	r->wide = mft_part_plan_scratch(p, numbers(net->rows, net->hidden));
	r->wide_weight = mft_part_plan_scratch(p, numbers(r->experts, net->hidden));
}

int mft_router_plan(struct mft_net *net, uint32_t layer, struct mft_router *r,
		    struct mft_part_plan *p, struct mfs_error *err)
{
	int rc = check_choice(net, err);

	if (!rc)
		rc = mft_linear_find(net, "decoder.layers.mlp.router", (int32_t)layer, -1,
				     &r->linear, err);
	if (rc)
		return rc;
	mft_linear_replaces(net, &r->linear);
	mft_net_gradient_is_term(net, r->linear.weight);
	mft_net_gradient_is_term(net, r->linear.bias);
	r->experts = net->args->num_experts;
	r->top_k = net->args->moe_router_topk;
	r->layers = count_layers(net->args);
	/* fp64 is fp32 here. */
	r->type = net->config->moe_router_dtype ? MFK_F32 : net->io;
	r->bias = mft_params_find_buffer(net->params, "decoder.layers.mlp.router.expert_bias",
					 (int32_t)layer);
	if (r->bias)
		r->totals = mft_memory_add(net->memory, MFT_MEMORY_BATCH,
					   (uint64_t)r->experts * sizeof(int32_t));
	r->z_coeff = net->config->moe_z_loss_coeff;
	plan_kept(net, r, p);
	mft_balance_plan(net, r, p);
	return 0;
}

void mft_router_begin(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_router *r)
{
	if (r->bias)
		net->backend->device->zero(ctx, mft_net_at(net, r->totals),
					   (size_t)r->experts * sizeof(int32_t));
}

/* ---- logits ---- */

/* Logits of the process's rows, in the router's type, and then of all tokens. */
static void multiply(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_router *r, const void *x, void *logits)
{
	const int64_t own = net->first_row * r->experts, count = net->rows * r->experts;
	void *at = (char *)logits + (size_t)own * mfk_dtype_size(r->type);
	const struct mfk_gemm product = {
		.m = net->rows,
		.n = r->experts,
		.k = net->hidden,
		.trans_b = true,
		.dtype_a = net->io,
		.dtype_b = net->io,
		.dtype_c = r->type,
		.dtype_bias = net->io,
		.a = x,
		.b = mft_weight(net, r->linear.weight),
		.c = at,
		.lda = net->hidden,
		.ldb = net->hidden,
		.ldc = r->experts,
		.bias = mft_weight(net, r->linear.bias),
		.alpha = 1,
		.alike = net->cache.sequences > 0,
	};

	net->backend->ops->gemm(pass->ctx, &product);
	if (net->rows < net->tokens)
		mft_tensor_gather(net, pass->ctx, r->type, logits, at, (uint64_t)count);
}

/* dweight += dlogits^T x, of x in fp32. A product of fp32 gives fp32: gradients of another type are
 * widened before it and rounded after it. */
static void wide_weight_gradient(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_router *r, const void *x, const void *dlogits)
{
	const struct mfk_ops *ops = net->backend->ops;
	const int64_t count = r->experts * net->hidden;
	void *grad = mft_grad(net, r->linear.weight);
	void *sum = mfk_is_exact(net->grad) ? grad : mft_net_scratch(net, r->wide_weight);
	const bool is_new = mft_grad_is_new(net, pass, r->linear.weight);
	const struct mfk_gemm product = {
		.m = r->experts,
		.n = net->hidden,
		.k = net->rows,
		.trans_a = true,
		.a = dlogits,
		.b = x,
		.c = sum,
		.lda = r->experts,
		.ldb = net->hidden,
		.ldc = net->hidden,
		.alpha = 1,
		.beta = is_new ? 0 : 1,
	};

	if (sum != grad && !is_new)
		ops->cast(pass->ctx, MFK_F32, sum, net->grad, grad, count);
	ops->gemm(pass->ctx, &product);
	if (sum != grad)
		ops->cast(pass->ctx, net->grad, grad, MFK_F32, sum, count);
}

/* dx = dlogits weight, of the weight in fp32. */
static void wide_input_gradient(const struct mft_net *net, const struct mft_pass *pass,
				const struct mft_router *r, const void *weight, const void *dlogits,
				void *dx)
{
	const struct mfk_gemm product = {
		.m = net->rows,
		.n = net->hidden,
		.k = r->experts,
		.a = dlogits,
		.b = weight,
		.c = dx,
		.lda = r->experts,
		.ldb = net->hidden,
		.ldc = net->hidden,
		.alpha = 1,
	};

	net->backend->ops->gemm(pass->ctx, &product);
}

/* Logits have more digits than x and weights: both are widened. */
static void wide_router_backward(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_router *r, const void *x, const void *dlogits,
				 void *dx)
{
	const struct mfk_ops *ops = net->backend->ops;
	const int64_t count = net->rows * net->hidden;
	void *wide = mft_net_scratch(net, r->wide), *weight = mft_net_scratch(net, r->wide_weight);

	ops->cast(pass->ctx, MFK_F32, wide, net->io, x, count);
	wide_weight_gradient(net, pass, r, wide, dlogits);
	ops->cast(pass->ctx, MFK_F32, weight, net->io, mft_weight(net, r->linear.weight),
		  r->experts * net->hidden);
	if (r->linear.bias)
		ops->bias_backward(pass->ctx, MFK_F32, net->grad, mft_grad(net, r->linear.bias),
				   dlogits, net->rows, r->experts);
	wide_input_gradient(net, pass, r, weight, dlogits, wide);
	ops->cast(pass->ctx, net->io, dx, MFK_F32, wide, count);
}

/* ---- choices ---- */

/* Scores of sinkhorn are one kind or the other (router.py: sinkhorn_load_balancing). */
static enum mfk_score score_of(const struct mft_net *net)
{
	const struct mfs_megatron_args *a = net->args;

	if (net->config->moe_sinkhorn)
		return a->moe_router_topk == 1 ? MFK_SCORE_SIGMOID : MFK_SCORE_SOFTMAX;
	if (mfs_str_is(a->moe_router_score_function, "sigmoid"))
		return MFK_SCORE_SIGMOID;
	return mfs_str_is(a->moe_router_score_function, "sqrtsoftplus") ? MFK_SCORE_SQRT_SOFTPLUS
									: MFK_SCORE_SOFTMAX;
}

static struct mfk_route route_of(const struct mft_net *net, const struct mft_part *part)
{
	const struct mfs_megatron_args *a = net->args;
	const struct mft_moe *moe = part->own;
	const struct mft_router *m = &moe->router;
	const bool sinkhorn = net->config->moe_sinkhorn;
	const bool grouped = !sinkhorn && a->moe_router_group_topk != MFS_ABSENT;
	const double scale = sinkhorn ? 0 : a->moe_router_topk_scaling_factor;

	return (struct mfk_route){
		.dtype = m->type,
		.score = score_of(net),
		.pre_softmax = sinkhorn || a->moe_router_pre_softmax,
		.tokens = net->tokens,
		.experts = m->experts,
		.top_k = m->top_k,
		.groups = grouped ? a->moe_router_num_groups : 0,
		.group_top_k = grouped ? a->moe_router_group_topk : 0,
		.scale = scale != 0 ? (float)scale : 1,
		.logits = mft_part_kept(net, part, m->logits),
		.bias = m->bias && !sinkhorn ? net->params->buffers + m->bias->start : NULL,
		.expert = mft_part_kept(net, part, m->expert),
		.prob = mft_part_kept(net, part, m->prob),
		.balance_tokens = m->balance_tokens,
		.weight = mft_balance_exists(m) ? mft_part_kept(net, part, m->weight) : NULL,
	};
}

/* ---- auxiliary losses ---- */

/* What gradients of auxiliary losses are multiplied by. */
static double loss_scale(const struct mft_net *net, const struct mft_pass *pass)
{
	const uint64_t counted = pass->counted;
	const double tokens = net->config->calculate_per_token_loss ? mft_balance_tokens(net)
			      : counted				    ? (double)counted
								    : 1;

	return pass->info->grad_scale * tokens;
}

/* In training experts are chosen alike. Each of the processes that share a stream balances its part
 * of the positions in Megatron, and each here all parts. */
static const float *alike_keys(const struct mft_net *net, const struct mft_pass *pass,
			       const struct mft_part *part)
{
	const struct mft_moe *moe = part->own;
	const struct mft_router *m = &moe->router;
	const struct mfk_sinkhorn s = {
		.dtype = m->type,
		.sequences = net->batch,
		.length = net->seq,
		.groups = net->parallel->size.tp,
		.experts = m->experts,
		.logits = mft_part_kept(net, part, m->logits),
		.key = mft_net_scratch(net, m->key),
	};

	if (!net->config->moe_sinkhorn || !pass->train)
		return NULL;
	net->backend->ops->sinkhorn(pass->ctx, &s);
	return s.key;
}

/* Chooses, and adds to the sums of losses. */
static void choose(const struct mft_net *net, const struct mft_pass *pass,
		   const struct mft_part *part, struct mfk_route *r)
{
	const struct mft_moe *moe = part->own;
	const struct mft_router *m = &moe->router;
	const bool balances = pass->train && mft_balance_exists(m);
	float *losses = mft_net_scratch(net, m->losses);

	r->z_factor = (float)(1 / (mft_balance_tokens(net) * (double)m->layers));
	r->z = pass->train && m->z_coeff != 0 ? losses + net->tokens : NULL;
	r->load = balances ? mft_net_scratch(net, m->load) : NULL;
	r->key = alike_keys(net, pass, part);
	net->backend->ops->route(pass->ctx, r);
	if (balances)
		mft_balance_forward(net, pass, part, r);
	if (r->z && !pass->again)
		net->backend->ops->weighted_sum(pass->ctx, r->z, NULL, net->tokens,
						mft_net_sum(net, MFT_SUM_Z_LOSS));
}

/* ---- forward and backward ---- */

void mft_router_forward(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_part *part, const void *x)
{
	const struct mft_moe *m = part->own;
	struct mfk_route r = route_of(net, part);
	void *logits = mft_part_kept(net, part, m->router.logits);

	multiply(net, pass, &m->router, x, logits);
	/* Gradients go on as if they were the router's own (moe_utils.py: RandomSTE). */
	if (net->config->moe_router_force_load_balancing)
		mft_random_logits(net, pass, part->layer, m->router.type, logits,
				  m->router.experts);
	choose(net, pass, part, &r);
}

/* The process's rows [first, first + count), of choices and what follows from them for all tokens.
 * They are of whole sequences that are balanced, or in one. */
static void backward_rows(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_router *m, struct mfk_route r, int64_t first,
			  int64_t count)
{
	const int64_t token = net->first_row + first, width = r.experts;
	const size_t size = mfk_dtype_size(r.dtype);

	r.tokens = count;
	r.logits = (const char *)r.logits + (size_t)(token * width) * size;
	r.expert += token * r.top_k;
	r.prob += token * r.top_k;
	if (r.weight)
		r.weight += token / m->balance_tokens * width;
	r.row += first * r.top_k;
	r.dlogits = (char *)r.dlogits + (size_t)(first * width) * size;
	net->backend->ops->route_backward(pass->ctx, &r);
}

/* How many of the process's rows from first on are of whole sequences, or in one. */
static int64_t rows_at_once(const struct mft_net *net, const struct mft_router *m, int64_t first)
{
	const int64_t at = (net->first_row + first) % m->balance_tokens, left = net->rows - first;
	const int64_t in_one = m->balance_tokens - at;

	if (!at && left >= m->balance_tokens)
		return left - left % m->balance_tokens;
	return left < in_one ? left : in_one;
}

void mft_router_backward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const float *dprob, const void *x, void *dx)
{
	const struct mft_moe *moe = part->own;
	const struct mft_router *m = &moe->router;
	const double scale = loss_scale(net, pass);
	struct mfk_route r = route_of(net, part);

	r.dprob = dprob;
	r.row = mft_part_kept(net, part, moe->dispatch.row);
	r.dbalance = r.weight ? (float)scale : 0;
	r.dz = (float)(scale * m->z_coeff / mft_balance_tokens(net));
	r.dlogits = mft_net_scratch(net, m->dlogits);
	for (int64_t first = 0, count; first < net->rows; first += count) {
		count = rows_at_once(net, m, first);
		backward_rows(net, pass, m, r, first, count);
	}
	if (m->type == net->io)
		mft_linear_backward(net, pass, &m->linear, net->rows, x, r.dlogits, dx);
	else
		wide_router_backward(net, pass, m, x, r.dlogits, dx);
}

int32_t *mft_router_totals(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_router *r)
{
	/* Rows that fill the room of experts count: all of them have as many. */
	const bool alike = net->config->moe_pad_expert_input_to_capacity;

	return r->bias && !alike && pass->train && !pass->again ? mft_net_at(net, r->totals) : NULL;
}

/* All processes move the bias by what all their tokens chose: those that share a stream, too
 * (moe_utils.py: get_updated_expert_bias). */
int mft_router_end_step(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_router *r,
			struct mfs_error *err)
{
	static const enum mft_group of_tokens[] = {MFT_GROUP_TENSOR, MFT_GROUP_GRADS};
	int rc = 0;

	if (!r->bias)
		return 0;
	for (int i = 0; i < 2 && !rc; i++)
		rc = mft_parallel_sum_counts(net->parallel, of_tokens[i], net->backend->device, ctx,
					     mft_net_at(net, r->totals), (uint32_t)r->experts, err);
	if (rc)
		return rc;
	net->backend->ops->balance_bias(ctx, net->params->buffers + r->bias->start,
					mft_net_at(net, r->totals), r->experts,
					(float)net->config->moe_router_bias_update_rate);
	return 0;
}
