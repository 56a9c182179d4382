/* The precision, the optimizer and what is kept for the backward pass. */
#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/recipe_words.h"
#include "trainer/config/settle/settle_i.h"
#include "trainer/optimizers/optimizer.h"

/* ---- precision ---- */

static int settle_bf16(struct settle *s, enum mfs_dtype main_grads)
{
	if (is(s, ACCUMULATE_ALLREDUCE_GRADS_IN_FP32) && main_grads != MFS_F32)
		return mfs_fail(s->err, -EINVAL,
				"--main-grads-dtype: expected fp32 with "
				"--accumulate-allreduce-grads-in-fp32");
	if (is(s, GRAD_REDUCE_IN_BF16))
		mft_flag_set_truth(s->v, name_of(ACCUMULATE_ALLREDUCE_GRADS_IN_FP32), false);
	else if (main_grads == MFS_F32)
		mft_flag_set_truth(s->v, name_of(ACCUMULATE_ALLREDUCE_GRADS_IN_FP32), true);
	return 0;
}

int mft_settle_precision(struct settle *s)
{
	static const enum mft_dest states[] = {MAIN_GRADS_DTYPE, MAIN_PARAMS_DTYPE, EXP_AVG_DTYPE,
					       EXP_AVG_SQ_DTYPE};
	const bool fp16 = is(s, FP16), bf16 = is(s, BF16);
	char spelling[MFT_FLAG_SPELLING];

	if (fp16 && bf16)
		return mfs_fail(s->err, -EINVAL, "--fp16 and --bf16 exclude each other");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(states); i++)
		if (mft_flag_get(s->v, name_of(states[i]))->dtype != MFS_F32 &&
		    !is(s, USE_PRECISION_AWARE_OPTIMIZER))
			return mfs_fail(s->err, -EINVAL,
					"%s: expected fp32, or --use-precision-aware-optimizer "
					"with it",
					flag(states[i], spelling));
	mft_flag_set_dtype(s->v, name_of(PARAMS_DTYPE), fp16 ? MFS_F16 : bf16 ? MFS_BF16 : MFS_F32);
	/* A dynamic loss scale finds them by itself. */
	if (fp16 && mft_flag_real(s->v, name_of(LOSS_SCALE), 0) == 0)
		mft_flag_set_truth(s->v, name_of(CHECK_FOR_NAN_IN_LOSS_AND_GRAD), false);
	return bf16 ? settle_bf16(s, mft_flag_get(s->v, name_of(MAIN_GRADS_DTYPE))->dtype) : 0;
}

/* ---- 8-bit floats ---- */

/* As many layers as a stage has, at most (transformer_config.py: __post_init__). */
static int check_ends(struct settle *s)
{
	static const enum mft_dest ends[] = {NUM_LAYERS_AT_START_IN_BF16,
					     NUM_LAYERS_AT_END_IN_BF16};
	const int64_t most = number(s, NUM_LAYERS) / number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	char spelling[MFT_FLAG_SPELLING];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ends); i++)
		if (number(s, ends[i]) < 0 || number(s, ends[i]) > most)
			return mfs_fail(s->err, -EINVAL, "%s: expected 0 to %lld, found %lld",
					flag(ends[i], spelling), (long long)most,
					(long long)number(s, ends[i]));
	return 0;
}

static int check_recipe(struct settle *s, const char *recipe)
{
	const char *const refusal = mft_recipe_refusal(recipe);

	if (refusal)
		return mfs_fail(s->err, -ENOTSUP,
				"--fp8-recipe %s is not supported: %s; use tensorwise", recipe,
				refusal);
	if (number(s, FP8_AMAX_HISTORY_LEN) < 1 || number(s, FP8_AMAX_HISTORY_LEN) > 65536)
		return mfs_fail(s->err, -EINVAL,
				"--fp8-amax-history-len: expected 1 to 65536, found %lld",
				(long long)number(s, FP8_AMAX_HISTORY_LEN));
	if (number(s, FP8_MARGIN) < -64 || number(s, FP8_MARGIN) > 64)
		return mfs_fail(s->err, -EINVAL, "--fp8-margin: expected -64 to 64, found %lld",
				(long long)number(s, FP8_MARGIN));
	return is(s, FIRST_LAST_LAYERS_BF16) ? check_ends(s) : 0;
}

static bool recomputes(const struct settle *s, const char *module)
{
	const struct mft_flag_value *modules = mft_flag_get(s->v, name_of(RECOMPUTE_MODULES));

	if (!mfs_str_is(text(s, RECOMPUTE_GRANULARITY), "selective") || !has(s, RECOMPUTE_MODULES))
		return false;
	for (size_t i = 0; i < modules->count; i++)
		if (mfs_str_is(modules->items[i].text, module))
			return true;
	return false;
}

/* What cannot be together with a recipe. */
static int check_others(struct settle *s, const char *recipe)
{
	const bool delayed = mfs_str_is(recipe, "delayed");

	if (is(s, FIRST_LAST_LAYERS_BF16) && delayed)
		return mfs_fail(s->err, -EINVAL,
				"--first-last-layers-bf16: expected another --fp8-recipe than "
				"delayed with it");
	if (delayed && (recomputes(s, "layernorm") || recomputes(s, "moe_act")))
		return mfs_fail(s->err, -EINVAL,
				"--recompute-modules %s: expected another --fp8-recipe than "
				"delayed with it",
				recomputes(s, "layernorm") ? "layernorm" : "moe_act");
	if (is(s, FP8_PARAM_GATHER) && is(s, OPTIMIZER_CPU_OFFLOAD) && !delayed)
		return mfs_fail(s->err, -EINVAL,
				"--fp8-param-gather with --optimizer-cpu-offload: expected "
				"--fp8-recipe delayed with them, found %s",
				recipe);
	return 0;
}

/* What Megatron asks of them holds here, too, so that a line that is taken is one of Megatron's
 * (arguments.py: validate_args; transformer_config.py: __post_init__). */
int mft_settle_fp8(struct settle *s)
{
	const bool fp8 = has(s, FP8);
	const char *const recipe = text(s, FP8_RECIPE);
	static const enum mft_dest parts[] = {FP8_PARAM_GATHER, FP8_OUTPUT_PROJ,
					      MOE_ROUTER_PADDING_FOR_QUANTIZATION,
					      MOE_ROUTER_PADDING_FOR_FP8};
	char spelling[MFT_FLAG_SPELLING];
	int r;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(parts) && !fp8; i++)
		if (is(s, parts[i]))
			return mfs_fail(s->err, -EINVAL, "%s: expected --fp8-format with it",
					flag(parts[i], spelling));
	if (!fp8)
		return 0;
	if (is(s, FP8_PARAM_GATHER) && !is(s, USE_DISTRIBUTED_OPTIMIZER) &&
	    !is(s, USE_TORCH_FSDP2) && !is(s, USE_MEGATRON_FSDP))
		return mfs_fail(s->err, -EINVAL,
				"--fp8-param-gather: expected --use-distributed-optimizer with it");
	if (is(s, FP8_OUTPUT_PROJ) && !mfs_str_is(recipe, "mxfp8"))
		return mfs_fail(s->err, -EINVAL,
				"--fp8-output-proj: expected --fp8-recipe mxfp8 with it, found "
				"%s",
				recipe);
	if (mfs_str_is(recipe, "custom") && !has(s, FP8_QUANTIZER_FACTORY))
		return mfs_fail(s->err, -ENODATA,
				"--fp8-quantizer-factory is missing, which --fp8-recipe custom "
				"needs");
	r = check_others(s, recipe);
	return r ? r : check_recipe(s, recipe);
}

/* ---- which optimizer ---- */

int mft_settle_optimizer(struct settle *s)
{
	const struct mft_optimizer_kind *kind = mft_optimizer_kind(text(s, OPTIMIZER));
	char spelling[MFT_FLAG_SPELLING];

	for (size_t i = 0; i < MFT_DESTS && kind->refuses && kind->refuses->list[i]; i++)
		if (is(s, kind->refuses->list[i]))
			return mfs_fail(s->err, -ENOTSUP,
					"%s: expected --optimizer adam with it, found %s",
					flag(kind->refuses->list[i], spelling), kind->name);
	return kind->settle ? kind->settle(s->v, s->err) : 0;
}

/* ---- clipping of queries and keys ---- */

/* attention.py: _clip_linear_qkv takes all of a main parameter, and knows no gates. */
static int check_clipped(struct settle *s)
{
	static const enum mft_dest refused[] = {USE_DISTRIBUTED_OPTIMIZER, USE_MEGATRON_FSDP,
						USE_TORCH_FSDP2, OPTIMIZER_CPU_OFFLOAD,
						ATTENTION_OUTPUT_GATE};
	const double alpha = mft_flag_real(s->v, name_of(QK_CLIP_ALPHA), 0),
		     threshold = mft_flag_real(s->v, name_of(QK_CLIP_THRESHOLD), 0);
	char spelling[MFT_FLAG_SPELLING];

	if (!(alpha > 0 && alpha < 1))
		return mfs_fail(s->err, -EINVAL,
				"--qk-clip-alpha: expected a number between 0 and 1, found %g",
				alpha);
	if (!(threshold > 0))
		return mfs_fail(s->err, -EINVAL,
				"--qk-clip-threshold: expected a number above 0, found %g",
				threshold);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(refused); i++)
		if (is(s, refused[i]))
			return mfs_fail(s->err, -ENOTSUP, "--qk-clip and %s exclude each other",
					flag(refused[i], spelling));
	return 0;
}

int mft_settle_qk_clip(struct settle *s)
{
	const int64_t tp = number(s, TENSOR_MODEL_PARALLEL_SIZE);
	const enum mft_dest asks = is(s, QK_CLIP) ? QK_CLIP : LOG_MAX_ATTENTION_LOGIT;
	char spelling[MFT_FLAG_SPELLING];

	if (!is(s, asks))
		return 0;
	if (number(s, CONTEXT_PARALLEL_SIZE) > 1)
		return mfs_fail(s->err, -ENOTSUP, "%s: expected --context-parallel-size 1",
				flag(asks, spelling));
	if (is(s, GROUP_QUERY_ATTENTION) && number(s, NUM_QUERY_GROUPS) % tp)
		return mfs_fail(s->err, -ENOTSUP,
				"%s: expected a --tensor-model-parallel-size that divides "
				"--num-query-groups %lld, found %lld",
				flag(asks, spelling), (long long)number(s, NUM_QUERY_GROUPS),
				(long long)tp);
	return is(s, QK_CLIP) ? check_clipped(s) : 0;
}

/* ---- the optimizer ---- */

int mft_settle_rates(struct settle *s)
{
	const double lr = mft_flag_real(s->v, name_of(LR), 0),
		     least = mft_flag_real(s->v, name_of(MIN_LR), 0);

	if (!has(s, LR) && !is(s, SKIP_TRAIN) && !s->c->dry_run)
		return require(s, LR);
	/* optimizer_param_scheduler.py: OptimizerParamScheduler */
	if (lr < 0)
		return mfs_fail(s->err, -EINVAL, "--lr: expected 0 or more, found %g", lr);
	if (least < 0)
		return mfs_fail(s->err, -EINVAL, "--min-lr: expected 0 or more, found %g", least);
	if (has(s, LR) && !(least <= lr))
		return mfs_fail(s->err, -EINVAL, "--min-lr: expected at most --lr %g, found %g", lr,
				least);
	return 0;
}

int mft_settle_decay(struct settle *s)
{
	const bool constant = mfs_str_is(text(s, WEIGHT_DECAY_INCR_STYLE), "constant");
	const bool start = has(s, START_WEIGHT_DECAY), end = has(s, END_WEIGHT_DECAY);
	const double decay = mft_flag_real(s->v, name_of(WEIGHT_DECAY), 0);

	/* Megatron-Bridge says all three, and means one. */
	if (constant && (mft_flag_real(s->v, name_of(START_WEIGHT_DECAY), decay) != decay ||
			 mft_flag_real(s->v, name_of(END_WEIGHT_DECAY), decay) != decay))
		return mfs_fail(s->err, -EINVAL,
				"%s: expected --weight-decay-incr-style linear or cosine with it",
				start ? "--start-weight-decay" : "--end-weight-decay");
	if (!constant && (!start || !end))
		return mfs_fail(s->err, -ENODATA,
				"%s is missing, which --weight-decay-incr-style needs",
				start ? "--end-weight-decay" : "--start-weight-decay");
	if (constant) {
		*mft_flag_slot(s->v, name_of(START_WEIGHT_DECAY)) =
			*mft_flag_get(s->v, name_of(WEIGHT_DECAY));
		*mft_flag_slot(s->v, name_of(END_WEIGHT_DECAY)) =
			*mft_flag_get(s->v, name_of(WEIGHT_DECAY));
	}
	return 0;
}

int mft_settle_memory(struct settle *s)
{
	const char *granularity = text(s, RECOMPUTE_GRANULARITY);

	if (mfs_str_is(granularity, "selective") && has(s, RECOMPUTE_METHOD))
		return mfs_fail(
			s->err, -EINVAL,
			"--recompute-method: expected --recompute-granularity full with it");
	if (mfs_str_is(granularity, "full") && !has(s, RECOMPUTE_METHOD))
		return mfs_fail(s->err, -ENODATA,
				"--recompute-method is missing, which --recompute-granularity full "
				"needs");
	return 0;
}
