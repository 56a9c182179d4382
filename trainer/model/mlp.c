/*
 * The MLP of a dense layer: fc2(activation(fc1(x))). A gated one has [gate; up] in fc1, and
 * activation(gate) * up (megatron/core/transformer/mlp.py).
 */
#include "trainer/model/net_i.h"

struct mlp {
	struct mfs_linear fc1, fc2;
	bool gated;
	enum mfk_activation activation;
	uint64_t hidden, active; /* kept: [T, fc1.out], [T, fc2.in] */
	uint64_t dactive;	 /* scratch: [T, fc2.in] */
};

enum mfk_activation mfs_activation(const struct mfs_megatron_args *args)
{
	if (args->swiglu)
		return MFK_SILU;
	if (args->quick_geglu)
		return MFK_QUICK_GELU;
	if (args->squared_relu)
		return MFK_RELU_SQUARED;
	return args->exact_gelu ? MFK_GELU_ERF : MFK_GELU_TANH;
}

static int plan(struct mfs_net *net, struct mfs_part *part, struct mfs_plan *p,
		struct mfs_error *err)
{
	struct mlp *m = part->own = mfs_arena_alloc(&net->arena, sizeof(*m));
	int r;

	if (!m)
		return mfs_fail_nomem(err);
	r = mfs_linear_find(net, "decoder.layers.mlp.linear_fc1", (int32_t)part->layer, -1, &m->fc1,
			    err);
	if (!r)
		r = mfs_linear_find(net, "decoder.layers.mlp.linear_fc2", (int32_t)part->layer, -1,
				    &m->fc2, err);
	if (r)
		return r;
	mfs_linear_replaces(net, &m->fc1);
	mfs_linear_replaces(net, &m->fc2);
	m->gated = mfs_args_gated(net->args);
	m->activation = mfs_activation(net->args);
	m->hidden = mfs_plan_keep(p, mfs_matrix_bytes(net->io, net->tokens, m->fc1.out));
	m->active = mfs_plan_keep(p, mfs_matrix_bytes(net->io, net->tokens, m->fc2.in));
	m->dactive = mfs_plan_scratch(p, mfs_matrix_bytes(net->io, net->tokens, m->fc2.in));
	return 0;
}

static struct mfk_act activation(const struct mfs_net *net, const struct mfs_part *part)
{
	const struct mlp *m = part->own;

	return (struct mfk_act){
		.dtype = net->io,
		.kind = m->activation,
		.gated = m->gated,
		.rows = net->tokens,
		.cols = m->fc2.in,
		.x = mfs_part_kept(net, part, m->hidden),
		.y = mfs_part_kept(net, part, m->active),
	};
}

static void forward(const struct mfs_net *net, const struct mfs_run *run,
		    const struct mfs_part *part, const void *x, void *y)
{
	const struct mlp *m = part->own;
	const struct mfk_act act = activation(net, part);

	mfs_linear_forward(net, run, &m->fc1, net->tokens, x, mfs_part_kept(net, part, m->hidden));
	net->backend->ops->act(run->ctx, &act);
	if (y)
		mfs_linear_forward(net, run, &m->fc2, net->tokens, act.y, y);
}

/* The gradient of what fc1 gave takes that one's place. */
static void backward(const struct mfs_net *net, const struct mfs_run *run,
		     const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	const struct mlp *m = part->own;
	struct mfk_act act = activation(net, part);
	void *dactive = mfs_net_scratch(net, m->dactive);

	mfs_linear_backward(net, run, &m->fc2, net->tokens, act.y, dy, dactive);
	act.dy = dactive;
	act.dx = mfs_part_kept(net, part, m->hidden);
	net->backend->ops->act_backward(run->ctx, &act);
	mfs_linear_backward(net, run, &m->fc1, net->tokens, x, act.dx, dx);
}

const struct mfs_part_kind mfs_part_mlp = {
	.name = "MLP",
	.module = "mlp",
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
