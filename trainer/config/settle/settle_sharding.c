/* What the processes that share the samples divide: FSDP and the distributed optimizer. Sources:
 * megatron/training/arguments.py: validate_args; core/distributed/fsdp/mcore_fsdp_adapter.py. */
#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/settle/settle_i.h"

static int refuse_together(struct settle *s, enum mft_dest dest, enum mft_dest other)
{
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	return mfs_fail(s->err, -EINVAL, "%s and %s exclude each other", flag(dest, a),
			flag(other, b));
}

/* Its sizes are 1, as arguments.py wants them. What else that refuses (fp16, a tied head) is
 * divided here as Megatron's own FSDP divides it: its functional tests ask for both. */
static int check_torch_sizes(struct settle *s)
{
	static const enum mft_dest sizes[] = {PIPELINE_MODEL_PARALLEL_SIZE,
					      EXPERT_MODEL_PARALLEL_SIZE};
	char spelling[MFT_FLAG_SPELLING];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(sizes); i++)
		if (number(s, sizes[i]) > 1)
			return mfs_fail(s->err, -EINVAL,
					"--use-torch-fsdp2: expected %s 1, found %lld; "
					"--use-megatron-fsdp takes more",
					flag(sizes[i], spelling), (long long)number(s, sizes[i]));
	return 0;
}

static int settle_torch(struct settle *s)
{
	static const enum mft_dest never[] = {USE_MEGATRON_FSDP, USE_DISTRIBUTED_OPTIMIZER};
	const int r = check_torch_sizes(s);

	for (size_t i = 0; !r && i < MFS_ARRAY_SIZE(never); i++)
		if (is(s, never[i]))
			return refuse_together(s, USE_TORCH_FSDP2, never[i]);
	return r;
}

static bool is_dtype(struct settle *s, enum mft_dest dest, enum mfs_dtype type)
{
	const struct mft_flag_value *v = mft_flag_get(s->v, name_of(dest));

	return v->type == MFT_IS_DTYPE && v->dtype == type;
}

/* Main parameters are fp32. */
static int check_types(struct settle *s)
{
	if (!is_dtype(s, PARAMS_DTYPE, MFS_F32) &&
	    !is_dtype(s, MEGATRON_FSDP_MAIN_PARAMS_DTYPE, MFS_F32))
		return mfs_fail(s->err, -ENOTSUP,
				"--megatron-fsdp-main-params-dtype: only fp32 is supported");
	return 0;
}

int mft_settle_sharding(struct settle *s)
{
	int r;

	if (is(s, USE_TORCH_FSDP2))
		return settle_torch(s);
	if (!is(s, USE_MEGATRON_FSDP))
		return 0;
	r = check_types(s);
	if (!r && has(s, CHECK_WEIGHT_HASH_ACROSS_DP_REPLICAS_INTERVAL) &&
	    mfs_str_is(text(s, DATA_PARALLEL_SHARDING_STRATEGY), "optim_grads_params"))
		r = refuse_together(s, CHECK_WEIGHT_HASH_ACROSS_DP_REPLICAS_INTERVAL,
				    USE_MEGATRON_FSDP);
	mft_flag_set_truth(s->v, name_of(USE_DISTRIBUTED_OPTIMIZER), true);
	return r;
}

/* Without a flag for it the type of gradients is --main-grads-dtype. */
static int fill_grads(struct settle *s)
{
	const struct mft_flag_value *given =
		mft_flag_get(s->v, name_of(MEGATRON_FSDP_MAIN_GRADS_DTYPE));
	const struct mft_flag_value *sent =
		mft_flag_get(s->v, name_of(MEGATRON_FSDP_GRAD_COMM_DTYPE));
	struct mft_train_config *c = s->c;

	if (given->type == MFT_IS_DTYPE)
		c->main_grads_dtype = given->dtype;
	if (c->main_grads_dtype != MFS_F32 && c->main_grads_dtype != c->params_dtype)
		return mfs_fail(s->err, -ENOTSUP,
				"--megatron-fsdp-main-grads-dtype: expected fp32 or the "
				"parameters' type");
	if (sent->type == MFT_IS_DTYPE && sent->dtype != c->main_grads_dtype)
		return mfs_fail(s->err, -ENOTSUP,
				"--megatron-fsdp-grad-comm-dtype: expected auto or the type of the "
				"main gradients");
	return 0;
}

/* Sums have the type of what is added up. */
static int check_accumulation(struct settle *s)
{
	if (!is(s, DDP_REDUCE_SCATTER_WITH_FP32_ACCUMULATION) || s->c->main_grads_dtype == MFS_F32)
		return 0;
	return mfs_fail(s->err, -ENOTSUP,
			"--ddp-reduce-scatter-with-fp32-accumulation: expected fp32 gradients "
			"(--accumulate-allreduce-grads-in-fp32), whose sums are fp32");
}

int mft_settle_fill_sharding(struct settle *s)
{
	struct mft_train_config *c = s->c;
	int r = 0;

	if (is(s, USE_MEGATRON_FSDP)) /* what it divides is filled */
		r = fill_grads(s);
	if (!r)
		r = check_accumulation(s);
	if (r || is(s, USE_MEGATRON_FSDP))
		return r;
	c->sharding = c->use_distributed_optimizer ? MFT_SHARD_STATE : MFT_SHARD_NONE;
	if (is(s, USE_TORCH_FSDP2)) {
		c->sharding = MFT_SHARD_WEIGHTS;
		/* Nothing says that it does not. */
		c->overlap_grad_reduce = c->overlap_param_gather = true;
	}
	return 0;
}
