/*
 * A gated delta net in place of attention (megatron/core/ssm/gated_delta_net.py): out_proj(norm(y)
 * silu(z)), where y is what the rule of kernels.h's struct mfk_delta makes of queries, keys, values
 * and rates, all of which one product gives.
 *
 * Tensor parallel processes share the heads. The norm is of each head, so its weight's gradient is
 * a term of a sum.
 *
 * A state goes from token to token of a sequence. So a process has whole sequences here, and
 * documents are not told apart.
 */
#include <math.h>

#include "formats/ckpt/names.h"
#include "trainer/model/attention/attention_i.h"
#include "trainer/model/base/linear.h"
#include "trainer/model/base/tensor_parallel.h"

#define PREFIX "decoder.layers.self_attention."

struct delta_net {
	struct mft_linear in, out;
	struct mft_norm norm;
	const struct mft_param *conv, *a_log, *dt_bias;
	int64_t key_heads, value_heads, key_dim, value_dim;
	/* kept: what `in` gives; what the rule is of, and gives; its norm; and what `out` is of */
	uint64_t packed, q, k, v, decay, beta, y, stats, normed, gated;
	/* scratch of backward */
	uint64_t dpacked, dq, dk, dv, ddecay, dbeta, dy, dgated, states;
};

/* ---- what it is made of ---- */

static int check(const struct mft_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;

	if (net->cache.sequences)
		return mfs_fail(err, -ENOTSUP,
				"--linear-attention-freq: a model with gated delta nets cannot "
				"generate here: their states are not kept from token to token");
	if (net->context.size > 1)
		return mfs_fail(err, -ENOTSUP,
				"--context-parallel-size with --linear-attention-freq cannot be "
				"trained here: layers with a gated delta net need whole sequences");
	if (net->config->reset_attention_mask || net->config->sft)
		return mfs_fail(
			err, -ENOTSUP,
			"--reset-attention-mask and --sft with --linear-attention-freq cannot be "
			"trained here: a gated delta net goes on from document to "
			"document");
	if (!a->swiglu)
		return mfs_fail(err, -ENOTSUP,
				"--linear-attention-freq without --swiglu cannot be trained here: "
				"the activation of a gated delta net is SiLU");
	if (a->linear_num_key_heads % net->parallel->size.tp)
		return mfs_fail(err, -EINVAL,
				"--linear-num-key-heads: expected a multiple of "
				"--tensor-model-parallel-size %u, found %lld",
				net->parallel->size.tp, (long long)a->linear_num_key_heads);
	return 0;
}

static int find_param(const struct mft_net *net, const char *name, uint32_t layer,
		      const struct mft_param **ret, struct mfs_error *err)
{
	*ret = mft_params_find(net->params, name, (int32_t)layer, -1);
	return *ret ? 0 : mfs_fail(err, -ENODATA, "the model has no %s in layer %u", name, layer);
}

static int find(struct mft_net *net, struct delta_net *d, uint32_t layer, struct mfs_error *err)
{
	int r = mft_linear_find(net, PREFIX "in_proj", (int32_t)layer, -1, &d->in, err);

	if (!r)
		r = mft_linear_find(net, PREFIX "out_proj", (int32_t)layer, -1, &d->out, err);
	if (!r)
		r = mft_norm_find(net, PREFIX "out_norm", (int32_t)layer, &d->norm, err);
	if (!r)
		r = find_param(net, PREFIX "conv1d.weight", layer, &d->conv, err);
	if (!r)
		r = find_param(net, PREFIX "A_log", layer, &d->a_log, err);
	if (!r)
		r = find_param(net, PREFIX "dt_bias", layer, &d->dt_bias, err);
	if (r)
		return r;
	mft_linear_replaces(net, &d->in);
	mft_linear_replaces(net, &d->out);
	d->in.ends_dx = true;
	mft_net_gradient_is_term(net, d->norm.weight);
	mft_net_gradient_is_term(net, d->norm.bias);
	return 0;
}

/* ---- memory ---- */

static uint64_t per_token(const struct mft_net *net, int64_t elements)
{
	return mft_matrix_bytes(net->io, net->tokens, elements);
}

static uint64_t floats(const struct mft_net *net, int64_t each)
{
	return mft_matrix_bytes(MFK_F32, net->tokens, each);
}

static struct mfk_delta shape(const struct mft_net *net, const struct delta_net *d)
{
	return (struct mfk_delta){
		.dtype = net->io,
		.grad = net->grad,
		.batch = net->batch,
		.seq = net->seq,
		.key_heads = d->key_heads,
		.value_heads = d->value_heads,
		.key_dim = d->key_dim,
		.value_dim = d->value_dim,
		.width = net->args->linear_conv_kernel_dim,
		.scale = 1 / sqrtf((float)d->key_dim),
	};
}

/* A plan without a device counts what a GPU works in: the states that chunks begin with, those of
 * one chunk, and gradients of q and k for each head of values. */
static uint64_t states_bytes(const struct mft_net *net, const struct delta_net *d)
{
	const struct mfk_delta whole = shape(net, d);

	if (net->device)
		return net->backend->ops->delta_scratch(net->device, &whole);
	return mft_matrix_bytes(
		MFK_F32, net->batch * 2 * (mfk_delta_chunk(net->seq) * d->value_dim + net->seq),
		d->value_heads * d->key_dim);
}

static void plan_memory(const struct mft_net *net, struct delta_net *d, struct mft_part_plan *p)
{
	const uint64_t keys = per_token(net, d->key_heads * d->key_dim);
	const uint64_t values = per_token(net, d->value_heads * d->value_dim);
	const uint64_t rates = floats(net, d->value_heads);

	d->packed = mft_part_plan_keep(p, per_token(net, d->in.out));
	d->q = mft_part_plan_keep(p, keys);
	d->k = mft_part_plan_keep(p, keys);
	d->v = mft_part_plan_keep(p, values);
	d->decay = mft_part_plan_keep(p, rates);
	d->beta = mft_part_plan_keep(p, rates);
	d->y = mft_part_plan_keep(p, values);
	d->stats = mft_part_plan_keep(p, mft_norm_stats_bytes(net->tokens * d->value_heads));
	d->normed = mft_part_plan_keep(p, values);
	d->gated = mft_part_plan_keep(p, values);
	mft_part_plan_scratch_anew(p);
	d->dpacked = mft_part_plan_scratch(p, per_token(net, d->in.out));
	d->dq = mft_part_plan_scratch(p, keys);
	d->dk = mft_part_plan_scratch(p, keys);
	d->dv = mft_part_plan_scratch(p, values);
	d->ddecay = mft_part_plan_scratch(p, rates);
	d->dbeta = mft_part_plan_scratch(p, rates);
	d->dy = mft_part_plan_scratch(p, values);
	d->dgated = mft_part_plan_scratch(p, values);
	d->states = mft_part_plan_scratch(p, states_bytes(net, d));
}

static int plan(struct mft_net *net, struct mft_part *part, struct mft_part_plan *p,
		struct mfs_error *err)
{
	const int64_t tp = net->parallel->size.tp;
	struct delta_net *d = part->own = mfs_arena_alloc(&net->arena, sizeof(*d));
	int r;

	if (!d)
		return mfs_fail_nomem(err);
	d->key_heads = net->args->linear_num_key_heads / tp;
	d->value_heads = net->args->linear_num_value_heads / tp;
	d->key_dim = net->args->linear_key_head_dim;
	d->value_dim = net->args->linear_value_head_dim;
	r = check(net, err);
	if (!r)
		r = find(net, d, part->layer, err);
	if (r)
		return r;
	part->keeps_x = mft_linear_keep_stream(net, part, &d->in, p);
	plan_memory(net, d, p);
	return 0;
}

/* ---- passes ---- */

static void *kept(const struct mft_net *net, const struct mft_part *part, uint64_t offset)
{
	return mft_part_kept(net, part, offset);
}

static struct mfk_delta delta_of(const struct mft_net *net, const struct mft_part *part)
{
	const struct delta_net *d = part->own;
	struct mfk_delta a = shape(net, d);

	a.packed = kept(net, part, d->packed);
	a.conv = mft_weight(net, d->conv);
	a.a_log = mft_weight(net, d->a_log);
	a.dt_bias = mft_weight(net, d->dt_bias);
	a.q = kept(net, part, d->q);
	a.k = kept(net, part, d->k);
	a.v = kept(net, part, d->v);
	a.decay = kept(net, part, d->decay);
	a.beta = kept(net, part, d->beta);
	a.out = kept(net, part, d->y);
	return a;
}

/* A place in a token's row of what `in` gives. */
static void *at_z(const struct mft_net *net, const struct delta_net *d, void *packed)
{
	const int64_t z = 2 * d->key_heads * d->key_dim + d->value_heads * d->value_dim;

	return (char *)packed + (size_t)z * mfk_dtype_size(net->io);
}

static struct mfk_gate gate_of(const struct mft_net *net, const struct mft_part *part)
{
	const struct delta_net *d = part->own;

	return (struct mfk_gate){
		.dtype = net->io,
		.silu = true,
		.rows = net->tokens,
		.cols = d->value_heads * d->value_dim,
		.ld = d->in.out,
		.x = kept(net, part, d->normed),
		.gate = at_z(net, d, kept(net, part, d->packed)),
		.y = kept(net, part, d->gated),
	};
}

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_part *part, const void *x, void *y)
{
	const struct delta_net *d = part->own;
	const struct mfk_delta a = delta_of(net, part);
	const struct mfk_gate gate = gate_of(net, part);

	mft_linear_forward(net, pass, &d->in, net->tokens, x, kept(net, part, d->packed));
	net->backend->ops->delta_inputs(pass->ctx, &a);
	net->backend->ops->delta_rule(pass->ctx, &a);
	mft_norm_forward(net, pass, &d->norm, net->tokens * d->value_heads, a.out, NULL, NULL,
			 kept(net, part, d->normed), kept(net, part, d->stats));
	net->backend->ops->gate(pass->ctx, &gate);
	if (y)
		mft_linear_forward(net, pass, &d->out, net->tokens, gate.y, y);
}

/* From the gradient of what `out` is of to that of what the rule gives. */
static void norm_backward(const struct mft_net *net, const struct mft_pass *pass,
			  const struct mft_part *part, void *dgated, void *dy)
{
	const struct delta_net *d = part->own;
	struct mfk_gate gate = gate_of(net, part);

	gate.dy = dgated;
	gate.dx = dgated;
	gate.dgate = at_z(net, d, mft_net_scratch(net, d->dpacked));
	net->backend->ops->gate_backward(pass->ctx, &gate);
	mft_norm_backward(net, pass, &d->norm, net->tokens * d->value_heads, kept(net, part, d->y),
			  kept(net, part, d->stats), dgated, NULL, dy);
}

static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const void *x, const void *dy, void *dx)
{
	const struct delta_net *d = part->own;
	struct mfk_delta a = delta_of(net, part);
	void *dgated = mft_net_scratch(net, d->dgated), *dout = mft_net_scratch(net, d->dy);

	mft_linear_backward(net, pass, &d->out, net->tokens, kept(net, part, d->gated), dy, dgated);
	norm_backward(net, pass, part, dgated, dout);

	a.dout = dout;
	a.dq = mft_net_scratch(net, d->dq);
	a.dk = mft_net_scratch(net, d->dk);
	a.dv = mft_net_scratch(net, d->dv);
	a.ddecay = mft_net_scratch(net, d->ddecay);
	a.dbeta = mft_net_scratch(net, d->dbeta);
	a.scratch = mft_net_scratch(net, d->states);
	net->backend->ops->delta_rule_backward(pass->ctx, &a);

	a.dpacked = mft_net_scratch(net, d->dpacked);
	a.dconv = mft_grad(net, d->conv);
	a.da_log = mft_grad(net, d->a_log);
	a.ddt_bias = mft_grad(net, d->dt_bias);
	net->backend->ops->delta_inputs_backward(pass->ctx, &a);

	mft_stream_await(net, pass);
	mft_linear_backward(net, pass, &d->in, net->tokens, x, a.dpacked, dx);
}

const struct mft_part_kind mft_part_delta_net = {
	.name = "gated delta net",
	.divided = true,
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
