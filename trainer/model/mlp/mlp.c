/*
 * The MLP of a dense layer, and shared experts: fc2(activation(fc1(x))). A gated one has [gate; up]
 * in fc1, and activation(gate) * up (megatron/core/transformer/mlp.py).
 */
#include <stdio.h>

#include "formats/ckpt/names.h"
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/mlp/mlp_i.h"

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

static int find(const struct mfs_net *net, const char *prefix, const char *linear, uint32_t layer,
		struct mfs_linear *ret, struct mfs_error *err)
{
	char name[MFS_NAME_MAX];

	snprintf(name, sizeof(name), "%s.%s", prefix, linear);
	return mfs_linear_find(net, name, (int32_t)layer, -1, ret, err);
}

int mfs_mlp_plan(struct mfs_net *net, const char *prefix, uint32_t layer, struct mfs_mlp *m,
		 struct mfs_part_plan *p, struct mfs_error *err)
{
	uint64_t (*place)(struct mfs_part_plan * p, uint64_t bytes) =
		m->again ? mfs_part_plan_scratch : mfs_part_plan_keep;
	int r = find(net, prefix, "linear_fc1", layer, &m->fc1, err);

	if (!r)
		r = find(net, prefix, "linear_fc2", layer, &m->fc2, err);
	if (r)
		return r;
	mfs_linear_replaces(net, &m->fc1);
	mfs_linear_replaces(net, &m->fc2);
	m->fc1.ends_dx = true;
	m->gated = mfs_args_gated(net->args);
	m->activation = mfs_activation(net->args);
	m->hidden = place(p, mfs_matrix_bytes(net->io, net->tokens, m->fc1.out));
	m->active = place(p, mfs_matrix_bytes(net->io, net->tokens, m->fc2.in));
	m->dactive = mfs_part_plan_scratch(p, mfs_matrix_bytes(net->io, net->tokens, m->fc2.in));
	return 0;
}

static void *place_of(const struct mfs_net *net, const struct mfs_part *part,
		      const struct mfs_mlp *m, uint64_t offset)
{
	return m->again ? mfs_net_scratch(net, offset) : mfs_part_kept(net, part, offset);
}

static struct mfk_act activation(const struct mfs_net *net, const struct mfs_part *part,
				 const struct mfs_mlp *m, const float *scale)
{
	return (struct mfk_act){
		.dtype = net->io,
		.kind = m->activation,
		.gated = m->gated,
		.rows = net->tokens,
		.cols = m->fc2.in,
		.row_scale = scale,
		.x = place_of(net, part, m, m->hidden),
		.y = place_of(net, part, m, m->active),
	};
}

void mfs_mlp_forward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_part *part, const struct mfs_mlp *m, const float *scale,
		     const void *x, void *y)
{
	const struct mfk_act act = activation(net, part, m, scale);

	mfs_linear_forward_act(net, run, &m->fc1, x, &act);
	if (y)
		mfs_linear_forward(net, run, &m->fc2, net->tokens, act.y, y);
}

/* The gradient of what fc1 gave takes that one's place, or the place of the activation's gradient,
 * as wide where nothing is gated: a product's epilogue cannot write where it reads. */
void mfs_mlp_backward(const struct mfs_net *net, const struct mfs_pass *run,
		      const struct mfs_part *part, const struct mfs_mlp *m, const float *scale,
		      float *dscale, const void *x, const void *dy, void *dx)
{
	struct mfk_act act = activation(net, part, m, scale);
	void *dactive = mfs_net_scratch(net, m->dactive);

	if (m->again) {
		mfs_stream_await(net, run);
		mfs_mlp_forward(net, run, part, m, scale, x, NULL);
	}
	act.dy = dactive;
	act.dx = m->gated ? place_of(net, part, m, m->hidden) : dactive;
	act.drow_scale = dscale;
	mfs_linear_backward_act(net, run, &m->fc2, dy, &act);
	mfs_stream_await(net, run);
	mfs_linear_backward(net, run, &m->fc1, net->tokens, x, act.dx, dx);
}

/* ---- the part ---- */

static int plan(struct mfs_net *net, struct mfs_part *part, struct mfs_part_plan *p,
		struct mfs_error *err)
{
	struct mfs_mlp *m = part->own = mfs_arena_alloc(&net->arena, sizeof(*m));

	if (!m)
		return mfs_fail_nomem(err);
	return mfs_mlp_plan(net, "decoder.layers.mlp", part->layer, m, p, err);
}

static void forward(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_part *part, const void *x, void *y)
{
	mfs_mlp_forward(net, run, part, part->own, NULL, x, y);
}

static void backward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	mfs_mlp_backward(net, run, part, part->own, NULL, NULL, x, dy, dx);
}

const struct mfs_part_kind mfs_part_mlp = {
	.name = "MLP",
	.module = "mlp",
	.divided = true,
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
