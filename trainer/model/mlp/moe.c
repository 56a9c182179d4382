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

static int check(const struct mfs_net *net, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = net->args;

	if (a->moe_mlp_glu_interleave_size > 0)
		return refuse(err, "--moe-mlp-glu-interleave-size");
	if (a->moe_shared_expert_glu_interleave_size > 0)
		return refuse(err, "--moe-shared-expert-glu-interleave-size");
	/* moe_layer.py: MoELayer.forward. */
	if (mfs_is_divided(net) && !net->config->sequence_parallel)
		return mfs_fail(err, -EINVAL,
				"--num-experts with --tensor-model-parallel-size %u: expected "
				"--sequence-parallel beside them",
				net->parallel->size.tp);
	return 0;
}

static void plan_scratch(const struct mfs_net *net, struct mfs_moe *m, struct mfs_part_plan *p)
{
	mfs_dispatch_plan_scratch(net, &m->dispatch, p);
	mfs_experts_plan_scratch(net, &m->dispatch, &m->experts, p);
	mfs_router_plan_scratch(net, &m->router, p);
	mfs_drop_plan_scratch(net, &m->drop, p);
	mfs_shared_experts_plan_scratch(net, &m->shared, p);
}

static int plan(struct mfs_net *net, struct mfs_part *part, struct mfs_part_plan *p,
		struct mfs_error *err)
{
	struct mfs_moe *m = part->own = mfs_arena_alloc(&net->arena, sizeof(*m));
	int rc;

	if (!m)
		return mfs_fail_nomem(err);
	rc = check(net, err);
	if (!rc)
		rc = mfs_router_plan(net, part->layer, &m->router, p, err);
	if (!rc)
		rc = mfs_drop_plan(net, &m->drop, err);
	if (!rc)
		rc = mfs_dispatch_plan(net, &m->drop, &m->dispatch, p, err);
	if (!rc)
		rc = mfs_experts_plan(net, part->layer, &m->dispatch, &m->experts, p, err);
	if (!rc)
		rc = mfs_shared_experts_plan(net, part->layer, &m->shared, p, err);
	if (!rc)
		plan_scratch(net, m, p);
	return rc;
}

static int begin(struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_part *part,
		 struct mfs_error *err)
{
	struct mfs_moe *m = part->own;

	(void)err;
	m->dispatch.wants_host = mfs_experts_want_host(net, part);
	mfs_router_begin(net, ctx, &m->router);
	return 0;
}

static void forward(const struct mfs_net *net, const struct mfs_pass *run,
		    const struct mfs_part *part, const void *x, void *y)
{
	const struct mfs_moe *m = part->own;
	void *rows;

	mfs_router_forward(net, run, part, x);
	mfs_dispatch_sort(net, run, part, mfs_drop_forward(net, run, part),
			  mfs_router_totals(net, run, &m->router));
	rows = mfs_dispatch_to_experts(net, run, part, x);
	if (m->shared.exist)
		mfs_shared_experts_forward(net, run, part, x, y);
	mfs_experts_await(net, run->ctx);
	mfs_experts_forward(net, run, part, rows, y);
	if (!y)
		return;
	mfs_dispatch_back(net, run, part);
	mfs_experts_await(net, run->ctx);
	mfs_dispatch_combine(net, run, part, m->shared.exist, y);
}

/* The router is the first that writes dx. */
static void backward(const struct mfs_net *net, const struct mfs_pass *run,
		     const struct mfs_part *part, const void *x, const void *dy, void *dx)
{
	const struct mfs_moe *m = part->own;
	const float *dprob = mfs_dispatch_probs_back(net, run, part,
						     mfs_experts_backward(net, run, part, x, dy));

	mfs_dispatch_back(net, run, part);
	mfs_router_backward(net, run, part, dprob, x, dx);
	if (m->shared.exist)
		mfs_shared_experts_backward(net, run, part, x, dy, dx);
	mfs_experts_await(net, run->ctx);
	mfs_dispatch_combine(net, run, part, true, dx);
}

static void begin_step(const struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_part *part)
{
	const struct mfs_moe *m = part->own;

	mfs_balance_begin_step(net, ctx, &m->router);
}

static int end_step(const struct mfs_net *net, struct mfk_ctx *ctx, const struct mfs_part *part,
		    struct mfs_error *err)
{
	const struct mfs_moe *m = part->own;

	return mfs_router_end_step(net, ctx, &m->router, err);
}

const struct mfs_part_kind mfs_part_moe = {
	.name = "mixture of experts",
	.module = "moe",
	.plan = plan,
	.begin = begin,
	.forward = forward,
	.backward = backward,
	.begin_step = begin_step,
	.end_step = end_step,
};
