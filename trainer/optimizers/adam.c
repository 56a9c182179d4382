/* AdamW: two moments of each element. */
#include <errno.h>
#include <math.h>

#include "trainer/optimizers/optimizer_i.h"

static enum mfs_dtype m_type(const struct mft_train_config *c)
{
	return c->exp_avg_dtype;
}

static enum mfs_dtype v_type(const struct mft_train_config *c)
{
	return c->exp_avg_sq_dtype;
}

/* cpu_offloading/hybrid_optimizer.py: HybridDeviceOptimizer */
static int settle(struct mft_flag_values *v, struct mfs_error *err)
{
	const double fraction = mft_flag_real(v, name_of(OPTIMIZER_OFFLOAD_FRACTION), 1);

	if (!mft_flag_truth(v, name_of(OPTIMIZER_CPU_OFFLOAD)))
		return 0;
	if (!mft_flag_truth(v, name_of(USE_PRECISION_AWARE_OPTIMIZER)))
		return mfs_fail(err, -EINVAL,
				"--optimizer-cpu-offload: expected "
				"--use-precision-aware-optimizer with it");
	if (fraction < 0 || fraction > 1)
		return mfs_fail(err, -EINVAL,
				"--optimizer-offload-fraction: expected 0 to 1, found %g",
				fraction);
	return 0;
}

static double eps_of(const struct mft_train_config *c, bool mup)
{
	return mup ? c->adam_eps * mft_optimizer_mup(c) : c->adam_eps;
}

static void step(const struct mfk_ops *ops, struct mfk_ctx *ctx, const struct mft_train_config *c,
		 const struct mft_update_piece *p)
{
	const double number = (double)p->number;
	const struct mfk_adamw a = {
		.weight_type = p->weight_type,
		.grad_type = p->grad_type,
		.main_type = p->slot_type[MFT_SLOT_MAIN],
		.m_type = p->slot_type[MFT_SLOT_KEPT],
		.v_type = p->slot_type[MFT_SLOT_KEPT + 1],
		.count = p->count,
		.weight = p->weight,
		.main = p->slot[MFT_SLOT_MAIN],
		.m = p->slot[MFT_SLOT_KEPT],
		.v = p->slot[MFT_SLOT_KEPT + 1],
		.grad = p->grad,
		.lr = p->lr,
		.beta1 = (float)c->adam_beta1,
		.beta2 = (float)c->adam_beta2,
		.eps = (float)eps_of(c, p->mup),
		.wd = p->wd,
		.correction1 = (float)(1 - pow(c->adam_beta1, number)),
		.correction2 = (float)(1 - pow(c->adam_beta2, number)),
		.grad_scale = p->grad_scale,
		.l2 = !c->decoupled_weight_decay,
	};

	ops->adamw(ctx, &a);
}

/* What Transformer Engine's Adam needs in a group, and what torch's does: a run may have either. */
static void save_group(struct mfs_pickle_writer *w, const struct mft_train_config *c, bool mup)
{
	mfs_pickle_name(w, "betas");
	mfs_pickle_float(w, c->adam_beta1);
	mfs_pickle_float(w, c->adam_beta2);
	mfs_pickle_op(w, MFS_OP_TUPLE2);
	mft_group_real(w, "eps", eps_of(c, mup));
	mft_group_flag(w, "bias_correction", true);
	mft_group_flag(w, "amsgrad", false);
	mft_group_flag(w, "capturable", false);
	mft_group_flag(w, "decoupled_weight_decay", c->decoupled_weight_decay);
	mft_group_flag(w, "differentiable", false);
	mft_group_none(w, "foreach");
	mft_group_none(w, "fused");
	mft_group_flag(w, "maximize", false);
}

const struct mft_optimizer_kind mft_adam = {
	.name = "adam",
	.kept = {{MFS_STATE_EXP_AVG, m_type}, {MFS_STATE_EXP_AVG_SQ, v_type}},
	.counts_updates = true,
	.settle = settle,
	.step = step,
	.save_group = save_group,
};
