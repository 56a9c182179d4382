/* Reinforcement learning. Source: megatron/training/arguments.py: validate_args. */
#include <string.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "trainer/config/settle/settle_i.h"

#define MOST (1ll << 20) /* of prompts, responses to one, passes, requests and seconds */
#define LAG  15		 /* rollouts ahead */

/* What such a run has not, or has in another way. */
static int check_others(struct settle *s)
{
	static const enum mft_dest switches[] =
		{SFT,		MOCK_DATA,	 RESET_POSITION_IDS,	       RESET_ATTENTION_MASK,
		 EOD_MASK_LOSS, FULL_VALIDATION, DECREASE_BATCH_SIZE_IF_NEEDED},
				   given[] = {DATA_PATH, TRAIN_DATA_PATH, RAMPUP_BATCH_SIZE,
					      STEP_BATCH_SIZE_SCHEDULE};
	const struct mft_flag_value *skipped = mft_flag_get(s->v, name_of(ITERATIONS_TO_SKIP));
	int r = 0;

	if (skipped->type == MFT_IS_LIST && skipped->count)
		return exclude(s, PERFORM_RL_STEP, ITERATIONS_TO_SKIP);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(switches) && !r; i++)
		if (is(s, switches[i]))
			r = exclude(s, PERFORM_RL_STEP, switches[i]);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(given) && !r; i++)
		r = exclude(s, PERFORM_RL_STEP, given[i]);
	if (!r && has(s, MTP_NUM_LAYERS) && number(s, MTP_NUM_LAYERS) > 0)
		r = exclude(s, PERFORM_RL_STEP, MTP_NUM_LAYERS);
	return r;
}

static int check_sizes(struct settle *s)
{
	static const enum mft_dest positive[] = {
		GRPO_PROMPTS_PER_STEP, GRPO_GROUP_SIZE,
		GRPO_ITERATIONS,       RL_SEQUENCE_PACKING_MAX_SEQUENCES_PER_BIN,
		RL_SAMPLER_SLOTS,      RL_MAX_INFLIGHT_REQUESTS,
		RL_REQUEST_SECONDS,    RL_ENGINE_WAIT_SECONDS};
	int r = 0;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(positive) && !r; i++)
		r = from_to(s, positive[i], 1, MOST);
	return r;
}

/* Rollouts that engines answer ahead are whole ones. */
static int check_lag(struct settle *s)
{
	const double lag = mft_flag_real(s->v, name_of(RL_GENERATION_LAG), 0);

	return lag >= 0 && lag <= LAG && lag == (double)(int)lag
		       ? 0
		       : mfs_fail(s->err, -EINVAL,
				  "--rl-generation-lag: expected a whole number, 0 to %d, found %g",
				  LAG, lag);
}

/* Log-probs of the tokens that were kept are not those of all tokens. */
static int check_sampling(struct settle *s)
{
	const double p = mft_flag_real(s->v, name_of(RL_DEFAULT_TOP_P), 0);
	const bool cuts = (p > 0 && p < 1) || number(s, RL_DEFAULT_TOP_K) > 0;

	if (!cuts ||
	    (!is(s, RL_INFERENCE_LOGPROBS_IS_CORRECTION) && !is(s, RL_VERIFY_MODEL_WEIGHTS_SWAP)))
		return 0;
	return mfs_fail(s->err, -EINVAL,
			"--rl-default-top-p and --rl-default-top-k: engines report log-probs among "
			"the tokens that these keep, which are not compared with the policy's; "
			"expected 0 and -1");
}

/* Whether two paths are the same, or lead to the same place. */
static bool is_same_place(const char *a, const char *b)
{
	struct stat x, y;

	return !strcmp(a, b) ||
	       (!stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* What an earlier run has left in it is removed. */
static int check_sync_dir(struct settle *s)
{
	static const enum mft_dest others[] = {SAVE, LOAD};
	const char *dir = text(s, RL_SYNC_DIR);
	char spelling[MFT_FLAG_SPELLING];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(others); i++)
		if (dir && has(s, others[i]) && is_same_place(dir, text(s, others[i])))
			return mfs_fail(s->err, -EINVAL,
					"--rl-sync-dir: expected another directory than that of "
					"%s, found '%s'",
					flag(others[i], spelling), dir);
	return 0;
}

/* What only engines need, or do. */
static int check_engines(struct settle *s)
{
	static const enum mft_dest needed[] = {RL_SYNC_DIR, RL_MOUNT},
				   engines[] = {RL_SYNC_DIR, RL_MOUNT, RL_DELTA_DIR,
						RL_MAX_INFLIGHT_REQUESTS};
	char spelling[MFT_FLAG_SPELLING];
	int r = 0;

	if (has(s, RL_INFERENCE_URL)) {
		for (size_t i = 0; i < MFS_ARRAY_SIZE(needed) && !r; i++)
			r = require(s, needed[i]);
		return r ? r : check_sync_dir(s);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(engines); i++)
		if (has(s, engines[i]))
			return mfs_fail(s->err, -EINVAL, "%s needs --rl-inference-url",
					flag(engines[i], spelling));
	if (is(s, RL_VERIFY_MODEL_WEIGHTS_SWAP) ||
	    mft_flag_real(s->v, name_of(RL_GENERATION_LAG), 0) > 0)
		return mfs_fail(s->err, -EINVAL, "%s needs --rl-inference-url",
				flag(is(s, RL_VERIFY_MODEL_WEIGHTS_SWAP)
					     ? RL_VERIFY_MODEL_WEIGHTS_SWAP
					     : RL_GENERATION_LAG,
				     spelling));
	return 0;
}

/* A rollout is used up by whole steps, and saves are made when one is. */
static int check_steps(struct settle *s)
{
	static const enum mft_dest intervals[] = {TRAIN_ITERS, SAVE_INTERVAL, EXIT_INTERVAL,
						  NON_PERSISTENT_SAVE_INTERVAL};
	const int64_t responses = number(s, GRPO_PROMPTS_PER_STEP) * number(s, GRPO_GROUP_SIZE);
	const int64_t batch = number(s, GLOBAL_BATCH_SIZE);
	char spelling[MFT_FLAG_SPELLING];
	int64_t steps;

	if (responses % batch)
		return mfs_fail(s->err, -EINVAL,
				"--grpo-prompts-per-step times --grpo-group-size: expected a "
				"multiple of --global-batch-size %lld, which counts responses; "
				"found %lld",
				(long long)batch, (long long)responses);
	steps = responses / batch * number(s, GRPO_ITERATIONS);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(intervals); i++)
		if (has(s, intervals[i]) && number(s, intervals[i]) > 0 &&
		    number(s, intervals[i]) % steps)
			return mfs_fail(s->err, -EINVAL,
					"%s: expected a multiple of the %lld steps of a rollout, "
					"found %lld",
					flag(intervals[i], spelling), (long long)steps,
					(long long)number(s, intervals[i]));
	if (has(s, TRAIN_SAMPLES) && number(s, TRAIN_SAMPLES) % (steps * batch))
		return mfs_fail(s->err, -EINVAL,
				"--train-samples: expected a multiple of the %lld responses of a "
				"rollout's steps, found %lld",
				(long long)(steps * batch), (long long)number(s, TRAIN_SAMPLES));
	return 0;
}

/* Megatron's limit is of all that an engine has room for; what a response may be here leaves room
 * for its prompt. */
static int settle_response(struct settle *s)
{
	const int64_t most = number(s, INFERENCE_MAX_SEQ_LENGTH), room = number(s, SEQ_LENGTH);

	otherwise(s, RL_MAX_RESPONSE_LENGTH, most < room ? most : (room + 1) / 2);
	return from_to(s, RL_MAX_RESPONSE_LENGTH, 1, room);
}

/* In a pass with dropout log-probs are of another net than the one that has sampled. */
static int check_dropout(struct settle *s)
{
	static const enum mft_dest rates[] = {HIDDEN_DROPOUT, ATTENTION_DROPOUT};
	char spelling[MFT_FLAG_SPELLING];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(rates); i++)
		if (mft_flag_real(s->v, name_of(rates[i]), 0) != 0)
			return mfs_fail(s->err, -EINVAL,
					"%s: expected 0 with --perform-rl-step, whose ratios of "
					"log-probs dropout would change; found %g",
					flag(rates[i], spelling),
					mft_flag_real(s->v, name_of(rates[i]), 0));
	return 0;
}

/* Whose settings they are. */
static const struct of_reward {
	enum mft_dest dest;
	const char *kind, * or ; /* of --rl-reward; or NULL: of the first alone */
} of_rewards[] = {
	{RL_REWARD_PATTERN, "regex", NULL},    {RL_REWARD_URL, "url", NULL},
	{RL_REWARD_COMMAND, "command", NULL},  {RL_REWARD_KEY, "command", "url"},
	{RL_REWARD_SECONDS, "command", "url"}, {RL_OVERLONG_BUFFER, "length", NULL},
	{RL_OVERLONG_FACTOR, "length", NULL},
};

static bool has_reward(const struct settle *s, const char *kind)
{
	const struct mft_flag_value *rewards = mft_flag_get(s->v, name_of(RL_REWARD));

	for (size_t i = 0; i < rewards->count; i++)
		if (mfs_str_is(rewards->items[i].text, kind))
			return true;
	return false;
}

/* A setting of another kind would be forgotten. */
static int check_rewards(struct settle *s)
{
	char spelling[MFT_FLAG_SPELLING];
	int r = require(s, RL_REWARD);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(of_rewards) && !r; i++) {
		const struct of_reward *o = &of_rewards[i];

		if (mft_flag_is_given(s->v, name_of(o->dest)) && !has_reward(s, o->kind) &&
		    !(o->or &&has_reward(s, o->or)))
			r = mfs_fail(s->err, -EINVAL, "%s needs --rl-reward %s%s%s",
				     flag(o->dest, spelling), o->kind, o->or ? " or " : "",
				     o->or ? o->or : "");
	}
	return r;
}

static int check_data(struct settle *s)
{
	int r = require(s, RL_PROMPT_DATA);

	if (!r)
		r = check_rewards(s);
	if (!r)
		r = check_engines(s);
	if (!r)
		r = check_lag(s);
	if (!r)
		r = check_sampling(s);
	if (!r && is(s, RL_VERIFY_MODEL_WEIGHTS_SWAP) &&
	    mft_flag_real(s->v, name_of(RL_DEFAULT_TEMPERATURE), 1) != 1)
		r = mfs_fail(s->err, -EINVAL,
			     "--rl-verify-model-weights-swap compares log-probs at temperature 1: "
			     "expected --rl-default-temperature 1");
	return r;
}

int mft_settle_rl(struct settle *s)
{
	int r;

	if (!is(s, PERFORM_RL_STEP))
		return 0;
	r = check_others(s);
	if (!r)
		r = check_data(s);
	if (!r)
		r = check_dropout(s);
	if (!r)
		r = check_sizes(s);
	if (!r)
		r = check_steps(s);
	if (!r)
		r = settle_response(s);
	/* Prompts of validation are not drawn yet. */
	mft_flag_set_number(s->v, name_of(EVAL_ITERS), 0);
	return r;
}
