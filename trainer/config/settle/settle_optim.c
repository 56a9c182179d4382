/* The precision, the optimizer and what is kept for the backward pass. */
#include "formats/base/str.h"
#include "trainer/config/settle/settle_i.h"
#include "trainer/optimizers/optimizer.h"

/* ---- precision ---- */

static int settle_bf16(struct settle *s, enum mfs_dtype main_grads)
{
	if (is(s, "accumulate_allreduce_grads_in_fp32") && main_grads != MFS_F32)
		return mfs_fail(s->err, -EINVAL,
				"--main-grads-dtype: expected fp32 with "
				"--accumulate-allreduce-grads-in-fp32");
	if (is(s, "grad_reduce_in_bf16"))
		mfs_flag_set_truth(s->v, "accumulate_allreduce_grads_in_fp32", false);
	else if (main_grads == MFS_F32)
		mfs_flag_set_truth(s->v, "accumulate_allreduce_grads_in_fp32", true);
	return 0;
}

int mfs_settle_precision(struct settle *s)
{
	static const char *const states[] = {"main_grads_dtype", "main_params_dtype",
					     "exp_avg_dtype", "exp_avg_sq_dtype"};
	const bool fp16 = is(s, "fp16"), bf16 = is(s, "bf16");
	char spelling[MFS_FLAG_SPELLING];

	if (fp16 && bf16)
		return mfs_fail(s->err, -EINVAL, "--fp16 and --bf16 exclude each other");
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (mfs_flag_get(s->v, states[i])->dtype != MFS_F32 &&
		    !is(s, "use_precision_aware_optimizer"))
			return mfs_fail(s->err, -EINVAL,
					"%s: expected fp32, or --use-precision-aware-optimizer "
					"beside it",
					flag(states[i], spelling));
	mfs_flag_set_dtype(s->v, "params_dtype", fp16 ? MFS_F16 : bf16 ? MFS_BF16 : MFS_F32);
	/* A dynamic loss scale finds them by itself. */
	if (fp16 && mfs_flag_real(s->v, "loss_scale", 0) == 0)
		mfs_flag_set_truth(s->v, "check_for_nan_in_loss_and_grad", false);
	return bf16 ? settle_bf16(s, mfs_flag_get(s->v, "main_grads_dtype")->dtype) : 0;
}

/* ---- 8-bit floats ---- */

/* What Megatron asks of them holds here, too, so that a line that is taken is one of Megatron's
 * (arguments.py: validate_args; transformer_config.py: __post_init__). */
int mfs_settle_fp8(struct settle *s)
{
	const bool fp8 = has(s, "fp8");
	const char *const recipe = text(s, "fp8_recipe");
	static const char *const parts[] = {"fp8_param_gather", "fp8_output_proj",
					    "moe_router_padding_for_quantization",
					    "moe_router_padding_for_fp8"};
	char spelling[MFS_FLAG_SPELLING];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !fp8; i++)
		if (is(s, parts[i]))
			return mfs_fail(s->err, -EINVAL, "%s: expected --fp8-format beside it",
					flag(parts[i], spelling));
	if (!fp8)
		return 0;
	if (is(s, "fp8_param_gather") && !is(s, "use_distributed_optimizer") &&
	    !is(s, "use_torch_fsdp2") && !is(s, "use_megatron_fsdp"))
		return mfs_fail(s->err, -EINVAL,
				"--fp8-param-gather: expected --use-distributed-optimizer beside "
				"it");
	if (is(s, "fp8_output_proj") && !mfs_str_is(recipe, "mxfp8"))
		return mfs_fail(s->err, -EINVAL,
				"--fp8-output-proj: expected --fp8-recipe mxfp8 beside it, found "
				"%s",
				recipe);
	if (is(s, "first_last_layers_bf16") && mfs_str_is(recipe, "delayed"))
		return mfs_fail(s->err, -EINVAL,
				"--first-last-layers-bf16: expected another --fp8-recipe than "
				"delayed beside it");
	if (mfs_str_is(recipe, "custom") && !has(s, "fp8_quantizer_factory"))
		return mfs_fail(s->err, -ENODATA,
				"--fp8-quantizer-factory is missing, which --fp8-recipe custom "
				"needs");
	return 0;
}

/* ---- which optimizer ---- */

int mfs_settle_optimizer(struct settle *s)
{
	const struct mfs_optimizer_kind *kind = mfs_optimizer_kind(text(s, "optimizer"));
	const char *const *dest = kind->refuses;
	char spelling[MFS_FLAG_SPELLING];

	for (; dest && *dest; dest++)
		if (is(s, *dest))
			return mfs_fail(s->err, -ENOTSUP,
					"%s: expected --optimizer adam beside it, found %s",
					flag(*dest, spelling), kind->name);
	return kind->check ? kind->check(s->v, s->err) : 0;
}

/* ---- the optimizer ---- */

int mfs_settle_rates(struct settle *s)
{
	const double lr = mfs_flag_real(s->v, "lr", 0), least = mfs_flag_real(s->v, "min_lr", 0);

	if (!has(s, "lr") && !is(s, "skip_train") && !s->c->dry_run)
		return require(s, "lr");
	/* optimizer_param_scheduler.py: OptimizerParamScheduler */
	if (lr < 0)
		return mfs_fail(s->err, -EINVAL, "--lr: expected 0 or more, found %g", lr);
	if (least < 0)
		return mfs_fail(s->err, -EINVAL, "--min-lr: expected 0 or more, found %g", least);
	if (has(s, "lr") && !(least <= lr))
		return mfs_fail(s->err, -EINVAL, "--min-lr: expected at most --lr %g, found %g", lr,
				least);
	return 0;
}

int mfs_settle_decay(struct settle *s)
{
	const bool constant = mfs_str_is(text(s, "weight_decay_incr_style"), "constant");
	const bool start = has(s, "start_weight_decay"), end = has(s, "end_weight_decay");
	const double decay = mfs_flag_real(s->v, "weight_decay", 0);

	/* Megatron-Bridge says all three, and means one. */
	if (constant && (mfs_flag_real(s->v, "start_weight_decay", decay) != decay ||
			 mfs_flag_real(s->v, "end_weight_decay", decay) != decay))
		return mfs_fail(s->err, -EINVAL,
				"%s: expected --weight-decay-incr-style linear or cosine beside it",
				start ? "--start-weight-decay" : "--end-weight-decay");
	if (!constant && (!start || !end))
		return mfs_fail(s->err, -ENODATA,
				"%s is missing, which --weight-decay-incr-style needs",
				start ? "--end-weight-decay" : "--start-weight-decay");
	if (constant) {
		*mfs_flag_slot(s->v, "start_weight_decay") = *mfs_flag_get(s->v, "weight_decay");
		*mfs_flag_slot(s->v, "end_weight_decay") = *mfs_flag_get(s->v, "weight_decay");
	}
	return 0;
}

int mfs_settle_memory(struct settle *s)
{
	const char *granularity = text(s, "recompute_granularity");

	if (mfs_str_is(granularity, "selective") && has(s, "recompute_method"))
		return mfs_fail(s->err, -EINVAL,
				"--recompute-method: expected --recompute-granularity full beside "
				"it");
	if (mfs_str_is(granularity, "full") && !has(s, "recompute_method"))
		return mfs_fail(s->err, -ENODATA,
				"--recompute-method is missing, which --recompute-granularity full "
				"needs");
	return 0;
}
