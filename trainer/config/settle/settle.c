#include "trainer/config/settle/settle.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/fill.h"
#include "trainer/config/refuse.h"
#include "trainer/config/settle/settle_i.h"

/* ---- what is missing ---- */

static const struct needed {
	enum mft_dest dest, other;
	bool model; /* a checkpoint says it */
} needed[] = {{NUM_LAYERS, ENCODER_NUM_LAYERS, true},	  {HIDDEN_SIZE, DEST_NONE, true},
	      {NUM_ATTENTION_HEADS, DEST_NONE, true},	  {SEQ_LENGTH, ENCODER_SEQ_LENGTH, true},
	      {MAX_POSITION_EMBEDDINGS, DEST_NONE, true}, {MICRO_BATCH_SIZE, DEST_NONE, false},
	      {TRAIN_ITERS, TRAIN_SAMPLES, false},	  {LR, DEST_NONE, false}};

static bool is_missing(const struct mft_flag_values *v, const struct needed *n)
{
	return mft_flag_is_none(v, name_of(n->dest)) &&
	       (n->other == DEST_NONE || mft_flag_is_none(v, name_of(n->other)));
}

bool mft_train_config_lacks_model(const struct mft_train_config *config)
{
	for (size_t i = 0; config->values && i < MFS_ARRAY_SIZE(needed); i++)
		if (needed[i].model && is_missing(config->values, &needed[i]))
			return true;
	return false;
}

/* All at once: who has nothing yet need not ask one time for each. */
static int check_missing(struct settle *s)
{
	const bool plans = s->c->dry_run || is(s, SKIP_TRAIN);
	char text[512] = "", spelling[MFT_FLAG_SPELLING];
	size_t len = 0;
	unsigned count = 0, of_model = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(needed); i++) {
		if (!is_missing(s->v, &needed[i]) || (plans && i >= 6))
			continue;
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", count ? ", " : "",
					flag(needed[i].dest, spelling));
		count++;
		of_model += needed[i].model;
	}
	if (!count)
		return 0;
	return mfs_fail(s->err, -ENODATA, "%s %s missing%s", text, count > 1 ? "are" : "is",
			of_model && (s->c->load || s->c->pretrained_checkpoint)
				? "; --use-checkpoint-args takes the model's from the checkpoint"
				: "");
}

/* ---- names that have changed ---- */

static int settle_aliases(struct settle *s)
{
	if (has(s, NO_WEIGHT_DECAY_COND_TYPE)) {
		mft_flag_set_truth(s->v, name_of(APPLY_WD_TO_QK_LAYERNORM), true);
		mft_flag_set_none(s->v, name_of(NO_WEIGHT_DECAY_COND_TYPE));
	}
	if (is(s, RECOMPUTE_ACTIVATIONS))
		mft_flag_set_text(s->v, name_of(RECOMPUTE_GRANULARITY), "selective");
	if (is(s, USE_ROTARY_POSITION_EMBEDDINGS))
		mft_flag_set_text(s->v, name_of(POSITION_EMBEDDING_TYPE), "rope");
	if (!text(s, TOKENIZER_TYPE))
		mft_flag_set_text(s->v, name_of(TOKENIZER_TYPE), "GPT2BPETokenizer");
	if (!text(s, DATALOADER_TYPE))
		mft_flag_set_text(s->v, name_of(DATALOADER_TYPE), "single");
	return 0;
}

/* ---- data and checkpoints ---- */

/* What --sft is not trained with. Megatron's SFTDataset asserts the first two. */
static int check_sft_others(struct settle *s)
{
	static const enum mft_dest switches[] = {RESET_POSITION_IDS, RESET_ATTENTION_MASK,
						 EOD_MASK_LOSS,	     MOCK_DATA,
						 FIM_DATA,	     MULTIPLE_VALIDATION_SETS},
				   texts[] = {DATA_ARGS_PATH, PER_SPLIT_DATA_ARGS_PATH};
	int r = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(switches) && !r; i++)
		if (is(s, switches[i]))
			r = exclude(s, SFT, switches[i]);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(texts) && !r; i++)
		r = exclude(s, SFT, texts[i]);
	if (!r && has(s, MTP_NUM_LAYERS) && number(s, MTP_NUM_LAYERS) > 0)
		r = exclude(s, SFT, MTP_NUM_LAYERS);
	return r;
}

static int check_sft(struct settle *s)
{
	if (!is(s, SFT)) {
		if (is(s, SFT_ANSWER_ONLY_LOSS))
			return mfs_fail(s->err, -EINVAL, "--sft-answer-only-loss needs --sft");
		if (strcmp(text(s, SFT_PACKING), "none") != 0)
			return mfs_fail(s->err, -EINVAL, "--sft-packing %s needs --sft",
					text(s, SFT_PACKING));
		return 0;
	}
	if (is(s, SFT_ANSWER_ONLY_LOSS) &&
	    strcmp(text(s, SFT_TOKENIZER_PROMPT_FORMAT), "default") != 0)
		return mfs_fail(s->err, -EINVAL,
				"--sft-answer-only-loss needs --sft-tokenizer-prompt-format "
				"default: Megatron's own formats do that anyway");
	return check_sft_others(s);
}

static int settle_data(struct settle *s)
{
	const bool each =
		has(s, TRAIN_DATA_PATH) || has(s, VALID_DATA_PATH) || has(s, TEST_DATA_PATH);
	int r = exclude(s, DATA_PATH, DATA_ARGS_PATH);

	if (!r && each && has(s, PER_SPLIT_DATA_ARGS_PATH))
		r = exclude(s, PER_SPLIT_DATA_ARGS_PATH,
			    has(s, TRAIN_DATA_PATH)   ? TRAIN_DATA_PATH
			    : has(s, VALID_DATA_PATH) ? VALID_DATA_PATH
						      : TEST_DATA_PATH);
	if (r)
		return r;
	if (is(s, MOCK_DATA) + has(s, DATA_PATH) + each > 1)
		return mfs_fail(s->err, -EINVAL,
				"--data-path, --train-data-path (or --valid-, --test-) and "
				"--mock-data exclude each other");
	r = check_sft(s);
	if (r)
		return r;
	if (is(s, FIM_DATA) && !is(s, MOCK_DATA) && !is(s, DRY_RUN))
		return mfs_fail(s->err, -ENOTSUP,
				"--fim-data: it cuts documents between characters and tokenizes "
				"the pieces again, and there is no tokenizer here; leave it out. "
				"--dry-run plans such a run");
	if (has(s, DATA_PATH) && !has(s, SPLIT))
		mft_flag_set_text(s->v, name_of(SPLIT), "969, 30, 1");
	return 0;
}

static int settle_saves(struct settle *s)
{
	const int64_t every = number(s, SAVE_INTERVAL), kept = number(s, SAVE_RETAIN_INTERVAL);
	int r = 0;

	if (has(s, SAVE))
		r = require(s, SAVE_INTERVAL);
	if (!r)
		r = from_to(s, SAVE_INTERVAL, 1, INT64_MAX);
	if (!r)
		r = from_to(s, NON_PERSISTENT_SAVE_INTERVAL, 1, INT64_MAX);
	if (!r && has(s, NON_PERSISTENT_SAVE_INTERVAL))
		r = require(s, NON_PERSISTENT_CKPT_TYPE);
	if (!r)
		r = from_to(s, SAVE_RETAIN_INTERVAL, 1, INT64_MAX);
	if (!r && has(s, SAVE) && has(s, SAVE_RETAIN_INTERVAL) && kept % every)
		r = mfs_fail(s->err, -EINVAL,
			     "--save-retain-interval: expected a multiple of --save-interval %lld, "
			     "found %lld",
			     (long long)every, (long long)kept);
	if (!is(s, ASYNC_SAVE))
		mft_flag_set_text(s->v, name_of(ASYNC_STRATEGY), "mcore");
	return r;
}

/* ---- the fields ---- */

static int fill_skipped(struct settle *s)
{
	const struct mft_flag_value *v = mft_flag_get(s->v, name_of(ITERATIONS_TO_SKIP));
	int64_t *list;

	if (v->type != MFT_IS_LIST || !v->count)
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
	const struct mft_flag_value *v = mft_flag_get(s->v, name_of(EXIT_SIGNAL));

	for (size_t i = 0; i < MFS_ARRAY_SIZE(never); i++)
		if (v->number == never[i])
			return mfs_fail(s->err, -ENOTSUP,
					"--exit-signal %s is not supported; use SIGTERM, SIGINT, "
					"SIGUSR1 or SIGUSR2",
					v->of->names[v->number - 1]);
	s->c->exit_signal = v->number;
	return 0;
}

/* checkpointing.py: _get_checkpoint_format: what is loaded says itself what it is. A checkpoint's
 * arguments name the format that it has. */
static void fill_format(struct settle *s)
{
	s->c->saves_torch = mfs_str_is(s->c->ckpt_format, "torch");
	if (!s->c->saves_torch)
		mft_flag_set_text(s->v, name_of(CKPT_FORMAT), "torch_dist");
	mft_flag_set_truth(s->v, name_of(USE_DIST_CKPT), !s->c->saves_torch);
}

static int fill_rest(struct settle *s)
{
	const char *granularity = text(s, RECOMPUTE_GRANULARITY);
	struct mft_train_config *c = s->c;
	const int64_t eod = c->eod, pad = c->pad;
	int r = mft_train_config_fill(c, s->err);

	if (r)
		return r;
	c->eod = eod;
	c->pad = pad;
	fill_format(s);
	c->data_parallel_rank =
		number(s, RANK) /
		(number(s, TENSOR_MODEL_PARALLEL_SIZE) * number(s, CONTEXT_PARALLEL_SIZE)) %
		number(s, DATA_PARALLEL_SIZE);
	c->context_parallel_rank = number(s, RANK) / number(s, TENSOR_MODEL_PARALLEL_SIZE) %
				   number(s, CONTEXT_PARALLEL_SIZE);
	c->decoupled_weight_decay = true;
	c->params_dtype = mft_flag_get(s->v, name_of(PARAMS_DTYPE))->dtype;
	/* ddp_config.grad_reduce_in_fp32: without it gradients have the parameters' type. With fp16
	 * it is where most of the steps are skipped: a sum over tokens is the first to overflow. */
	if (!c->accumulate_allreduce_grads_in_fp32)
		c->main_grads_dtype = c->params_dtype;
	c->recompute_granularity = mfs_str_is(granularity, "full")	  ? MFT_RECOMPUTE_FULL
				   : mfs_str_is(granularity, "selective") ? MFT_RECOMPUTE_SELECTIVE
									  : MFT_RECOMPUTE_NONE;
	r = mft_settle_fill_sharding(s);
	if (!r)
		r = mft_settle_batch_steps(s);
	if (!r)
		r = fill_skipped(s);
	return r ? r : fill_signal(s);
}

int mft_train_config_settle(struct mft_train_config *config, struct mfs_error *err)
{
	static int (*const steps[])(struct settle *) = {
		mft_settle_pattern,   check_missing,	  settle_aliases,
		mft_settle_sizes,     mft_settle_layers,  mft_settle_experts,
		mft_settle_precision, mft_settle_fp8,	  mft_settle_optimizer,
		mft_settle_parallel,  mft_settle_qk_clip, mft_settle_pipeline,
		mft_settle_batches,   mft_settle_length,  mft_settle_rates,
		mft_settle_decay,     mft_settle_memory,  settle_data,
		settle_saves,	      mft_settle_rl,	  mft_settle_sharding,
		mft_settle_process,   mft_settle_vocab,	  fill_rest,
		mft_settle_read_model};
	struct settle s = {config, config->values, err};
	int r = 0;

	if (config->settled || !config->values)
		return 0;
	r = mft_flags_refuse(config->values, err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(steps) && !r; i++)
		r = steps[i](&s);
	config->settled = !r;
	config->refused = r && r != -ENOMEM;
	return r;
}
