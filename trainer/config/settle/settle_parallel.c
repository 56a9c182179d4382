/* How the processes are divided, and what follows from how many there are. */
#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/settle/settle_i.h"

#define MOST_PROCESSES 100000 /* of any dimension: products of three fit everywhere */

/* transformer_config.py: __post_init__: processes share a group of queries, or groups a process. */
static int check_groups(struct settle *s)
{
	const int64_t tp = number(s, TENSOR_MODEL_PARALLEL_SIZE);
	const int64_t groups = number(s, NUM_QUERY_GROUPS);
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	if (is(s, MULTI_LATENT_ATTENTION) || !is(s, GROUP_QUERY_ATTENTION) || groups % tp == 0 ||
	    tp % groups == 0)
		return 0;
	return mfs_fail(s->err, -EINVAL,
			"%s: expected a multiple or divisor of %s %lld, found %lld",
			flag(NUM_QUERY_GROUPS, a), flag(TENSOR_MODEL_PARALLEL_SIZE, b),
			(long long)tp, (long long)groups);
}

/* The least number of which both are divisors. */
static int64_t common_multiple(int64_t a, int64_t b)
{
	int64_t x = a, y = b;

	while (y) {
		const int64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}

static bool is_comm_type(const struct mft_flag_value *v)
{
	static const char *const types[] = {"p2p", "all_gather", "allgather", "a2a", "a2a+p2p"};

	for (size_t i = 0; v->type == MFT_IS_TEXT && i < MFS_ARRAY_SIZE(types); i++)
		if (mfs_str_is(v->text, types[i]))
			return true;
	return false;
}

/* One for all layers, or one for each (transformer_config.py: cp_comm_type). */
static int check_comm_types(struct settle *s)
{
	const struct mft_flag_value *v = mft_flag_get(s->v, name_of(CP_COMM_TYPE));

	if (v->count != 1 && (int64_t)v->count != number(s, NUM_LAYERS))
		return mfs_fail(s->err, -EINVAL,
				"--cp-comm-type: expected one word, or one for each of "
				"--num-layers %lld, found %zu",
				(long long)number(s, NUM_LAYERS), v->count);
	for (size_t i = 0; i < v->count; i++)
		if (!is_comm_type(&v->items[i]))
			return mfs_fail(s->err, -ENOTSUP,
					"--cp-comm-type %s is not supported; use p2p, all_gather, "
					"a2a or a2a+p2p",
					v->items[i].type == MFT_IS_TEXT ? v->items[i].text : "");
	return 0;
}

/* ---- neighbours, and rings of them ---- */

static bool has_levels(const struct settle *s)
{
	const struct mft_flag_value *types = mft_flag_get(s->v, name_of(CP_COMM_TYPE));

	for (size_t i = 0; i < types->count; i++)
		if (types->items[i].type == MFT_IS_TEXT &&
		    mfs_str_is(types->items[i].text, "a2a+p2p"))
			return true;
	return false;
}

/* 0: they have another product than cp, which is at most MOST_PROCESSES. */
static int64_t product_of_levels(const struct mft_flag_value *sizes, int64_t cp)
{
	int64_t product = 1;

	for (size_t i = 0; i < sizes->count && product; i++) {
		const int64_t size = sizes->items[i].number;

		product = size < 1 || size > cp / product ? 0 : product * size;
	}
	return product == cp ? product : 0;
}

/* arguments.py: validate_args; transformer_engine/pytorch/attention/dot_product_attention/
 * context_parallel.py: attn_forward_func_with_cp. */
static int settle_levels(struct settle *s)
{
	const struct mft_flag_value *sizes =
		mft_flag_get(s->v, name_of(HIERARCHICAL_CONTEXT_PARALLEL_SIZES));
	const int64_t cp = number(s, CONTEXT_PARALLEL_SIZE);
	const bool given = has(s, HIERARCHICAL_CONTEXT_PARALLEL_SIZES);

	s->c->context_neighbours = 0;
	if (given && !product_of_levels(sizes, cp))
		return mfs_fail(s->err, -EINVAL,
				"--hierarchical-context-parallel-sizes: expected positive numbers "
				"whose product is --context-parallel-size %lld",
				(long long)cp);
	if (!has_levels(s))
		return 0;
	if (!given)
		return mfs_fail(s->err, -EINVAL,
				"--cp-comm-type a2a+p2p: expected "
				"--hierarchical-context-parallel-sizes with it");
	if (sizes->count != 2)
		return mfs_fail(s->err, -EINVAL,
				"--cp-comm-type a2a+p2p: expected two of "
				"--hierarchical-context-parallel-sizes, found %zu",
				sizes->count);
	s->c->context_neighbours = sizes->items[0].number;
	return 0;
}

static int check_context(struct settle *s)
{
	const int64_t cp = number(s, CONTEXT_PARALLEL_SIZE);
	const int r = settle_levels(s);

	if (r || cp == 1)
		return r;
	if (number(s, SEQ_LENGTH) % (2 * cp))
		return mfs_fail(s->err, -EINVAL,
				"--seq-length: expected a multiple of 2 times "
				"--context-parallel-size %lld, found %lld",
				(long long)cp, (long long)number(s, SEQ_LENGTH));
	return check_comm_types(s);
}

/* parallel_state.py makes groups of experts for a dense model, too, whatever their tensor
 * parallelism is; nobody is a member of them then, and they divide nothing. */
static int check_no_experts(struct settle *s)
{
	const int64_t ep = number(s, EXPERT_MODEL_PARALLEL_SIZE);

	if (ep <= 1)
		return 0;
	return mfs_fail(s->err, -EINVAL,
			"--expert-model-parallel-size: expected 1, as there is no --num-experts; "
			"found %lld",
			(long long)ep);
}

/* Processes of a stage, the fewest: what each has of dense parameters and of experts is had by as
 * many as there are instances, or a multiple of it. experts: that have all of them. */
static int64_t needed(int64_t tp, int64_t cp, int64_t experts, int64_t instances)
{
	return common_multiple(common_multiple(tp * cp, tp * instances), experts * instances);
}

/* arguments.py: validate_args; parallel_state.py: initialize_model_parallel. */
int mft_settle_parallel(struct settle *s)
{
	static const enum mft_dest sizes[] = {
		TENSOR_MODEL_PARALLEL_SIZE,  PIPELINE_MODEL_PARALLEL_SIZE,
		CONTEXT_PARALLEL_SIZE,	     EXPERT_MODEL_PARALLEL_SIZE,
		EXPERT_TENSOR_PARALLEL_SIZE, NUM_DISTRIBUTED_OPTIMIZER_INSTANCES};
	int64_t tp, pp, cp, ep, etp, instances, world;
	int r = 0;

	r = at_least(s, DISTRIBUTED_TIMEOUT_MINUTES, 1);
	if (!r)
		r = at_least(s, DISTRIBUTED_TIMEOUT_SECONDS_AFTER_INIT, 1);
	if (!r && is(s, LOG_STRAGGLER) &&
	    (number(s, STRAGGLER_CTRLR_PORT) < 1 || number(s, STRAGGLER_CTRLR_PORT) > 65535))
		r = mfs_fail(s->err, -EINVAL,
			     "--straggler-ctrlr-port: expected 1 to 65535, found %lld",
			     (long long)number(s, STRAGGLER_CTRLR_PORT));
	otherwise(s, EXPERT_TENSOR_PARALLEL_SIZE, number(s, TENSOR_MODEL_PARALLEL_SIZE));
	for (size_t i = 0; i < MFS_ARRAY_SIZE(sizes) && !r; i++)
		r = from_to(s, sizes[i], 1, MOST_PROCESSES);
	if (!r && !has(s, NUM_EXPERTS))
		r = check_no_experts(s);
	if (!r)
		r = check_context(s);
	if (!r)
		r = check_groups(s);
	if (r)
		return r;
	tp = number(s, TENSOR_MODEL_PARALLEL_SIZE);
	pp = number(s, PIPELINE_MODEL_PARALLEL_SIZE);
	cp = number(s, CONTEXT_PARALLEL_SIZE);
	ep = number(s, EXPERT_MODEL_PARALLEL_SIZE);
	etp = number(s, EXPERT_TENSOR_PARALLEL_SIZE);
	instances = number(s, NUM_DISTRIBUTED_OPTIMIZER_INSTANCES);
	/* transformer_config.py: __post_init__. */
	if (etp > 1 && is(s, ADD_BIAS_LINEAR) && has(s, NUM_EXPERTS))
		return mfs_fail(s->err, -EINVAL,
				"--expert-tensor-parallel-size: Bias in Moe is only supported when "
				"ETP==1, expected 1 or --disable-bias-linear, found %lld",
				(long long)etp);
	if (s->c->machine && !s->c->dry_run)
		return mfs_fail(s->err, -EINVAL, "--machine is for plans: expected --dry-run, too");
	/* A plan is of as many processes as it is told, or as the model needs. */
	if (s->c->dry_run && number(s, WORLD_SIZE) == 1)
		mft_flag_set_number(s->v, name_of(WORLD_SIZE),
				    s->c->gpus ? s->c->gpus
					       : pp * needed(tp, cp, etp * ep, instances));
	world = number(s, WORLD_SIZE);
	if (world % (tp * pp * cp))
		return mfs_fail(s->err, -EINVAL,
				"%lld processes: expected a multiple of "
				"--tensor-model-parallel-size %lld times "
				"--pipeline-model-parallel-size %lld times "
				"--context-parallel-size %lld",
				(long long)world, (long long)tp, (long long)pp, (long long)cp);
	if (world % (etp * ep * pp))
		return mfs_fail(s->err, -EINVAL,
				"%lld processes: expected a multiple of "
				"--expert-tensor-parallel-size %lld times "
				"--expert-model-parallel-size %lld times "
				"--pipeline-model-parallel-size %lld",
				(long long)world, (long long)etp, (long long)ep, (long long)pp);
	mft_flag_set_number(s->v, name_of(DATA_PARALLEL_SIZE), world / (tp * pp * cp));
	return 0;
}

/* ---- what follows from how many there are ---- */

static void settle_graphs(struct settle *s)
{
	const char *graphs = text(s, CUDA_GRAPH_IMPL);

	if (!has(s, INFERENCE_CUDA_GRAPH_SCOPE))
		mft_flag_set_member(s->v, name_of(INFERENCE_CUDA_GRAPH_SCOPE),
				    mfs_str_is(graphs, "local") ? 2 : 1);
	if (!mfs_str_is(graphs, "none") &&
	    (mfs_str_is(graphs, "transformer_engine") ||
	     mfs_str_is(text(s, TRANSFORMER_IMPL), "transformer_engine")))
		mft_flag_set_truth(s->v, name_of(TE_RNG_TRACKER), true);
}

static int needs(struct settle *s, enum mft_dest dest, enum mft_dest other)
{
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	return is(s, dest) && !is(s, other) ? mfs_fail(s->err, -EINVAL, "%s: expected %s with it",
						       flag(dest, a), flag(other, b))
					    : 0;
}

/* arguments.py: validate_args; training.py: get_megatron_ddp_config. */
static int settle_buckets(struct settle *s)
{
	int r = needs(s, OVERLAP_PARAM_GATHER, USE_DISTRIBUTED_OPTIMIZER);

	if (!r)
		r = needs(s, OVERLAP_PARAM_GATHER, OVERLAP_GRAD_REDUCE);
	if (!r)
		r = from_to(s, DDP_BUCKET_SIZE, 1, INT64_MAX);
	if (!r)
		r = from_to(s, DDP_NUM_BUCKETS, 1, INT64_MAX);
	return r ? r : exclude(s, DDP_BUCKET_SIZE, DDP_NUM_BUCKETS);
}

/* parallel_state.py: initialize_model_parallel; core/distributed/distributed_data_parallel.py and
 * param_and_grad_buffer.py: what they assert. */
static int settle_instances(struct settle *s)
{
	static const enum mft_dest dest = NUM_DISTRIBUTED_OPTIMIZER_INSTANCES;
	const int64_t dp_cp = number(s, DATA_PARALLEL_SIZE) * number(s, CONTEXT_PARALLEL_SIZE);
	const int64_t edp =
		dp_cp * number(s, TENSOR_MODEL_PARALLEL_SIZE) /
		(number(s, EXPERT_TENSOR_PARALLEL_SIZE) * number(s, EXPERT_MODEL_PARALLEL_SIZE));
	const int64_t instances = number(s, dest);
	char a[MFT_FLAG_SPELLING], b[MFT_FLAG_SPELLING];

	if (instances == 1)
		return 0;
	if (is(s, USE_MEGATRON_FSDP))
		return mfs_fail(s->err, -ENOTSUP,
				"%s %lld is not supported with --use-megatron-fsdp; use 1",
				flag(dest, a), (long long)instances);
	if (!is(s, USE_DISTRIBUTED_OPTIMIZER))
		return mfs_fail(s->err, -EINVAL, "%s %lld: expected %s with it", flag(dest, a),
				(long long)instances, flag(USE_DISTRIBUTED_OPTIMIZER, b));
	if (is(s, DDP_REDUCE_SCATTER_WITH_FP32_ACCUMULATION))
		return exclude(s, dest, DDP_REDUCE_SCATTER_WITH_FP32_ACCUMULATION);
	if (dp_cp % instances || edp % instances)
		return mfs_fail(s->err, -EINVAL,
				"%s: expected a divisor of the %lld processes that have the same "
				"%s, found %lld",
				flag(dest, a), (long long)(dp_cp % instances ? dp_cp : edp),
				dp_cp % instances ? "parameters" : "experts", (long long)instances);
	return 0;
}

int mft_settle_process(struct settle *s)
{
	int r = settle_buckets(s);

	if (!r)
		r = settle_instances(s);
	if (r)
		return r;
	otherwise(s, TENSOR_PARALLEL_NUM_WEIGHT_SHARDS, 1);
	otherwise(s, EXPERT_TENSOR_PARALLEL_NUM_WEIGHT_SHARDS, 1);
	settle_graphs(s);
	/* arguments.py turns them off where there is nothing to overlap or to divide. */
	if (number(s, TENSOR_MODEL_PARALLEL_SIZE) == 1)
		mft_flag_set_truth(s->v, name_of(SEQUENCE_PARALLEL), false);
	if (number(s, PIPELINE_MODEL_PARALLEL_SIZE) == 1)
		mft_flag_set_truth(s->v, name_of(OVERLAP_P2P_COMM), false);
	mft_flag_set_truth(s->v, name_of(ALIGN_PARAM_GATHER), false);
	return 0;
}
