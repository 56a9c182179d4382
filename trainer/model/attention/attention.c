/*
 * Attention with grouped queries: proj(attend(rope(norm(q)), rope(norm(k)), v)), where q, k and v
 * are of one product (megatron/core/transformer/attention.py: SelfAttention). With output gates,
 * which the product gives, too: proj(attend(...) sigmoid(gates)).
 *
 * Scores are divided by the square root of a head's size. With apply_query_key_layer_scaling they
 * are also divided by the layer's number before they are rounded, and multiplied by it afterwards.
 * Scores are not rounded here, so both fall away.
 */
#include <math.h>

#include "trainer/model/attention/attention_i.h"
#include "trainer/model/attention/qk_clip.h"
#include "trainer/model/base/dropout.h"
#include "trainer/model/base/linear.h"
#include "trainer/model/base/tensor_parallel.h"

struct attention {
	struct mft_linear qkv, proj;
	struct mft_norm q_norm, k_norm; /* weight NULL: none */
	int64_t heads, groups, dim;
	struct mft_qk_clip *clip;
	int64_t gates; /* of each group: as many as it has heads, or 0 */
	/* kept, packed with gates or norms of q and k alone, stats with these; otherwise scratch */
	uint64_t packed, stats;
	uint64_t gated; /* kept, with gates: what proj is of */
	struct {
		uint64_t own, all;
	} shared[2]; /* scratch of forward, of backward: see mft_shared_groups_take() */
	struct mft_attention_kept kept;
	struct mft_core core;
	/* scratch */
	uint64_t dout, dq, dk, dv, dpacked;
};

static struct mfk_attention shape(const struct mft_net *net, const struct attention *a)
{
	return (struct mfk_attention){
		.dtype = net->io,
		.batch = net->batch,
		.seq = net->seq,
		.heads = a->heads,
		.kv_heads = a->groups,
		.qk_dim = a->dim,
		.v_dim = a->dim,
		.scale = net->args->mup.on ? (float)net->args->mup.attention
					   : 1 / sqrtf((float)a->dim),
		.causal = true,
		.atomics = net->config->attention_atomics,
	};
}

static void plan_shared(const struct mft_net *net, struct attention *a, struct mft_part_plan *p,
			bool backward)
{
	const uint64_t own = mft_matrix_bytes(net->io, net->tokens, net->groups->share);

	if (!net->groups->share)
		return;
	a->shared[backward].own = mft_part_plan_scratch(p, own);
	a->shared[backward].all = mft_part_plan_scratch(p, own * net->parallel->size.tp);
}

static bool keeps_packed(const struct attention *a)
{
	return a->q_norm.weight || a->gates;
}

static void plan_memory(struct mft_net *net, struct attention *a, struct mft_part_plan *p)
{
	const int64_t packed_heads = a->heads + (2 + a->gates) * a->groups;
	const uint64_t q = mft_matrix_bytes(net->io, net->tokens, a->heads * a->dim);
	const uint64_t k = mft_matrix_bytes(net->io, net->tokens, a->groups * a->dim);
	const uint64_t packed = mft_matrix_bytes(net->io, net->tokens, packed_heads * a->dim);

	a->kept.q = mft_part_plan_keep(p, q);
	a->kept.k = mft_part_plan_keep(p, k);
	a->kept.v = mft_part_plan_keep(p, k);
	a->kept.out = mft_part_plan_keep(p, q);
	a->kept.lse = mft_part_plan_keep(p, mft_matrix_bytes(MFK_F32, net->tokens, a->heads));
	a->packed =
		keeps_packed(a) ? mft_part_plan_keep(p, packed) : mft_part_plan_scratch(p, packed);
	if (a->q_norm.weight)
		a->stats = mft_part_plan_keep(
			p, mft_matrix_bytes(MFK_F32, net->tokens, 2 * (a->heads + a->groups)));
	if (a->gates)
		a->gated = mft_part_plan_keep(p, q);
	plan_shared(net, a, p, false);
	mft_core_plan(net, &a->core, p, false);
	mft_part_plan_scratch_anew(p);
	a->dout = mft_part_plan_scratch(p, q);
	a->dq = mft_part_plan_scratch(p, q);
	a->dk = mft_part_plan_scratch(p, k);
	a->dv = mft_part_plan_scratch(p, k);
	a->dpacked = mft_part_plan_scratch(p, packed);
	plan_shared(net, a, p, true);
	mft_core_plan(net, &a->core, p, true);
}

/* Megatron has no computation for it, either. */
static int check(const struct mft_net *net, struct mfs_error *err)
{
	if (net->args->attention_output_gate && net->groups->share)
		return mfs_fail(err, -ENOTSUP,
				"--attention-output-gate: expected a --tensor-model-parallel-size "
				"that divides --num-query-groups %lld, found %u",
				(long long)net->args->num_query_groups, net->parallel->size.tp);
	return 0;
}

/* Rows of a group: those of its heads' queries, of keys, of values. */
static int add_clip(struct mft_net *net, const struct mft_part *part, struct attention *a,
		    struct mfs_error *err)
{
	const int64_t queries = a->heads / a->groups * a->dim, all = queries + 2 * a->dim;
	const double alpha = net->config->qk_clip_alpha;
	const struct mft_qk_clip clip = {
		.heads = a->heads,
		.units = a->groups,
		.rows = {{a->qkv.weight, all, 0, queries, alpha},
			 {a->qkv.weight, all, queries, a->dim, 1 - alpha}},
	};

	return mft_qk_clip_add(net, part->layer, &clip, &a->clip, err);
}

static int plan(struct mft_net *net, struct mft_part *part, struct mft_part_plan *p,
		struct mfs_error *err)
{
	const int32_t layer = (int32_t)part->layer;
	struct attention *a = part->own = mfs_arena_alloc(&net->arena, sizeof(*a));
	struct mfk_attention whole;
	int r;

	if (!a)
		return mfs_fail_nomem(err);
	a->heads = net->args->num_attention_heads / net->parallel->size.tp;
	a->groups = net->groups->share ? 1 : net->args->num_query_groups / net->parallel->size.tp;
	a->dim = net->args->kv_channels;
	a->gates = net->args->attention_output_gate ? a->heads / a->groups : 0;
	whole = shape(net, a);
	r = check(net, err);
	if (!r)
		r = mft_linear_find(net, "decoder.layers.self_attention.linear_qkv", layer, -1,
				    &a->qkv, err);
	if (!r)
		r = mft_linear_find(net, "decoder.layers.self_attention.linear_proj", layer, -1,
				    &a->proj, err);
	if (!r && net->args->qk_layernorm)
		r = mft_norm_find(net, "decoder.layers.self_attention.q_layernorm", layer,
				  &a->q_norm, err);
	if (!r && net->args->qk_layernorm)
		r = mft_norm_find(net, "decoder.layers.self_attention.k_layernorm", layer,
				  &a->k_norm, err);
	if (!r)
		r = mft_core_find(net, part->layer, &whole, &a->core, err);
	if (!r)
		r = add_clip(net, part, a, err);
	if (r)
		return r;
	mft_linear_replaces(net, &a->qkv);
	mft_linear_replaces(net, &a->proj);
	a->qkv.ends_dx = true;
	/* Gradients of the process's heads. */
	mft_net_gradient_is_term(net, a->q_norm.weight);
	mft_net_gradient_is_term(net, a->q_norm.bias);
	mft_net_gradient_is_term(net, a->k_norm.weight);
	mft_net_gradient_is_term(net, a->k_norm.bias);
	part->keeps_x = mft_linear_keep_stream(net, part, &a->qkv, p);
	plan_memory(net, a, p);
	return 0;
}

static void *packed_of(const struct mft_net *net, const struct mft_part *part)
{
	const struct attention *a = part->own;

	return keeps_packed(a) ? mft_part_kept(net, part, a->packed)
			       : mft_net_scratch(net, a->packed);
}

/* What splits, normalises and turns, and its backward. */
static struct mfk_qkv split(const struct mft_net *net, const struct mft_part *part)
{
	const struct attention *a = part->own;
	struct mfk_qkv s = {
		.dtype = net->io,
		.grad = net->grad,
		.tokens = net->tokens,
		.groups = a->groups,
		.heads_per_group = a->heads / a->groups,
		.gates = a->gates,
		.dim = a->dim,
		.rotary_dim = net->rope->dim,
		.interleaved = net->args->rotary_interleaved,
		.layernorm = net->args->layernorm,
		.zero_centered = net->args->zero_centered_gamma,
		.eps = (float)net->args->norm_epsilon,
		.qkv = packed_of(net, part),
		.q = mft_part_kept(net, part, a->kept.q),
		.k = mft_part_kept(net, part, a->kept.k),
		.v = mft_part_kept(net, part, a->kept.v),
	};

	if (s.rotary_dim) {
		s.cos = mft_net_at(net, net->rope->cos);
		s.sin = mft_net_at(net, net->rope->sin);
		s.positions = mft_net_at(net, net->rope->positions);
	}
	if (a->q_norm.weight) {
		s.q_norm = mft_weight(net, a->q_norm.weight);
		s.k_norm = mft_weight(net, a->k_norm.weight);
		s.q_norm_bias = mft_weight(net, a->q_norm.bias);
		s.k_norm_bias = mft_weight(net, a->k_norm.bias);
		s.q_mean = mft_part_kept(net, part, a->stats);
		s.q_rstd = s.q_mean + net->tokens * a->heads;
		s.k_mean = s.q_rstd + net->tokens * a->heads;
		s.k_rstd = s.k_mean + net->tokens * a->groups;
	}
	return s;
}

struct mfk_attention mft_attention_of(const struct mft_net *net, const struct mft_pass *pass,
				      const struct mft_part *part, struct mfk_attention c,
				      const struct mft_attention_kept *kept)
{
	c.first_key = pass->first_key;
	if (pass->train && net->config->attention_dropout > 0) {
		c.dropout = (float)net->config->attention_dropout;
		c.seed = mft_pass_seed(net, pass, part->layer, MFT_DROPOUT_SCORES);
	}
	c.q = mft_part_kept(net, part, kept->q);
	c.k = mft_part_kept(net, part, kept->k);
	c.v = mft_part_kept(net, part, kept->v);
	c.out = mft_part_kept(net, part, kept->out);
	c.lse = mft_part_kept(net, part, kept->lse);
	return c;
}

static void qkv_forward(const struct mft_net *net, const struct mft_pass *pass,
			const struct mft_part *part, const void *x)
{
	const struct attention *a = part->own;
	void *packed = packed_of(net, part), *own = mft_net_scratch(net, a->shared[0].own);

	mft_linear_forward(net, pass, &a->qkv, net->tokens, x, net->groups->share ? own : packed);
	if (net->groups->share)
		mft_shared_groups_take(net, pass, own, mft_net_scratch(net, a->shared[0].all),
				       packed);
}

static void qkv_backward(const struct mft_net *net, const struct mft_pass *pass,
			 const struct mft_part *part, const void *x, void *dpacked, void *dx)
{
	const struct attention *a = part->own;
	void *own = mft_net_scratch(net, a->shared[1].own);

	if (net->groups->share)
		mft_shared_groups_give(net, pass, dpacked, mft_net_scratch(net, a->shared[1].all),
				       own);
	mft_stream_await(net, pass);
	mft_linear_backward(net, pass, &a->qkv, net->tokens, x, net->groups->share ? own : dpacked,
			    dx);
}

/* Where a group's gates begin in what qkv gives, or in its gradient. */
static void *at_gates(const struct mft_net *net, const struct attention *a, void *packed)
{
	return (char *)packed + (size_t)(a->heads / a->groups * a->dim) * mfk_dtype_size(net->io);
}

static struct mfk_gate gate_of(const struct mft_net *net, const struct mft_part *part)
{
	const struct attention *a = part->own;

	return (struct mfk_gate){
		.dtype = net->io,
		.rows = net->tokens * a->groups,
		.cols = a->gates * a->dim,
		.ld = (2 * a->gates + 2) * a->dim,
		.x = mft_part_kept(net, part, a->kept.out),
		.gate = at_gates(net, a, packed_of(net, part)),
		.y = mft_part_kept(net, part, a->gated),
	};
}

/* Returns what proj is of. */
static const void *gates_forward(const struct mft_net *net, const struct mft_pass *pass,
				 const struct mft_part *part)
{
	const struct attention *a = part->own;
	struct mfk_gate gate;

	if (!a->gates)
		return mft_part_kept(net, part, a->kept.out);
	gate = gate_of(net, part);
	net->backend->ops->gate(pass->ctx, &gate);
	return gate.y;
}

/* d: of what proj is of, becomes that of what attention gives. */
static void gates_backward(const struct mft_net *net, const struct mft_pass *pass,
			   const struct mft_part *part, void *d)
{
	const struct attention *a = part->own;
	struct mfk_gate gate;

	if (!a->gates)
		return;
	gate = gate_of(net, part);
	gate.dy = gate.dx = d;
	gate.dgate = at_gates(net, a, mft_net_scratch(net, a->dpacked));
	net->backend->ops->gate_backward(pass->ctx, &gate);
}

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_part *part, const void *x, void *y)
{
	const struct attention *a = part->own;
	const struct mfk_qkv s = split(net, part);
	const struct mfk_attention c = mft_attention_of(net, pass, part, shape(net, a), &a->kept);
	const void *proj_of;

	qkv_forward(net, pass, part, x);
	net->backend->ops->qkv(pass->ctx, &s);
	mft_qk_clip_note(net, pass, a->clip, &c);
	mft_core_forward(net, pass, &a->core, &c);
	proj_of = gates_forward(net, pass, part);
	if (y)
		mft_linear_forward(net, pass, &a->proj, net->tokens, proj_of, y);
}

static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const void *x, const void *dy, void *dx)
{
	const struct attention *a = part->own;
	struct mfk_qkv s = split(net, part);
	struct mfk_attention c = mft_attention_of(net, pass, part, shape(net, a), &a->kept);
	void *dout = mft_net_scratch(net, a->dout);

	mft_linear_backward(net, pass, &a->proj, net->tokens,
			    a->gates ? mft_part_kept(net, part, a->gated) : c.out, dy, dout);
	gates_backward(net, pass, part, dout);

	c.dout = dout;
	c.dq = mft_net_scratch(net, a->dq);
	c.dk = mft_net_scratch(net, a->dk);
	c.dv = mft_net_scratch(net, a->dv);
	mft_core_backward(net, pass, &a->core, &c);

	s.dq = c.dq;
	s.dk = c.dk;
	s.dv = c.dv;
	s.dqkv = mft_net_scratch(net, a->dpacked);
	s.dq_norm = mft_grad(net, a->q_norm.weight);
	s.dk_norm = mft_grad(net, a->k_norm.weight);
	s.dq_norm_bias = mft_grad(net, a->q_norm.bias);
	s.dk_norm_bias = mft_grad(net, a->k_norm.bias);
	net->backend->ops->qkv_backward(pass->ctx, &s);

	qkv_backward(net, pass, part, x, s.dqkv, dx);
}

const struct mft_part_kind mft_part_attention = {
	.name = "attention",
	.divided = true,
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
