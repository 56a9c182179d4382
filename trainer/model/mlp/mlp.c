/*
 * The MLP of a dense layer, and shared experts: fc2(activation(fc1(x))). A gated one has [gate; up]
 * in fc1, and activation(gate) * up (megatron/core/transformer/mlp.py).
 */
#include <stdio.h>

#include "formats/ckpt/names.h"
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/mlp/mlp_i.h"

enum mfk_activation mft_activation(const struct mfs_megatron_args *args)
{
	if (args->swiglu)
		return MFK_SILU;
	if (args->quick_geglu)
		return MFK_QUICK_GELU;
	if (args->squared_relu)
		return MFK_RELU_SQUARED;
	return args->exact_gelu ? MFK_GELU_ERF : MFK_GELU_TANH;
}

static int find(const struct mft_net *net, const char *prefix, const char *linear, uint32_t layer,
		struct mft_linear *ret, struct mfs_error *err)
{
	char name[MFS_NAME_MAX];

	snprintf(name, sizeof(name), "%s.%s", prefix, linear);
	return mft_linear_find(net, name, (int32_t)layer, -1, ret, err);
}

int mft_mlp_plan(struct mft_net *net, const char *prefix, uint32_t layer, struct mft_mlp *m,
		 struct mft_part_plan *p, struct mfs_error *err)
{
	uint64_t (*place)(struct mft_part_plan * p, uint64_t bytes) =
		m->again ? mft_part_plan_scratch : mft_part_plan_keep;
	int r = find(net, prefix, "linear_fc1", layer, &m->fc1, err);

	if (!r)
		r = find(net, prefix, "linear_fc2", layer, &m->fc2, err);
	if (r)
		return r;
	mft_linear_replaces(net, &m->fc1);
	mft_linear_replaces(net, &m->fc2);
	m->fc1.ends_dx = true;
	m->gated = mfs_args_gated(net->args);
	m->activation = mft_activation(net->args);
	m->hidden = place(p, mft_matrix_bytes(net->io, net->tokens, m->fc1.out));
	m->active_is_scratch = m->again || mft_linear_keep(net, m->part, &m->fc2, p);
	if (m->active_is_scratch)
		place = mft_part_plan_scratch;
	m->active = place(p, mft_matrix_bytes(net->io, net->tokens, m->fc2.in));
	m->dactive = mft_part_plan_scratch(p, mft_matrix_bytes(net->io, net->tokens, m->fc2.in));
	return 0;
}

static void *place_of(const struct mft_net *net, const struct mft_part *part, bool scratch,
		      uint64_t offset)
{
	return scratch ? mft_net_scratch(net, offset) : mft_part_kept(net, part, offset);
}

static struct mfk_act activation(const struct mft_net *net, const struct mft_part *part,
				 const struct mft_mlp *m, const float *scale)
{
	return (struct mfk_act){
		.dtype = net->io,
		.kind = m->activation,
		.gated = m->gated,
		.rows = net->tokens,
		.cols = m->fc2.in,
		.row_scale = scale,
		.x = place_of(net, part, m->again, m->hidden),
		.y = place_of(net, part, m->active_is_scratch, m->active),
	};
}

void mft_mlp_forward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const struct mft_mlp *m, const float *scale,
		     const void *x, void *y)
{
	const struct mfk_act act = activation(net, part, m, scale);

	mft_linear_forward_act(net, pass, &m->fc1, x, &act);
	mft_linear_forward(net, pass, &m->fc2, net->tokens, act.y, y);
}

/* The gradient of what fc1 gave takes that one's place, or the place of the activation's gradient,
 * as wide where nothing is gated: a product's epilogue cannot write where it reads. */
void mft_mlp_backward(const struct mft_net *net, const struct mft_pass *pass,
		      const struct mft_part *part, const struct mft_mlp *m, const float *scale,
		      float *dscale, const void *x, const void *dy, void *dx)
{
	struct mfk_act act = activation(net, part, m, scale);
	void *dactive = mft_net_scratch(net, m->dactive);

	if (m->again) {
		mft_stream_await(net, pass);
		mft_mlp_forward(net, pass, part, m, scale, x, NULL);
	}
	act.dy = dactive;
	act.dx = m->gated ? place_of(net, part, m->again, m->hidden) : dactive;
	act.drow_scale = dscale;
	mft_linear_backward_act(net, pass, &m->fc2, dy, &act);
	mft_stream_await(net, pass);
	mft_linear_backward(net, pass, &m->fc1, net->tokens, x, act.dx, dx);
}

/* ---- the part ---- */

static int plan(struct mft_net *net, struct mft_part *part, struct mft_part_plan *p,
		struct mfs_error *err)
{
	struct mft_mlp *m = part->own = mfs_arena_alloc(&net->arena, sizeof(*m));
	int r;

	if (!m)
		return mfs_fail_nomem(err);
	m->part = part;
	r = mft_mlp_plan(net, "decoder.layers.mlp", part->layer, m, p, err);
	if (!r)
		part->keeps_x = mft_linear_keep_stream(net, part, &m->fc1, p);
	return r;
}

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_part *part, const void *x, void *y)
{
	mft_mlp_forward(net, pass, part, part->own, NULL, x, y);
}

static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const void *x, const void *dy, void *dx)
{
	mft_mlp_backward(net, pass, part, part->own, NULL, NULL, x, dy, dx);
}

const struct mft_part_kind mft_part_mlp = {
	.name = "MLP",
	.module = "mlp",
	.divided = true,
	.plan = plan,
	.forward = forward,
	.backward = backward,
};
