/*
 * A layer of experts: router, dispatch, experts and shared experts put together (moe_i.h). What
 * shared experts compute, and the router's gradient, does not wait for rows on their way.
 */
#include "trainer/model/base/tensor_parallel.h"
#include "trainer/model/mlp/moe_i.h"

static int refuse(struct mfs_error *err, const char *flag)
{
	return mfs_fail(err, -ENOTSUP, "%s cannot be trained here", flag);
}

static int check(const struct mft_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;

	if (a->moe_mlp_glu_interleave_size > 0)
		return refuse(err, "--moe-mlp-glu-interleave-size");
	if (a->moe_shared_expert_glu_interleave_size > 0)
		return refuse(err, "--moe-shared-expert-glu-interleave-size");
	/* moe_layer.py: MoELayer.forward. */
	if (mft_is_divided(net) && !net->config->sequence_parallel)
		return mfs_fail(err, -EINVAL,
				"--num-experts with --tensor-model-parallel-size %u: expected "
				"--sequence-parallel with them",
				net->parallel->size.tp);
	return 0;
}

static void plan_scratch(const struct mft_net *net, struct mft_moe *m, struct mft_part_plan *p)
{
	mft_dispatch_plan_scratch(net, &m->dispatch, p);
	mft_experts_plan_scratch(net, &m->dispatch, &m->experts, p);
	mft_router_plan_scratch(net, &m->router, p);
	mft_drop_plan_scratch(net, &m->drop, p);
	mft_shared_experts_plan_scratch(net, &m->shared, p);
}

static int plan(struct mft_net *net, struct mft_part *part, struct mft_part_plan *p,
		struct mfs_error *err)
{
	struct mft_moe *m = part->own = mfs_arena_alloc(&net->arena, sizeof(*m));
	int rc;

	if (!m)
		return mfs_fail_nomem(err);
	m->shared.mlp.part = part;
	rc = check(net, err);
	if (!rc)
		rc = mft_router_plan(net, part->layer, &m->router, p, err);
	if (!rc)
		rc = mft_drop_plan(net, &m->drop, err);
	if (!rc)
		rc = mft_dispatch_plan(net, &m->drop, &m->dispatch, p, err);
	if (!rc)
		rc = mft_experts_plan(net, part, &m->dispatch, &m->experts, p, err);
	if (!rc)
		rc = mft_shared_experts_plan(net, part->layer, &m->shared, p, err);
	if (!rc)
		plan_scratch(net, m, p);
	return rc;
}

static int begin(struct mft_net *net, struct mfk_ctx *ctx, const struct mft_part *part,
		 struct mfs_error *err)
{
	struct mft_moe *m = part->own;

	(void)err;
	m->dispatch.wants_host = mft_experts_want_host(net, part);
	mft_router_begin(net, ctx, &m->router);
	return 0;
}

static void forward(const struct mft_net *net, const struct mft_pass *pass,
		    const struct mft_part *part, const void *x, void *y)
{
	const struct mft_moe *m = part->own;
	void *rows;

	mft_router_forward(net, pass, part, x);
	mft_dispatch_sort(net, pass, part, mft_drop_forward(net, pass, part),
			  mft_router_totals(net, pass, &m->router));
	rows = mft_dispatch_to_experts(net, pass, part, x);
	if (m->shared.exist)
		mft_shared_experts_forward(net, pass, part, x, y);
	mft_experts_await(net, pass->ctx);
	mft_experts_forward(net, pass, part, rows, y);
	if (!y)
		return;
	mft_dispatch_back(net, pass, part);
	mft_experts_await(net, pass->ctx);
	mft_dispatch_combine(net, pass, part, m->shared.exist, y);
}

/* The router is the first that writes dx. */
static void backward(const struct mft_net *net, const struct mft_pass *pass,
		     const struct mft_part *part, const void *x, const void *dy, void *dx)
{
	const struct mft_moe *m = part->own;
	const float *dprob = mft_dispatch_probs_back(net, pass, part,
						     mft_experts_backward(net, pass, part, x, dy));

	mft_dispatch_back(net, pass, part);
	mft_router_backward(net, pass, part, dprob, x, dx);
	if (m->shared.exist)
		mft_shared_experts_backward(net, pass, part, x, dy, dx);
	mft_experts_await(net, pass->ctx);
	mft_dispatch_combine(net, pass, part, true, dx);
}

static void begin_step(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_part *part)
{
	const struct mft_moe *m = part->own;

	mft_balance_begin_step(net, ctx, &m->router);
}

static int end_step(const struct mft_net *net, struct mfk_ctx *ctx, const struct mft_part *part,
		    struct mfs_error *err)
{
	const struct mft_moe *m = part->own;

	return mft_router_end_step(net, ctx, &m->router, err);
}

const struct mft_part_kind mft_part_moe = {
	.name = "mixture of experts",
	.module = "moe",
	.plan = plan,
	.begin = begin,
	.forward = forward,
	.backward = backward,
	.begin_step = begin_step,
	.end_step = end_step,
};
