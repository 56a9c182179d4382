/* SGD: the momentum of each element, or nothing. */
#include <errno.h>

#include "trainer/optimizers/optimizer_i.h"

static enum mfs_dtype momentum_type(const struct mft_train_config *c)
{
	return c->sgd_momentum != 0 ? MFS_F32 : MFS_DTYPE_NONE;
}

/* optimizer_config.py: OptimizerConfig; distrib_optimizer.py: DistributedOptimizer. */
static const struct mft_dests refuses = {{
	USE_DISTRIBUTED_OPTIMIZER,
	USE_MEGATRON_FSDP,
	USE_PRECISION_AWARE_OPTIMIZER,
	OPTIMIZER_CPU_OFFLOAD,
}};

/* torch/optim/sgd.py */
static int settle(struct mft_flag_values *v, struct mfs_error *err)
{
	const double momentum = mft_flag_real(v, name_of(SGD_MOMENTUM), 0);

	if (!(momentum >= 0))
		return mfs_fail(err, -EINVAL, "--sgd-momentum: expected 0 or more, found %g",
				momentum);
	return 0;
}

static void step(const struct mfk_ops *ops, struct mfk_ctx *ctx, const struct mft_train_config *c,
		 const struct mft_update_piece *p)
{
	const struct mfk_sgd a = {
		.weight_type = p->weight_type,
		.grad_type = p->grad_type,
		.main_type = p->slot_type[MFT_SLOT_MAIN],
		.m_type = p->slot_type[MFT_SLOT_KEPT],
		.count = p->count,
		.weight = p->weight,
		.main = p->slot[MFT_SLOT_MAIN],
		.m = p->slot[MFT_SLOT_KEPT],
		.grad = p->grad,
		.lr = p->lr,
		.momentum = (float)c->sgd_momentum,
		.wd = p->wd,
		.grad_scale = p->grad_scale,
	};

	ops->sgd(ctx, &a);
}

/* Of torch's SGD, whose pairs Transformer Engine's and Apex' have, too. */
static void save_group(struct mfs_pickle_writer *w, const struct mft_train_config *c, bool mup)
{
	(void)mup;
	mft_group_real(w, "momentum", c->sgd_momentum);
	mft_group_real(w, "dampening", 0);
	mft_group_flag(w, "nesterov", false);
	mft_group_flag(w, "maximize", false);
	mft_group_none(w, "foreach");
	mft_group_flag(w, "differentiable", false);
	mft_group_none(w, "fused");
}

const struct mft_optimizer_kind mft_sgd = {
	.name = "sgd",
	.kept = {{MFS_STATE_MOMENTUM, momentum_type}},
	.mup_of_vectors = true,
	.refuses = &refuses,
	.settle = settle,
	.step = step,
	.save_group = save_group,
};
