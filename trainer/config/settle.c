#include "trainer/config/settle.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/torch/pickle.h"
#include "formats/torch/pickle_write.h"
#include "trainer/config/batch_steps.h"
#include "trainer/config/namespace.h"
#include "trainer/config/refuse.h"
#include "trainer/config/value.h"
#include "trainer/config/vocab.h"

#define LARGEST	       (1ll << 31) /* of any size: products of two fit everywhere */
#define MOST_PROCESSES 100000	   /* of any dimension: products of three fit everywhere */

struct settle {
	struct mfs_train_config *c;
	struct mfs_flag_values *v;
	struct mfs_error *err;
};

/* ---- questions ---- */

static bool is(const struct settle *s, const char *dest)
{
	return mfs_flag_truth(s->v, dest);
}

static bool has(const struct settle *s, const char *dest)
{
	return !mfs_flag_is_none(s->v, dest);
}

static int64_t number(const struct settle *s, const char *dest)
{
	return mfs_flag_number(s->v, dest, MFS_UNSET);
}

static const char *text(const struct settle *s, const char *dest)
{
	return mfs_flag_text(s->v, dest);
}

/* The flag of a dest, for messages. */
static const char *flag(const char *dest, char spelling[MFS_FLAG_SPELLING])
{
	bool on;

	mfs_flag_spelling(mfs_flag_at(mfs_flag_of_dest(dest)), 0, spelling, &on);
	return spelling;
}

/* The default of a number that was not given. */
static void otherwise(struct settle *s, const char *dest, int64_t value)
{
	if (!has(s, dest))
		mfs_flag_set_number(s->v, dest, value);
}

static int require(struct settle *s, const char *dest)
{
	char spelling[MFS_FLAG_SPELLING];

	return has(s, dest) ? 0 : mfs_fail(s->err, -ENODATA, "%s is missing", flag(dest, spelling));
}

/* Where it is given, it is at least this. */
static int at_least(struct settle *s, const char *dest, int64_t least)
{
	char spelling[MFS_FLAG_SPELLING];

	if (!has(s, dest) || (number(s, dest) >= least && number(s, dest) <= LARGEST))
		return 0;
	return mfs_fail(s->err, -EINVAL, "%s: expected %s, found %lld", flag(dest, spelling),
			least == 1 ? "a positive number" : "a number from 0 to 2^31",
			(long long)number(s, dest));
}

static int exclude(struct settle *s, const char *one, const char *other)
{
	char a[MFS_FLAG_SPELLING], b[MFS_FLAG_SPELLING];

	return has(s, one) && has(s, other)
		       ? mfs_fail(s->err, -EINVAL, "%s and %s exclude each other", flag(one, a),
				  flag(other, b))
		       : 0;
}

/* ---- names that have changed ---- */

static int settle_aliases(struct settle *s)
{
	if (has(s, "no_weight_decay_cond_type")) {
		mfs_flag_set_truth(s->v, "apply_wd_to_qk_layernorm", true);
		mfs_flag_set_none(s->v, "no_weight_decay_cond_type");
	}
	if (is(s, "recompute_activations"))
		mfs_flag_set_text(s->v, "recompute_granularity", "selective");
	if (is(s, "use_rotary_position_embeddings"))
		mfs_flag_set_text(s->v, "position_embedding_type", "rope");
	if (!text(s, "tokenizer_type"))
		mfs_flag_set_text(s->v, "tokenizer_type", "GPT2BPETokenizer");
	if (!text(s, "dataloader_type"))
		mfs_flag_set_text(s->v, "dataloader_type", "single");
	return 0;
}

/* One may be said by the other's name. */
static int settle_pair(struct settle *s, const char *dest, const char *encoder)
{
	int r = exclude(s, dest, encoder);

	if (r)
		return r;
	*mfs_flag_slot(s->v, has(s, dest) ? encoder : dest) =
		*mfs_flag_get(s->v, has(s, dest) ? dest : encoder);
	return require(s, dest);
}

/* ---- the model ---- */

static int settle_heads(struct settle *s)
{
	const int64_t hidden = number(s, "hidden_size"), heads = number(s, "num_attention_heads");

	if (!has(s, "kv_channels")) {
		if (hidden % heads)
			return mfs_fail(s->err, -EINVAL,
					"--hidden-size: expected a multiple of "
					"--num-attention-heads %lld, or --kv-channels; found %lld",
					(long long)heads, (long long)hidden);
		mfs_flag_set_number(s->v, "kv_channels", hidden / heads);
	}
	if (is(s, "multi_latent_attention") && is(s, "group_query_attention"))
		return mfs_fail(s->err, -EINVAL,
				"--group-query-attention and --multi-latent-attention exclude each "
				"other");
	if (is(s, "group_query_attention") && heads % number(s, "num_query_groups"))
		return mfs_fail(s->err, -EINVAL,
				"--num-query-groups: expected a divisor of --num-attention-heads "
				"%lld, found %lld",
				(long long)heads, (long long)number(s, "num_query_groups"));
	return 0;
}

static int settle_sizes(struct settle *s)
{
	static const char *const sizes[] = {"num_layers",
					    "hidden_size",
					    "num_attention_heads",
					    "max_position_embeddings",
					    "kv_channels",
					    "seq_length",
					    "ffn_hidden_size",
					    "num_query_groups",
					    "vocab_size",
					    "q_lora_rank",
					    "padded_vocab_size",
					    "moe_ffn_hidden_size",
					    "kv_lora_rank",
					    "qk_head_dim",
					    "v_head_dim",
					    "qk_pos_emb_head_dim",
					    "rotary_base",
					    "moe_router_topk",
					    "make_vocab_size_divisible_by"};
	int64_t hidden;
	int r = settle_pair(s, "num_layers", "encoder_num_layers");

	if (!r)
		r = require(s, "hidden_size");
	if (!r)
		r = require(s, "num_attention_heads");
	if (!r)
		r = settle_pair(s, "seq_length", "encoder_seq_length");
	if (!r)
		r = require(s, "max_position_embeddings");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !r; i++)
		r = at_least(s, sizes[i], 1);
	if (r)
		return r;
	hidden = number(s, "hidden_size");
	otherwise(s, "ffn_hidden_size",
		  is(s, "swiglu") ? (int64_t)(4 * (double)hidden * 2 / 3 / 64) * 64 : 4 * hidden);
	r = at_least(s, "ffn_hidden_size", 1);
	if (r)
		return r;
	if (number(s, "max_position_embeddings") < number(s, "seq_length"))
		return mfs_fail(s->err, -EINVAL,
				"--max-position-embeddings: expected at least --seq-length %lld, "
				"found %lld",
				(long long)number(s, "seq_length"),
				(long long)number(s, "max_position_embeddings"));
	return settle_heads(s);
}

static int settle_layers(struct settle *s)
{
	const bool rope = mfs_str_is(text(s, "position_embedding_type"), "rope");

	if (is(s, "add_bias_linear"))
		mfs_flag_set_truth(s->v, "add_qkv_bias", true);
	else
		mfs_flag_set_truth(s->v, "bias_gelu_fusion", false);
	if (!rope)
		mfs_flag_set_truth(s->v, "apply_rope_fusion", false);
	if (!rope && !is(s, "add_position_embedding"))
		return mfs_fail(s->err, -EINVAL,
				"--no-position-embedding: expected --position-embedding-type rope "
				"beside it, or --position-embedding-type none instead");
	if (is(s, "apply_query_key_layer_scaling"))
		mfs_flag_set_truth(s->v, "attention_softmax_in_fp32", true);
	return 0;
}

/* A list of one is its item. */
static void unlist(struct settle *s, const char *dest)
{
	struct mfs_flag_value *v = mfs_flag_slot(s->v, dest);

	if (v->type == MFS_IS_LIST && v->count == 1)
		*v = v->items[0];
}

static int settle_experts(struct settle *s)
{
	const struct mfs_flag_value *kinds;

	if (number(s, "num_experts") == 0)
		mfs_flag_set_none(s->v, "num_experts");
	unlist(s, "moe_router_load_balancing_type");
	unlist(s, "moe_aux_loss_coeff");
	if (!has(s, "num_experts"))
		return 0;
	otherwise(s, "moe_ffn_hidden_size", number(s, "ffn_hidden_size"));
	kinds = mfs_flag_get(s->v, "moe_router_load_balancing_type");
	if (kinds->type == MFS_IS_LIST)
		return mfs_fail(s->err, -ENOTSUP,
				"--moe-router-load-balancing-type: several are not supported; use "
				"one");
	return at_least(s, "num_experts", 1);
}

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

static int settle_precision(struct settle *s)
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

static int settle_offload(struct settle *s)
{
	const double fraction = mfs_flag_real(s->v, "optimizer_offload_fraction", 1);

	if (!is(s, "optimizer_cpu_offload"))
		return 0;
	if (!is(s, "use_precision_aware_optimizer"))
		return mfs_fail(s->err, -EINVAL,
				"--optimizer-cpu-offload: expected "
				"--use-precision-aware-optimizer beside it");
	if (fraction < 0 || fraction > 1)
		return mfs_fail(s->err, -EINVAL,
				"--optimizer-offload-fraction: expected 0 to 1, found %g",
				fraction);
	return 0;
}

/* ---- batches and length ---- */

static int check_divided(struct settle *s, const char *dest, const char *by)
{
	char a[MFS_FLAG_SPELLING], b[MFS_FLAG_SPELLING];

	return number(s, dest) % number(s, by)
		       ? mfs_fail(s->err, -EINVAL, "%s: expected a multiple of %s %lld, found %lld",
				  flag(dest, a), flag(by, b), (long long)number(s, by),
				  (long long)number(s, dest))
		       : 0;
}

/* A batch is some microbatches of each process (num_microbatches_calculator.py). decreases: of a
 * greater batch the rest is left out. */
static int check_batch(const struct settle *s, const char *said, uint64_t batch, bool decreases)
{
	const uint64_t micro = (uint64_t)number(s, "micro_batch_size");
	const uint64_t processes = (uint64_t)number(s, "data_parallel_size");
	const uint64_t least = micro * processes;

	if (decreases ? batch >= least : batch % least == 0)
		return 0;
	if (processes > 1)
		return mfs_fail(s->err, -EINVAL,
				"%s: expected %s --micro-batch-size %llu times %llu processes, "
				"found %llu",
				said, decreases ? "at least" : "a multiple of",
				(unsigned long long)micro, (unsigned long long)processes,
				(unsigned long long)batch);
	return mfs_fail(s->err, -EINVAL, "%s: expected %s --micro-batch-size %llu, found %llu",
			said, decreases ? "at least" : "a multiple of", (unsigned long long)micro,
			(unsigned long long)batch);
}

static int settle_evaluation(struct settle *s)
{
	const int64_t micro = number(s, "micro_batch_size");
	const int64_t least = micro * number(s, "data_parallel_size");
	int r;

	otherwise(s, "eval_global_batch_size", number(s, "global_batch_size") / least * least);
	otherwise(s, "eval_micro_batch_size", micro);
	r = at_least(s, "eval_global_batch_size", 1);
	if (!r)
		r = at_least(s, "eval_micro_batch_size", 1);
	if (!r)
		r = at_least(s, "start_eval_at_iter", 0);
	if (!r)
		r = check_divided(s, "eval_global_batch_size", "eval_micro_batch_size");
	return r ? r
		 : check_batch(s, "--eval-global-batch-size",
			       (uint64_t)number(s, "eval_global_batch_size"), false);
}

/* ---- how the processes are divided ---- */

/* Dimensions that nothing computes yet. */
static int refuse_dimensions(struct settle *s)
{
	static const char *const not_yet[] = {"tensor_model_parallel_size",
					      "pipeline_model_parallel_size",
					      "context_parallel_size", "expert_model_parallel_size",
					      "expert_tensor_parallel_size"};
	char a[MFS_FLAG_SPELLING];

	for (size_t i = 0; i < sizeof(not_yet) / sizeof(not_yet[0]); i++)
		if (number(s, not_yet[i]) > 1)
			return mfs_fail(s->err, -ENOTSUP,
					"%s %lld is not supported; each process has the whole "
					"model: use 1",
					flag(not_yet[i], a), (long long)number(s, not_yet[i]));
	return 0;
}

/* arguments.py: validate_args; parallel_state.py: initialize_model_parallel. */
static int settle_parallel(struct settle *s)
{
	static const char *const sizes[] = {"tensor_model_parallel_size",
					    "pipeline_model_parallel_size", "context_parallel_size",
					    "expert_model_parallel_size",
					    "expert_tensor_parallel_size"};
	int64_t tp, pp, cp, ep, etp, world;
	char a[MFS_FLAG_SPELLING];
	int r = 0;

	otherwise(s, "expert_tensor_parallel_size", number(s, "tensor_model_parallel_size"));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]) && !r; i++) {
		r = at_least(s, sizes[i], 1);
		if (!r && number(s, sizes[i]) > MOST_PROCESSES)
			r = mfs_fail(s->err, -EINVAL, "%s: expected at most %d, found %lld",
				     flag(sizes[i], a), MOST_PROCESSES,
				     (long long)number(s, sizes[i]));
	}
	if (!r)
		r = refuse_dimensions(s);
	if (r)
		return r;
	tp = number(s, "tensor_model_parallel_size");
	pp = number(s, "pipeline_model_parallel_size");
	cp = number(s, "context_parallel_size");
	ep = number(s, "expert_model_parallel_size");
	etp = number(s, "expert_tensor_parallel_size");
	/* A plan is of as many processes as the model needs. */
	if (s->c->dry_run && number(s, "world_size") == 1)
		mfs_flag_set_number(s->v, "world_size", tp * pp * cp);
	world = number(s, "world_size");
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
	mfs_flag_set_number(s->v, "data_parallel_size", world / (tp * pp * cp));
	return 0;
}

static int settle_batches(struct settle *s)
{
	const bool given = has(s, "global_batch_size");
	const bool decreases = is(s, "decrease_batch_size_if_needed");
	int r = require(s, "micro_batch_size");

	if (!r)
		r = at_least(s, "micro_batch_size", 1);
	if (!r)
		r = at_least(s, "global_batch_size", 1);
	if (!r)
		r = exclude(s, "step_batch_size_schedule", "global_batch_size");
	if (!r && decreases)
		r = exclude(s, "step_batch_size_schedule", "decrease_batch_size_if_needed");
	if (r)
		return r;
	mfs_flag_set_truth(s->v, "_is_global_batch_size_explicitly_specified", given);
	otherwise(s, "global_batch_size",
		  number(s, "micro_batch_size") * number(s, "data_parallel_size"));
	r = check_batch(s, "--global-batch-size", (uint64_t)number(s, "global_batch_size"),
			decreases);
	return r ? r : settle_evaluation(s);
}

static int expect_zero(struct settle *s, const char *dest, const char *with)
{
	char a[MFS_FLAG_SPELLING], b[MFS_FLAG_SPELLING];

	return number(s, dest) > 0 ? mfs_fail(s->err, -EINVAL, "%s and %s exclude each other",
					      flag(dest, a), flag(with, b))
				   : 0;
}

static int settle_length(struct settle *s)
{
	const bool by_iterations = number(s, "train_iters") > 0;
	const bool by_samples = number(s, "train_samples") > 0;
	int r = 0;

	if (is(s, "skip_train"))
		mfs_flag_set_truth(s->v, "no_load_optim", true);
	if (by_iterations && has(s, "rampup_batch_size"))
		return exclude(s, "train_iters", "rampup_batch_size");
	if (by_iterations && by_samples)
		return exclude(s, "train_iters", "train_samples");
	if (!by_iterations && !by_samples && !is(s, "skip_train") && !s->c->dry_run)
		return mfs_fail(s->err, -ENODATA, "--train-iters or --train-samples is missing");
	if (is(s, "skip_train"))
		return 0;
	if (by_iterations) {
		r = exclude(s, "train_iters", "lr_decay_samples");
		if (!r)
			r = expect_zero(s, "lr_warmup_samples", "train_iters");
		if (!r && has(s, "lr_warmup_fraction"))
			r = expect_zero(s, "lr_warmup_iters", "lr_warmup_fraction");
		otherwise(s, "lr_decay_iters", number(s, "train_iters"));
	} else if (by_samples) {
		r = exclude(s, "train_samples", "lr_decay_iters");
		if (!r)
			r = expect_zero(s, "lr_warmup_iters", "train_samples");
		if (!r && has(s, "lr_warmup_fraction"))
			r = expect_zero(s, "lr_warmup_samples", "lr_warmup_fraction");
		otherwise(s, "lr_decay_samples", number(s, "train_samples"));
	}
	return r;
}

/* ---- the optimizer ---- */

static int settle_rates(struct settle *s)
{
	const double lr = mfs_flag_real(s->v, "lr", 0), least = mfs_flag_real(s->v, "min_lr", 0);

	if (!has(s, "lr") && !is(s, "skip_train") && !s->c->dry_run)
		return require(s, "lr");
	if (has(s, "lr") && !(least <= lr))
		return mfs_fail(s->err, -EINVAL, "--min-lr: expected at most --lr %g, found %g", lr,
				least);
	return 0;
}

static int settle_decay(struct settle *s)
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

static int settle_memory(struct settle *s)
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

/* ---- data and checkpoints ---- */

static int settle_data(struct settle *s)
{
	const bool each =
		has(s, "train_data_path") || has(s, "valid_data_path") || has(s, "test_data_path");
	int r = exclude(s, "data_path", "data_args_path");

	if (!r && each && has(s, "per_split_data_args_path"))
		r = exclude(s, "per_split_data_args_path",
			    has(s, "train_data_path")	? "train_data_path"
			    : has(s, "valid_data_path") ? "valid_data_path"
							: "test_data_path");
	if (r)
		return r;
	if (is(s, "mock_data") + has(s, "data_path") + each > 1)
		return mfs_fail(s->err, -EINVAL,
				"--data-path, --train-data-path (or --valid-, --test-) and "
				"--mock-data exclude each other");
	if (has(s, "data_path") && !has(s, "split"))
		mfs_flag_set_text(s->v, "split", "969, 30, 1");
	return 0;
}

static int settle_saves(struct settle *s)
{
	const int64_t every = number(s, "save_interval"), kept = number(s, "save_retain_interval");
	int r = 0;

	if (has(s, "save"))
		r = require(s, "save_interval");
	if (!r)
		r = at_least(s, "save_interval", 1);
	if (!r)
		r = at_least(s, "non_persistent_save_interval", 1);
	if (!r && has(s, "non_persistent_save_interval"))
		r = require(s, "non_persistent_ckpt_type");
	if (!r)
		r = at_least(s, "save_retain_interval", 1);
	if (!r && has(s, "save") && has(s, "save_retain_interval") && kept % every)
		r = mfs_fail(s->err, -EINVAL,
			     "--save-retain-interval: expected a multiple of --save-interval %lld, "
			     "found %lld",
			     (long long)every, (long long)kept);
	if (!is(s, "async_save"))
		mfs_flag_set_text(s->v, "async_strategy", "mcore");
	return r;
}

/* ---- what follows from how many there are ---- */

static void settle_graphs(struct settle *s)
{
	const char *graphs = text(s, "cuda_graph_impl");

	if (!has(s, "inference_cuda_graph_scope"))
		mfs_flag_set_member(s->v, "inference_cuda_graph_scope",
				    mfs_str_is(graphs, "local") ? 2 : 1);
	if (!mfs_str_is(graphs, "none") &&
	    (mfs_str_is(graphs, "transformer_engine") ||
	     mfs_str_is(text(s, "transformer_impl"), "transformer_engine")))
		mfs_flag_set_truth(s->v, "te_rng_tracker", true);
}

static int settle_process(struct settle *s)
{
	otherwise(s, "tensor_parallel_num_weight_shards", 1);
	otherwise(s, "expert_tensor_parallel_num_weight_shards", 1);
	settle_graphs(s);
	/* arguments.py turns them off where there is nothing to overlap or to divide. */
	if (number(s, "tensor_model_parallel_size") == 1)
		mfs_flag_set_truth(s->v, "sequence_parallel", false);
	if (number(s, "pipeline_model_parallel_size") == 1)
		mfs_flag_set_truth(s->v, "overlap_p2p_comm", false);
	mfs_flag_set_truth(s->v, "align_param_gather", false);
	return 0;
}

static int settle_vocab(struct settle *s)
{
	struct mfs_vocab_found found;
	const int64_t tp = number(s, "tensor_model_parallel_size");
	const int64_t multiple = number(s, "make_vocab_size_divisible_by") * tp;
	const bool ends = is(s, "reset_position_ids") || is(s, "reset_attention_mask") ||
			  is(s, "eod_mask_loss");
	int r = mfs_vocab_find(s->v, &found, s->err);

	if (r)
		return r;
	if (!has(s, "padded_vocab_size"))
		mfs_flag_set_number(s->v, "padded_vocab_size",
				    is(s, "pad_vocab_size")
					    ? (found.size + multiple - 1) / multiple * multiple
					    : found.size);
	if (found.size > number(s, "padded_vocab_size"))
		return mfs_fail(s->err, -EINVAL,
				"--padded-vocab-size: expected at least the %lld tokens of the "
				"vocabulary, found %lld",
				(long long)found.size, (long long)number(s, "padded_vocab_size"));
	if (number(s, "padded_vocab_size") % tp)
		return mfs_fail(s->err, -EINVAL,
				"--padded-vocab-size: expected a multiple of "
				"--tensor-model-parallel-size %lld, found %lld",
				(long long)tp, (long long)number(s, "padded_vocab_size"));
	if (ends && found.eod == MFS_UNSET)
		return mfs_fail(s->err, -ENODATA,
				"the token that ends a document is not known, which "
				"--reset-position-ids, --reset-attention-mask and --eod-mask-loss "
				"need: expected --eod-id, or a tokenizer that says it");
	s->c->model.vocab_size = found.size;
	s->c->eod = found.eod;
	return at_least(s, "padded_vocab_size", 1);
}

/* ---- the fields ---- */

/* The model's arguments are read from the Namespace as from a checkpoint's: one reader for both. */
static int read_model(struct settle *s)
{
	const int64_t vocab_size = s->c->model.vocab_size;
	struct mfs_pickle_writer w;
	struct mfs_buf bytes = {0};
	struct mfs_pickle *doc = NULL;
	int r;

	mfs_pickle_begin(&w, &bytes, 2);
	mfs_train_namespace_write(&w, s->c, NULL);
	r = mfs_pickle_end(&w, s->err);
	if (!r)
		r = mfs_pickle_parse(bytes.data, bytes.len, "the arguments", NULL, &doc, s->err);
	if (!r)
		r = mfs_megatron_args_read(doc, mfs_pickle_root(doc), &s->c->arena, &s->c->model,
					   s->err);
	mfs_pickle_free(doc);
	mfs_buf_release(&bytes);
	if (r)
		return r;
	s->c->model.vocab_size = vocab_size;
	if (s->c->adopted.taken) {
		s->c->model.beta_fast = s->c->adopted.beta_fast;
		s->c->model.beta_slow = s->c->adopted.beta_slow;
		s->c->model.original_max_position_embeddings =
			s->c->adopted.original_max_position_embeddings;
	}
	/* Whoever gives it means it, as Megatron's main branch does. */
	if (mfs_flag_is_given(s->v, "rope_scaling_factor"))
		s->c->model.rope_scaling_factor =
			mfs_flag_real(s->v, "rope_scaling_factor", MFS_ROPE_SCALING_FACTOR);
	return 0;
}

static int check_batch_steps(const struct settle *s, const char *said)
{
	const struct mfs_train_config *c = s->c;
	int r = 0;

	for (uint32_t i = 0; i < c->batch_step_count && !r; i++)
		r = check_batch(s, said, c->batch_steps[i].batch, c->decrease_batch_size_if_needed);
	return r;
}

static int fill_ramp(struct settle *s)
{
	const struct mfs_flag_value *v = mfs_flag_get(s->v, "rampup_batch_size");
	struct mfs_train_config *c = s->c;
	int r;

	if (v->type != MFS_IS_LIST)
		return 0;
	r = exclude(s, "rampup_batch_size", "step_batch_size_schedule");
	if (!r)
		r = mfs_batch_ramp_steps(&(struct mfs_batch_ramp){.start = v->items[0].number,
								  .increment = v->items[1].number,
								  .samples = v->items[2].number,
								  .end = c->global_batch_size},
					 &c->arena, &c->batch_steps, &c->batch_step_count, s->err);
	if (r)
		return r;
	c->rampup_samples = (uint64_t)v->items[2].number;
	return check_batch_steps(s, "--rampup-batch-size");
}

static int fill_batch_steps(struct settle *s)
{
	struct mfs_train_config *c = s->c;
	int r = mfs_batch_steps_parse(text(s, "step_batch_size_schedule"), c->seq_length, &c->arena,
				      &c->batch_steps, &c->batch_step_count, s->err);

	if (!r)
		r = check_batch_steps(s, "--step-batch-size-schedule");
	return r ? r : fill_ramp(s);
}

static int fill_skipped(struct settle *s)
{
	const struct mfs_flag_value *v = mfs_flag_get(s->v, "iterations_to_skip");
	int64_t *list;

	if (v->type != MFS_IS_LIST || !v->count)
		return 0;
	list = mfs_arena_array(&s->c->arena, v->count, sizeof(*list));
	if (!list)
		return mfs_fail_nomem(s->err);
	for (size_t i = 0; i < v->count; i++)
		list[i] = v->items[i].number;
	s->c->iterations_to_skip = list;
	s->c->skip_count = v->count;
	return 0;
}

/* Those that a process cannot catch, or that say that it is broken. */
static int fill_signal(struct settle *s)
{
	static const int never[] = {SIGKILL, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
	const struct mfs_flag_value *v = mfs_flag_get(s->v, "exit_signal");

	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		if (v->number == never[i])
			return mfs_fail(s->err, -ENOTSUP,
					"--exit-signal %s is not supported; use SIGTERM, SIGINT, "
					"SIGUSR1 or SIGUSR2",
					v->of->names[v->number - 1]);
	s->c->exit_signal = v->number;
	return 0;
}

static int fill_rest(struct settle *s)
{
	const char *granularity = text(s, "recompute_granularity");
	struct mfs_train_config *c = s->c;
	const int64_t eod = c->eod;
	int r = mfs_train_config_fill(c, s->err);

	if (r)
		return r;
	c->eod = eod;
	c->data_parallel_rank =
		number(s, "rank") /
		(number(s, "tensor_model_parallel_size") * number(s, "context_parallel_size")) %
		number(s, "data_parallel_size");
	c->decoupled_weight_decay = true;
	c->params_dtype = mfs_flag_get(s->v, "params_dtype")->dtype;
	/* ddp_config.grad_reduce_in_fp32: without it gradients have the parameters' type. With fp16
	 * it is where most of the steps are skipped: a sum over tokens is the first to overflow. */
	if (!c->accumulate_allreduce_grads_in_fp32)
		c->main_grads_dtype = c->params_dtype;
	c->recompute_granularity = mfs_str_is(granularity, "full")	  ? MFS_RECOMPUTE_FULL
				   : mfs_str_is(granularity, "selective") ? MFS_RECOMPUTE_SELECTIVE
									  : MFS_RECOMPUTE_NONE;
	r = fill_batch_steps(s);
	if (!r)
		r = fill_skipped(s);
	return r ? r : fill_signal(s);
}

int mfs_train_config_settle(struct mfs_train_config *config, struct mfs_error *err)
{
	static int (*const steps[])(struct settle *) = {
		settle_aliases, settle_sizes,	 settle_layers,	 settle_experts, settle_precision,
		settle_offload, settle_parallel, settle_batches, settle_length,	 settle_rates,
		settle_decay,	settle_memory,	 settle_data,	 settle_saves,	 settle_process,
		settle_vocab,	fill_rest,	 read_model};
	struct settle s = {config, config->values, err};
	int r = 0;

	if (config->settled || !config->values)
		return 0;
	r = mfs_flags_refuse(config->values, err);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && !r; i++)
		r = steps[i](&s);
	config->settled = !r;
	return r;
}
