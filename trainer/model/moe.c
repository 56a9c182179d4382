/*
 * A mixture of experts: each token goes to top_k of the layer's experts.
 *
 *   router       logits, chosen experts and their probabilities
 *   dispatch     choices sorted by expert: rows of one expert follow one another
 *   experts      fc1, activation times probability, fc2, as products of groups of rows
 *   combine      a token's rows are added up, and shared experts' output
 *
 * No token is dropped, so there are always T * top_k rows, and memory is the same in every pass.
 * How many rows each expert has is known on the device. Where products of groups want it on the
 * host, each forward waits for a copy: one wait for each MoE layer and pass.
 *
 * Auxiliary losses are means over a microbatch. Megatron scales their gradients by the loss scale
 * over the number of microbatches, and, with per-token loss, by the loss scale times the
 * microbatch's tokens (core/pipeline_parallel/schedules.py, core/transformer/moe/router.py).
 *
 * Sources: megatron/core/transformer/moe/{moe_layer,router,experts,shared_experts}.py.
 */
#include <string.h>

#include "formats/base/str.h"
#include "trainer/model/net_i.h"

/* One linear of all experts. Their weights lie at a fixed distance from one another. */
struct grouped {
	struct mfs_linear of_first;
	int64_t stride; /* elements */
};

struct moe {
	int64_t experts, top_k, rows; /* rows: T * top_k */
	struct mfs_linear router;
	enum mfk_dtype router_type;	     /* of logits */
	const struct mfs_model_buffer *bias; /* NULL: none */
	struct grouped fc1, fc2;
	bool gated, act_again;
	enum mfk_activation activation;
	bool shares;
	struct mfs_mlp shared;
	struct mfs_linear gate; /* of shared experts; weight NULL: none */

	/* auxiliary losses */
	double balance_coeff, z_coeff; /* 0: none */
	int64_t balance_tokens;	       /* that are balanced together */
	enum mfs_sum balance_sum;
	int64_t layers; /* that have experts: the logged losses are means over them */

	/* kept */
	uint64_t logits, expert, prob, load, row, from, row_prob, hidden, active;
	uint64_t gate_logits, gate_choice, gate_prob;
	/* scratch; act: active, if it is not kept */
	uint64_t rows_in, act, losses, drow_prob, dactive, dlogits, wide, wide_weight, dgate;
	/* of the run */
	uint64_t totals, offsets;
	int64_t *host_offsets; /* [experts + 1] of the last forward */
	bool wants_host;       /* a product reads them */
};

/* ---- what it is made of ---- */

static int refuse(struct mfs_error *err, const char *flag)
{
	return mfs_fail(err, -ENOTSUP, "%s cannot be trained here", flag);
}

static int check_losses(const struct mfs_net *net, struct moe *m, struct mfs_error *err)
{
	const char *kind = net->config->moe_router_load_balancing_type;

	m->balance_coeff = net->args->moe_aux_loss_coeff;
	m->z_coeff = net->config->moe_z_loss_coeff;
	m->balance_tokens = net->tokens;
	m->balance_sum = MFS_SUM_LOAD_BALANCING;
	if (mfs_str_is(kind, "none"))
		m->balance_coeff = 0;
	if (mfs_str_is(kind, "seq_aux_loss")) {
		m->balance_tokens = net->seq;
		m->balance_sum = MFS_SUM_SEQ_LOAD_BALANCING;
	} else if (kind && !mfs_str_is(kind, "aux_loss") && !mfs_str_is(kind, "none")) {
		return mfs_fail(err, -ENOTSUP,
				"--moe-router-load-balancing-type: expected aux_loss, seq_aux_loss "
				"or none, found %s",
				kind);
	}
	return 0;
}

static int check_choice(const struct mfs_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;
	const bool grouped = a->moe_router_group_topk != MFS_UNSET;
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
	    (groups == MFS_UNSET || a->num_experts % groups || take > groups ||
	     a->moe_router_topk < take || a->moe_router_topk > take * (a->num_experts / groups) ||
	     a->moe_router_topk / take > a->num_experts / groups))
		return mfs_fail(err, -EINVAL,
				"--moe-router-group-topk %lld: %lld experts in %lld groups cannot "
				"give %lld of them",
				(long long)take, (long long)a->num_experts, (long long)groups,
				(long long)a->moe_router_topk);
	return 0;
}

static int check(const struct mfs_net *net, struct moe *m, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;
	int r;

	if (a->add_bias_linear)
		return refuse(err, "--num-experts without --disable-bias-linear");
	if (net->config->moe_expert_capacity_factor > 0)
		return refuse(err, "--moe-expert-capacity-factor");
	if (a->moe_mlp_glu_interleave_size > 0)
		return refuse(err, "--moe-mlp-glu-interleave-size");
	if (a->moe_shared_expert_glu_interleave_size > 0)
		return refuse(err, "--moe-shared-expert-glu-interleave-size");
	r = check_choice(net, err);
	if (r)
		return r;
	if (net->tokens > INT32_MAX / a->moe_router_topk)
		return mfs_fail(err, -EINVAL,
				"a microbatch of %lld tokens, each to %lld experts: expected at "
				"most %d rows",
				(long long)net->tokens, (long long)a->moe_router_topk, INT32_MAX);
	return check_losses(net, m, err);
}

/* The linear of expert 0, and that the others follow it at one distance. Each is written by the
 * first pass of a step. */
static int find_grouped(struct mfs_net *net, const char *prefix, uint32_t layer, int64_t experts,
			struct grouped *ret, struct mfs_error *err)
{
	uint64_t first = 0;

	for (int64_t e = 0; e < experts; e++) {
		struct mfs_linear l;
		const int r = mfs_linear_find(net, prefix, (int32_t)layer, (int32_t)e, &l, err);

		if (r)
			return r;
		mfs_linear_replaces(net, &l);
		if (e == 0) {
			first = l.weight->start;
			ret->of_first = l;
			ret->stride = l.out * l.in; /* of an expert that is alone */
		}
		if (e == 1)
			ret->stride = (int64_t)(l.weight->start - first);
		if (l.weight->start != first + (uint64_t)(e * ret->stride))
			return mfs_fail(err, -EINVAL,
					"%s of layer %u: experts do not lie at one distance from "
					"one another",
					prefix, layer);
	}
	return 0;
}

static int find_gate(struct mfs_net *net, struct moe *m, uint32_t layer, struct mfs_error *err)
{
	const struct mfs_param *weight;

	if (!net->args->moe_shared_expert_gate)
		return 0;
	weight = mfs_params_find(net->params, "decoder.layers.mlp.shared_experts.gate_weight",
				 (int32_t)layer, -1);
	if (!weight)
		return mfs_fail(err, -ENODATA,
				"the model has no mlp.shared_experts.gate_weight in layer %u",
				layer);
	m->gate = (struct mfs_linear){.weight = weight, .out = 1, .in = net->hidden, .adds = true};
	mfs_linear_replaces(net, &m->gate);
	return 0;
}

static int find(struct mfs_net *net, struct moe *m, uint32_t layer, struct mfs_error *err)
{
	int r = mfs_linear_find(net, "decoder.layers.mlp.router", (int32_t)layer, -1, &m->router,
				err);

	if (r)
		return r;
	mfs_linear_replaces(net, &m->router);
	m->bias = mfs_params_find_buffer(net->params, "decoder.layers.mlp.router.expert_bias",
					 (int32_t)layer);
	r = find_grouped(net, "decoder.layers.mlp.experts.experts.linear_fc1", layer, m->experts,
			 &m->fc1, err);
	if (!r)
		r = find_grouped(net, "decoder.layers.mlp.experts.experts.linear_fc2", layer,
				 m->experts, &m->fc2, err);
	return r;
}

static int64_t count_layers(const struct mfs_megatron_args *a)
{
	int64_t count = 0;

	for (int64_t i = 0; i < a->num_layers; i++)
		count += mfs_args_is_moe(a, i);
	return count;
}

/* ---- memory ---- */

static uint64_t numbers(int64_t rows, int64_t cols)
{
	return mfs_matrix_bytes(MFK_F32, rows, cols); /* int32 have the size of fp32 */
}

static void plan_kept(const struct mfs_net *net, struct moe *m, struct mfs_part_plan *p)
{
	m->logits =
		mfs_part_plan_keep(p, mfs_matrix_bytes(m->router_type, net->tokens, m->experts));
	m->expert = mfs_part_plan_keep(p, numbers(m->rows, 1));
	m->prob = mfs_part_plan_keep(p, numbers(m->rows, 1));
	m->load = mfs_part_plan_keep(p, numbers(net->tokens / m->balance_tokens, m->experts));
	m->row = mfs_part_plan_keep(p, numbers(m->rows, 1));
	m->from = mfs_part_plan_keep(p, numbers(m->rows, 1));
	m->row_prob = mfs_part_plan_keep(p, numbers(m->rows, 1));
	m->hidden = mfs_part_plan_keep(p, mfs_matrix_bytes(net->io, m->rows, m->fc1.of_first.out));
	if (!m->act_again)
		m->active = mfs_part_plan_keep(
			p, mfs_matrix_bytes(net->io, m->rows, m->fc2.of_first.in));
	if (!m->gate.weight)
		return;
	m->gate_logits = mfs_part_plan_keep(p, mfs_matrix_bytes(net->io, net->tokens, 1));
	m->gate_choice = mfs_part_plan_keep(p, numbers(net->tokens, 1));
	m->gate_prob = mfs_part_plan_keep(p, numbers(net->tokens, 1));
}

/* Forward's and backward's lie in one place, behind what both use. */
static void plan_scratch(const struct mfs_net *net, struct moe *m, struct mfs_part_plan *p)
{
	const uint64_t active = mfs_matrix_bytes(net->io, m->rows, m->fc2.of_first.in);
	uint64_t behind;

	m->rows_in = mfs_part_plan_scratch(p, mfs_matrix_bytes(net->io, m->rows, net->hidden));
	if (m->act_again)
		m->act = mfs_part_plan_scratch(p, active);
	behind = p->scratch;
	m->losses = mfs_part_plan_scratch(p, numbers(2, net->tokens));
	p->scratch = behind;
	m->drow_prob = mfs_part_plan_scratch(p, numbers(m->rows, 1));
	m->dactive = mfs_part_plan_scratch(p, active);
	m->dlogits =
		mfs_part_plan_scratch(p, mfs_matrix_bytes(m->router_type, net->tokens, m->experts));
	if (m->router_type != net->io) {
		m->wide = mfs_part_plan_scratch(p, numbers(net->tokens, net->hidden));
		m->wide_weight = mfs_part_plan_scratch(p, numbers(m->experts, net->hidden));
	}
	if (m->gate.weight)
		m->dgate = mfs_part_plan_scratch(p, numbers(net->tokens, 2));
}

static void plan_run(struct mfs_net *net, struct moe *m)
{
	m->offsets = mfs_memory_add(net->memory, MFS_MEMORY_BATCH,
				    (uint64_t)(m->experts + 1) * sizeof(int64_t));
	if (m->bias)
		m->totals = mfs_memory_add(net->memory, MFS_MEMORY_BATCH,
					   (uint64_t)m->experts * sizeof(int32_t));
}

static int plan_shared(struct mfs_net *net, struct moe *m, uint32_t layer, struct mfs_part_plan *p,
		       struct mfs_error *err)
{
	int r;

	m->shares = net->args->moe_shared_expert_intermediate_size != MFS_UNSET;
	if (!m->shares)
		return 0;
	m->shared.again = mfs_recomputes(net, "shared_experts");
	r = mfs_mlp_plan(net, "decoder.layers.mlp.shared_experts", layer, &m->shared, p, err);
	m->shared.fc1.adds = true;
	return r ? r : find_gate(net, m, layer, err);
}

static int plan(struct mfs_net *net, struct mfs_part *part, struct mfs_part_plan *p,
		struct mfs_error *err)
{
	struct moe *m = part->own = mfs_arena_alloc(&net->arena, sizeof(*m));
	int r;

	if (!m)
		return mfs_fail_nomem(err);
	r = check(net, m, err);
	if (r)
		return r;
	m->experts = net->args->num_experts;
	m->top_k = net->args->moe_router_topk;
	m->rows = net->tokens * m->top_k;
	m->layers = count_layers(net->args);
	m->gated = mfs_args_gated(net->args);
	m->activation = mfs_activation(net->args);
	m->act_again = mfs_recomputes(net, "moe_act");
	/* fp64 is fp32 here. */
	m->router_type = net->config->moe_router_dtype ? MFK_F32 : net->io;
	m->host_offsets =
		mfs_arena_array(&net->arena, (size_t)m->experts + 1, sizeof(*m->host_offsets));
	if (!m->host_offsets)
		return mfs_fail_nomem(err);
	r = find(net, m, part->layer, err);
	if (!r)
		r = plan_shared(net, m, part->layer, p, err);
	if (r)
		return r;
	plan_kept(net, m, p);
	plan_scratch(net, m, p);
	plan_run(net, m);
	return 0;
}

/* ---- the router ---- */

/* The product gives logits in the router's type. */
static void router_forward(const struct mfs_net *net, const struct mfs_pass *run,
			   const struct moe *m, const void *x, void *logits)
{
	const struct mfk_gemm product = {
		.m = net->tokens,
		.n = m->experts,
		.k = net->hidden,
		.trans_b = true,
		.dtype_ab = net->io,
		.dtype_c = m->router_type,
		.a = x,
		.b = mfs_weight(net, m->router.weight),
		.c = logits,
		.lda = net->hidden,
		.ldb = net->hidden,
		.ldc = m->experts,
		.alpha = 1,
	};

	net->backend->ops->gemm(run->ctx, &product);
}

/* dweight += dlogits^T x, of x in fp32. A product of fp32 gives fp32: gradients of another type are
 * widened before it and rounded behind it. */
static void wide_weight_gradient(const struct mfs_net *net, const struct mfs_pass *run,
				 const struct moe *m, const void *x, const void *dlogits)
{
	const struct mfk_ops *ops = net->backend->ops;
	const int64_t count = m->experts * net->hidden;
	void *grad = mfs_grad(net, m->router.weight);
	void *sum = net->grad == MFK_F32 ? grad : mfs_net_scratch(net, m->wide_weight);
	const struct mfk_gemm product = {
		.m = m->experts,
		.n = net->hidden,
		.k = net->tokens,
		.trans_a = true,
		.a = dlogits,
		.b = x,
		.c = sum,
		.lda = m->experts,
		.ldb = net->hidden,
		.ldc = net->hidden,
		.alpha = 1,
		.beta = run->first ? 0 : 1,
	};

	if (sum != grad && !run->first)
		ops->cast(run->ctx, MFK_F32, sum, net->grad, grad, count);
	ops->gemm(run->ctx, &product);
	if (sum != grad)
		ops->cast(run->ctx, net->grad, grad, MFK_F32, sum, count);
}

/* dx = dlogits weight, of the weight in fp32. */
static void wide_input_gradient(const struct mfs_net *net, const struct mfs_pass *run,
				const struct moe *m, const void *weight, const void *dlogits,
				void *dx)
{
	const struct mfk_gemm product = {
		.m = net->tokens,
		.n = net->hidden,
		.k = m->experts,
		.a = dlogits,
		.b = weight,
		.c = dx,
		.lda = m->experts,
		.ldb = net->hidden,
		.ldc = net->hidden,
		.alpha = 1,
	};

	net->backend->ops->gemm(run->ctx, &product);
}

/* Logits have more digits than x and weights: both are widened. */
static void wide_router_backward(const struct mfs_net *net, const struct mfs_pass *run,
				 const struct moe *m, const void *x, const void *dlogits, void *dx)
{
	const struct mfk_ops *ops = net->backend->ops;
	const int64_t count = net->tokens * net->hidden;
	void *wide = mfs_net_scratch(net, m->wide), *weight = mfs_net_scratch(net, m->wide_weight);

	ops->cast(run->ctx, MFK_F32, wide, net->io, x, count);
	wide_weight_gradient(net, run, m, wide, dlogits);
	ops->cast(run->ctx, MFK_F32, weight, net->io, mfs_weight(net, m->router.weight),
		  m->experts * net->hidden);
	wide_input_gradient(net, run, m, weight, dlogits, wide);
	ops->cast(run->ctx, net->io, dx, MFK_F32, wide, count);
}

static enum mfk_score score_of(const struct mfs_megatron_args *a)
{
	if (mfs_str_is(a->moe_router_score_function, "sigmoid"))
		return MFK_SCORE_SIGMOID;
	return mfs_str_is(a->moe_router_score_function, "sqrtsoftplus") ? MFK_SCORE_SQRT_SOFTPLUS
									: MFK_SCORE_SOFTMAX;
}

static struct mfk_route route_of(const struct mfs_net *net, const struct mfs_part *part)
{
	const struct mfs_megatron_args *a = net->args;
	const struct moe *m = part->own;
	const bool grouped = a->moe_router_group_topk != MFS_UNSET;

	return (struct mfk_route){
		.dtype = m->router_type,
		.score = score_of(a),
		.pre_softmax = a->moe_router_pre_softmax,
		.tokens = net->tokens,
		.experts = m->experts,
		.top_k = m->top_k,
		.groups = grouped ? a->moe_router_num_groups : 0,
		.group_top_k = grouped ? a->moe_router_group_topk : 0,
		.scale = a->moe_router_topk_scaling_factor != 0
				 ? (float)a->moe_router_topk_scaling_factor
				 : 1,
		.logits = mfs_part_kept(net, part, m->logits),
		.bias = m->bias ? net->params->buffers + m->bias->start : NULL,
		.expert = mfs_part_kept(net, part, m->expert),
		.prob = mfs_part_kept(net, part, m->prob),
		.balance_tokens = m->balance_tokens,
		.load = mfs_part_kept(net, part, m->load),
	};
}

/* The sigmoid of a shared expert's gate: a router of one expert. */
static struct mfk_route gate_of(const struct mfs_net *net, const struct mfs_part *part)
{
	const struct moe *m = part->own;

	return (struct mfk_route){
		.dtype = net->io,
		.score = MFK_SCORE_SIGMOID,
		.tokens = net->tokens,
		.experts = 1,
		.top_k = 1,
		.scale = 1,
		.logits = mfs_part_kept(net, part, m->gate_logits),
		.expert = mfs_part_kept(net, part, m->gate_choice),
		.prob = mfs_part_kept(net, part, m->gate_prob),
		.balance_tokens = net->tokens,
	};
}

/* ---- auxiliary losses ---- */

/* The load-balancing loss is this, times the sum over tokens and experts of score * load. */
static double balance_factor(const struct mfs_net *net, const struct moe *m)
{
	const double tokens = (double)m->balance_tokens, sequences = (double)net->tokens / tokens;

	return (double)m->experts / ((double)m->top_k * tokens * tokens * sequences);
}

/* What gradients of auxiliary losses are multiplied by. */
static double loss_scale(const struct mfs_net *net, const struct mfs_pass *run)
{
	const uint64_t counted = run->pass->batch->counted;
	const double tokens = net->config->calculate_per_token_loss ? (double)net->tokens
			      : counted				    ? (double)counted
								    : 1;

	return run->pass->grad_scale * tokens;
}

/* Chooses, and adds to the sums of losses. */
static void choose(const struct mfs_net *net, const struct mfs_pass *run, const struct moe *m,
		   struct mfk_route *r)
{
	float *losses = mfs_net_scratch(net, m->losses);

	r->balance_factor = (float)(balance_factor(net, m) / (double)m->layers);
	r->z_factor = (float)(1 / ((double)net->tokens * (double)m->layers));
	r->balance = run->train && m->balance_coeff != 0 ? losses : NULL;
	r->z = run->train && m->z_coeff != 0 ? losses + net->tokens : NULL;
	net->backend->ops->route(run->ctx, r);
	if (r->balance && !run->again)
		net->backend->ops->weighted_sum(run->ctx, r->balance, NULL, net->tokens,
						mfs_net_sum(net, m->balance_sum));
	if (r->z && !run->again)
		net->backend->ops->weighted_sum(run->ctx, r->z, NULL, net->tokens,
						mfs_net_sum(net, MFS_SUM_Z_LOSS));
}

/* ---- experts ---- */

/* Sorts choices. Where a product wants it, waits until the number of each expert's rows is here. */
static void sort(const struct mfs_net *net, const struct mfs_pass *run, const struct mfs_part *part)
{
	const struct mfk_device_ops *dev = net->backend->device;
	const struct moe *m = part->own;
	const struct mfk_dispatch d = {
		.tokens = net->tokens,
		.experts = m->experts,
		.top_k = m->top_k,
		.expert = mfs_part_kept(net, part, m->expert),
		.prob = mfs_part_kept(net, part, m->prob),
		.offsets = mfs_net_at(net, m->offsets),
		.row = mfs_part_kept(net, part, m->row),
		.from = mfs_part_kept(net, part, m->from),
		.row_prob = mfs_part_kept(net, part, m->row_prob),
		.totals = m->bias && run->train && !run->again ? mfs_net_at(net, m->totals) : NULL,
	};
	const size_t bytes = ((size_t)m->experts + 1) * sizeof(*m->host_offsets);
	char why[MFK_WHY];

	net->backend->ops->dispatch(run->ctx, &d);
	if (!m->wants_host)
		return;
	dev->copy_out(run->ctx, m->host_offsets, d.offsets, bytes);
	/* The context has failed, and whoever syncs next is told why. */
	if (dev->sync(run->ctx, why))
		memset(m->host_offsets, 0, bytes);
}

/* The three products of a linear of all experts. Addresses of rows are set by those who run them:
 * none is looked at by whoever asks what a product wants. */
enum product { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, PRODUCTS };

static struct mfk_gemm product_of(const struct mfs_net *net, const struct moe *m,
				  const struct mfs_linear *l, enum product which)
{
	const bool forward = which == FORWARD, weights = which == WEIGHT_GRADIENT;

	return (struct mfk_gemm){
		.m = weights ? l->out : m->rows,
		.n = forward ? l->out : l->in,
		.k = forward   ? l->in
		     : weights ? m->rows
			       : l->out,
		.trans_a = weights,
		.trans_b = forward,
		.dtype_ab = net->io,
		.dtype_c = weights ? net->grad : net->io,
		.lda = forward ? l->in : l->out,
		.ldb = l->in,
		.ldc = forward ? l->out : l->in,
		.alpha = 1,
	};
}

static struct mfk_gemm_grouped groups_of(const struct mfs_net *net, const struct moe *m,
					 const struct grouped *g, enum product which)
{
	return (struct mfk_gemm_grouped){
		.base = product_of(net, m, &g->of_first, which),
		.groups = m->experts,
		.host_offsets = m->wants_host ? m->host_offsets : NULL,
		.stride = g->stride,
	};
}

static bool wants_host(const struct mfs_net *net, const struct moe *m)
{
	const struct grouped *const both[] = {&m->fc1, &m->fc2};

	for (int i = 0; i < 2; i++)
		for (int which = 0; which < PRODUCTS; which++) {
			const struct mfk_gemm_grouped g =
				groups_of(net, m, both[i], (enum product)which);

			if (net->backend->ops->gemm_grouped_wants_host(net->device, &g))
				return true;
		}
	return false;
}

static void multiply(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_part *part, struct mfk_gemm_grouped *g)
{
	const struct moe *m = part->own;

	g->offsets = mfs_net_at(net, m->offsets);
	net->backend->ops->gemm_grouped(run->ctx, g);
}

/* y[rows, out] = x[rows, in] weight[out, in]^T */
static void experts_forward(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_part *part, const struct grouped *linear,
			    const void *x, void *y)
{
	struct mfk_gemm_grouped g = groups_of(net, part->own, linear, FORWARD);

	g.base.a = x;
	g.base.b = mfs_weight(net, linear->of_first.weight);
	g.base.c = y;
	multiply(net, run, part, &g);
}

/* dx[rows, in] = dy[rows, out] weight[out, in] */
static void experts_input_gradient(const struct mfs_net *net, const struct mfs_pass *run,
				   const struct mfs_part *part, const struct grouped *linear,
				   const void *dy, void *dx)
{
	struct mfk_gemm_grouped g = groups_of(net, part->own, linear, INPUT_GRADIENT);

	g.base.a = dy;
	g.base.b = mfs_weight(net, linear->of_first.weight);
	g.base.c = dx;
	multiply(net, run, part, &g);
}

/* dweight[out, in] += dy[rows, out]^T x[rows, in] */
static void experts_weight_gradient(const struct mfs_net *net, const struct mfs_pass *run,
				    const struct mfs_part *part, const struct grouped *linear,
				    const void *x, const void *dy)
{
	struct mfk_gemm_grouped g = groups_of(net, part->own, linear, WEIGHT_GRADIENT);

	g.base.a = dy;
	g.base.b = x;
	g.base.c = mfs_grad(net, linear->of_first.weight);
	g.base.beta = run->first ? 0 : 1;
	multiply(net, run, part, &g);
}

static struct mfk_act act_of(const struct mfs_net *net, const struct mfs_part *part)
{
	const struct moe *m = part->own;

	return (struct mfk_act){
		.dtype = net->io,
		.kind = m->activation,
		.gated = m->gated,
		.rows = m->rows,
		.cols = m->fc2.of_first.in,
		.row_scale = mfs_part_kept(net, part, m->row_prob),
		.x = mfs_part_kept(net, part, m->hidden),
		.y = m->act_again ? mfs_net_scratch(net, m->act)
				  : mfs_part_kept(net, part, m->active),
	};
}

/* Each row's token, of x[T, hidden]. */
static void *gather(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_part *part, const void *x)
{
	const struct moe *m = part->own;
	const struct mfk_rows rows = {
		.dtype = net->io,
		.rows = m->rows,
		.cols = net->hidden,
		.each = m->top_k,
		.map = mfs_part_kept(net, part, m->from),
		.x = x,
		.y = mfs_net_scratch(net, m->rows_in),
	};

	net->backend->ops->gather(run->ctx, &rows);
	return rows.y;
}

/* y (+)= each token's rows. */
static void combine(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_part *part, const void *x, bool adds, void *y)
{
	const struct moe *m = part->own;
	const struct mfk_rows rows = {
		.dtype = net->io,
		.rows = net->tokens,
		.cols = net->hidden,
		.each = m->top_k,
		.map = mfs_part_kept(net, part, m->row),
		.x = x,
		.residual = adds ? y : NULL,
		.y = y,
	};

	net->backend->ops->combine(run->ctx, &rows);
}

/* ---- shared experts ---- */

/* fc2 is linear, so that the gate may be applied before it. */
static const float *gate_forward(const struct mfs_net *net, const struct mfs_pass *run,
				 const struct mfs_part *part, const void *x)
{
	const struct moe *m = part->own;
	struct mfk_route r;

	if (!m->gate.weight)
		return NULL;
	r = gate_of(net, part);
	mfs_linear_forward(net, run, &m->gate, net->tokens, x,
			   mfs_part_kept(net, part, m->gate_logits));
	net->backend->ops->route(run->ctx, &r);
	return r.prob;
}

/* Adds to dx. */
static void shared_backward(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	const struct moe *m = part->own;
	struct mfk_route r;
	float *dgate;

	if (!m->gate.weight) {
		mfs_mlp_backward(net, run, part, &m->shared, NULL, NULL, x, dy, dx);
		return;
	}
	dgate = mfs_net_scratch(net, m->dgate);
	r = gate_of(net, part);
	mfs_mlp_backward(net, run, part, &m->shared, r.prob, dgate, x, dy, dx);
	r.dprob = dgate;
	r.dlogits = dgate + net->tokens;
	net->backend->ops->route_backward(run->ctx, &r);
	mfs_linear_backward(net, run, &m->gate, net->tokens, x, r.dlogits, dx);
}

/* ---- forward and backward ---- */

static void forward(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_part *part, const void *x, void *y)
{
	const struct moe *m = part->own;
	const struct mfk_act act = act_of(net, part);
	struct mfk_route r = route_of(net, part);
	void *rows;

	router_forward(net, run, m, x, mfs_part_kept(net, part, m->logits));
	choose(net, run, m, &r);
	sort(net, run, part);
	if (m->shares)
		mfs_mlp_forward(net, run, part, &m->shared, gate_forward(net, run, part, x), x, y);

	rows = gather(net, run, part, x);
	experts_forward(net, run, part, &m->fc1, rows, mfs_part_kept(net, part, m->hidden));
	if (y || !m->act_again)
		net->backend->ops->act(run->ctx, &act);
	if (!y)
		return;
	experts_forward(net, run, part, &m->fc2, act.y, rows);
	combine(net, run, part, rows, m->shares, y);
}

/* dx of the router alone; the first that writes it. */
static void router_backward(const struct mfs_net *net, const struct mfs_pass *run,
			    const struct mfs_part *part, const void *x, void *dx)
{
	const struct moe *m = part->own;
	const double scale = loss_scale(net, run);
	struct mfk_route r = route_of(net, part);

	r.dprob = mfs_net_scratch(net, m->drow_prob);
	r.row = mfs_part_kept(net, part, m->row);
	r.dbalance = (float)(scale * m->balance_coeff * balance_factor(net, m));
	r.dz = (float)(scale * m->z_coeff / (double)net->tokens);
	r.dlogits = mfs_net_scratch(net, m->dlogits);
	net->backend->ops->route_backward(run->ctx, &r);
	if (m->router_type == net->io)
		mfs_linear_backward(net, run, &m->router, net->tokens, x, r.dlogits, dx);
	else
		wide_router_backward(net, run, m, x, r.dlogits, dx);
}

/* The gradient of what fc1 gave takes that one's place. */
static void backward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	const struct moe *m = part->own;
	struct mfk_act act = act_of(net, part);
	void *rows, *dactive = mfs_net_scratch(net, m->dactive);

	if (m->act_again)
		net->backend->ops->act(run->ctx, &act);
	rows = gather(net, run, part, dy);
	experts_input_gradient(net, run, part, &m->fc2, rows, dactive);
	experts_weight_gradient(net, run, part, &m->fc2, act.y, rows);

	act.dy = dactive;
	act.dx = mfs_part_kept(net, part, m->hidden);
	act.drow_scale = mfs_net_scratch(net, m->drow_prob);
	net->backend->ops->act_backward(run->ctx, &act);

	rows = gather(net, run, part, x);
	experts_weight_gradient(net, run, part, &m->fc1, rows, act.dx);
	experts_input_gradient(net, run, part, &m->fc1, act.dx, rows);
	router_backward(net, run, part, x, dx);
	combine(net, run, part, rows, true, dx);
	if (m->shares)
		shared_backward(net, run, part, x, dy, dx);
}

static int begin(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_part *part,
		 struct mfs_error *err)
{
	struct moe *m = part->own;

	(void)err;
	m->wants_host = wants_host(net, m);
	if (m->bias)
		net->backend->device->zero(ctx, mfs_net_at(net, m->totals),
					   (size_t)m->experts * sizeof(int32_t));
	return 0;
}

/* All processes move the bias by what all their tokens chose. */
static int end_step(const struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_part *part,
		    struct mfs_error *err)
{
	const struct moe *m = part->own;
	int rc;

	if (!m->bias)
		return 0;
	rc = mfs_parallel_sum_counts(net->parallel, MFS_GROUP_DATA, net->backend->device, ctx,
				     mfs_net_at(net, m->totals), (uint32_t)m->experts, err);
	if (rc)
		return rc;
	net->backend->ops->balance_bias(ctx, net->params->buffers + m->bias->start,
					mfs_net_at(net, m->totals), m->experts,
					(float)net->config->moe_router_bias_update_rate);
	return 0;
}

const struct mfs_part_kind mfs_part_moe = {
	.name = "mixture of experts",
	.module = "moe",
	.plan = plan,
	.begin = begin,
	.forward = forward,
	.backward = backward,
	.end_step = end_step,
};
