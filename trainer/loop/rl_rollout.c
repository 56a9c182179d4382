/*
 * A rollout: prompts are drawn and answered, answers are rewarded, and what the loss needs of each
 * token is there.
 *
 * Processes that share the model answer some of the prompts together. A request's seed is of the
 * run's seed, the rollout, the prompt and the sample, so that who answers what changes nothing.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/hash.h"
#include "formats/base/str.h"
#include "trainer/loop/rl_i.h"
#include "trainer/rl/advantage.h"

/* ---- the end ---- */

bool mft_rl_stops(void)
{
	return mft_stop_signal() != 0;
}

/* What is not trained on yet is not lost: the run that goes on samples it again. One process's
 * signal is all processes'. */
static int agree_to_stop(struct mft_trainer *t, struct mfs_error *err)
{
	double stop = mft_rl_stops();
	const int rc = mft_parallel_sum(&t->parallel, MFT_GROUP_WORLD, &stop, 1, err);

	t->rl->dropped = !rc && stop > 0;
	return rc;
}

/* ---- requests ---- */

static uint64_t seed_of(const struct mft_trainer *t, uint64_t rollout, uint64_t prompt,
			uint32_t sample)
{
	const uint64_t parts[] = {rollout, prompt, sample};
	uint8_t key[16] = {0};

	memcpy(key, &t->config->seed, sizeof(t->config->seed));
	return mfs_siphash(parts, sizeof(parts), key);
}

/* The first process asks engines. The sampler's prompts go round the processes that have all of the
 * model, or share it among themselves. */
static bool answers(const struct mft_trainer *t, uint32_t prompt)
{
	const struct mft_parallel *p = &t->parallel;

	if (!t->rl->sampler)
		return p->launch.rank == 0;
	return prompt % (p->size.dp * p->size.cp) == p->place.dp * p->size.cp + p->place.cp;
}

/* This process's requests, and the responses that they are for. */
struct asked {
	struct mft_request *requests;
	struct mft_response *responses;
	uint32_t *of; /* numbers of the rollout's responses */
	uint32_t count;
};

static void ask_prompt(const struct mft_trainer *t, uint64_t rollout, uint32_t prompt,
		       struct asked *a)
{
	const struct mft_rollout *r = &t->rl->rollout;
	const uint64_t drawn = rollout * r->prompts + prompt;
	const struct mft_prompt *p = mft_prompts_draw(t->rl->prompts, drawn);

	for (uint32_t s = 0; s < r->group; s++) {
		a->of[a->count] = prompt * r->group + s;
		a->requests[a->count++] =
			(struct mft_request){p->ids, p->count, seed_of(t, rollout, drawn, s)};
	}
}

static int sample(struct mft_trainer *t, const struct asked *a, struct mfs_error *err)
{
	int rc;

	mft_sync_await(t->sync, t->ctx); /* weights are whole */
	mft_sampler_set_version(t->rl->sampler, t->progress.iteration);
	rc = mft_sampler_run(t->rl->sampler, t->ctx, a->requests, a->count, &t->rl->sampling,
			     a->responses, err);
	return rc ? rc : agree_to_stop(t, err);
}

static int put_responses(struct mft_trainer *t, const struct asked *a, struct mfs_error *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < a->count && !rc && !t->parallel.place.tp; i++)
		rc = mft_rollout_put(&t->rl->rollout, a->of[i], &a->responses[i], mft_rl_vocab(t),
				     err);
	return rc;
}

static int asked_new(const struct mft_trainer *t, uint64_t rollout, struct asked *ret,
		     struct mfs_error *err)
{
	const struct mft_rollout *r = &t->rl->rollout;
	const uint32_t n = mft_rollout_size(r);

	*ret = (struct asked){calloc(n, sizeof(*ret->requests)), calloc(n, sizeof(*ret->responses)),
			      calloc(n, sizeof(*ret->of)), 0};
	if (!ret->requests || !ret->responses || !ret->of)
		return mfs_fail_nomem(err);
	for (uint32_t p = 0; p < r->prompts; p++)
		if (answers(t, p))
			ask_prompt(t, rollout, p, ret);
	return 0;
}

static void asked_release(struct asked *a)
{
	for (uint32_t i = 0; i < a->count && a->responses; i++)
		mft_response_release(&a->responses[i]);
	free(a->requests);
	free(a->responses);
	free(a->of);
}

/* ---- engines ---- */

static int submit(struct mft_trainer *t, uint64_t rollout, struct mfs_error *err)
{
	struct asked a;
	int rc = asked_new(t, rollout, &a, err);

	if (!rc && t->rl->ahead)
		rc = mft_ahead_submit(t->rl->ahead, a.requests, a.count, err);
	asked_release(&a);
	return rc;
}

/* Engines have as many rollouts to answer as the lag lets them, this one included. */
static int submit_ahead(struct mft_trainer *t, struct mfs_error *err)
{
	const uint64_t end = t->rl->rollout.number + (uint64_t)t->config->rl_generation_lag + 1;
	int rc = 0;

	for (; t->rl->asked_end < end && !rc; t->rl->asked_end++)
		rc = submit(t, t->rl->asked_end, err);
	return rc;
}

static int take(struct mft_trainer *t, const struct asked *a, struct mfs_error *err)
{
	int rc = 0;

	if (t->rl->ahead)
		rc = mft_ahead_take(t->rl->ahead, a->responses, a->count, mft_rl_stops, err);
	return rc && rc != -EINTR ? rc : agree_to_stop(t, err);
}

/* Weights are told between rollouts. A rollout that has been asked for is taken first: engines have
 * less to pause for. */
static int ask_engines(struct mft_trainer *t, const struct asked *a, struct mfs_error *err)
{
	const bool is_asked = t->rl->asked_end > t->rl->rollout.number;
	int rc = is_asked ? take(t, a, err) : 0;

	if (!is_asked)
		t->rl->asked_end = t->rl->rollout.number;
	if (rc || t->rl->dropped)
		return rc;
	rc = mft_rl_sync(t, err);
	/* All processes hear of it where they agree next. */
	if (rc == -EINTR && mft_rl_stops())
		return is_asked ? 0 : agree_to_stop(t, err);
	if (!rc)
		rc = submit_ahead(t, err);
	return rc || is_asked ? rc : take(t, a, err);
}

static int generate(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_rl *rl = t->rl;
	struct asked a;
	int rc = asked_new(t, rl->rollout.number, &a, err);

	if (!rc)
		rc = rl->sampler ? sample(t, &a, err) : ask_engines(t, &a, err);
	if (!rc && !rl->dropped)
		rc = put_responses(t, &a, err);
	asked_release(&a);
	return rc || rl->dropped ? rc : mft_rollout_share(&rl->rollout, &t->parallel, err);
}

/* ---- advantages ---- */

static bool has_signal(const struct mft_rollout *r, uint32_t response)
{
	return mft_rl_has_signal(r->reward + response / r->group * r->group, r->group);
}

static void choose(struct mft_trainer *t)
{
	const struct mft_train_config *c = t->config;
	const struct mft_rollout *r = &t->rl->rollout;

	for (uint32_t i = 0; i < mft_rollout_size(r); i++)
		t->rl->trains[i] = (!c->grpo_filter_groups_with_same_reward || has_signal(r, i)) &&
				   !(c->rl_mask_truncated && r->finish[i] == MFT_FINISH_LENGTH);
}

static int advantages(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_rollout *r = &t->rl->rollout;

	choose(t);
	return mft_rl_advantages(t->config->rl_advantage_norm, r->reward, r->prompts, r->group,
				 r->advantage, err);
}

/* ---- log-probs ---- */

/* Importance weights of tokens are computed where the loss is. */
static bool weighs_responses(const struct mft_train_config *c)
{
	return c->rl_inference_logprobs_is_correction &&
	       mfs_str_is(c->rl_importance_sampling_level, "sequence");
}

static void weigh_responses(struct mft_trainer *t)
{
	const struct mft_train_config *c = t->config;
	const double most = c->rl_importance_sampling_truncation_coef;
	const bool masks = mfs_str_is(c->rl_importance_sampling_mode, "mask");
	struct mft_rollout *r = &t->rl->rollout;

	for (uint32_t i = 0; i < mft_rollout_size(r); i++)
		r->advantage[i] *= mft_rl_response_weight(
			r->old + (size_t)i * r->room, r->sampled + (size_t)i * r->room, r->count[i],
			c->rl_importance_sampling_lower, most > 0 ? most : (double)INFINITY, masks);
}

/* With one step a rollout, the step's own log-probs are those before it. */
static bool wants_old(const struct mft_train_config *c)
{
	return mft_rl_steps(c) > 1 || c->rl_verify_model_weights_swap || weighs_responses(c);
}

static int log_probs(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_rollout *r = &t->rl->rollout;
	const int64_t from = mfs_now_ns();
	int rc = 0;

	if (wants_old(t->config))
		rc = mft_rl_log_probs(t, r->old, err);
	if (!rc && weighs_responses(t->config))
		weigh_responses(t);
	if (!rc && t->config->rl_verify_model_weights_swap)
		rc = mft_rl_verify(t, err);
	if (!rc && t->config->grpo_kl_beta > 0)
		rc = mft_rl_reference(t, err);
	t->rl->numbers.log_probs_s = (double)(mfs_now_ns() - from) / 1e9;
	return rc;
}

/* ---- all of it ---- */

static int renew(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	struct mft_rollout *r = &t->rl->rollout;
	const uint32_t prompts = (uint32_t)c->grpo_prompts_per_step;
	int rc;

	mft_rollout_release(r);
	rc = mft_rollout_new(prompts, (uint32_t)c->grpo_group_size, t->rl->sampling.max_tokens, r,
			     err);
	if (rc)
		return rc;
	r->number = t->progress.iteration / mft_rl_steps(c);
	for (uint32_t p = 0; p < prompts; p++)
		r->drawn[p] = r->number * prompts + p;
	return 0;
}

/* What the loss needs of it. What is logged is trained on: a rollout that was dropped is logged by
 * the run that goes on. */
static int prepare(struct mft_trainer *t, struct mfs_error *err)
{
	int rc = agree_to_stop(t, err);

	if (rc || t->rl->dropped)
		return rc;
	rc = advantages(t, err);
	if (!rc)
		rc = log_probs(t, err);
	if (!rc)
		rc = mft_rl_write_samples(t, err);
	if (!rc)
		mft_rl_log(t);
	return rc;
}

int mft_rl_make_rollout(struct mft_trainer *t, struct mfs_error *err)
{
	const int64_t from = mfs_now_ns();
	int rc = renew(t, err);

	/* Answers and rewards of other programs take as long as they take. */
	mft_watch_rest(t->parallel.watch, true);
	if (!rc)
		rc = generate(t, err);
	t->rl->numbers.generate_s = (double)(mfs_now_ns() - from) / 1e9;
	if (!rc && !t->rl->dropped)
		rc = mft_rl_reward(t, err);
	mft_watch_rest(t->parallel.watch, false);
	if (!rc && !t->rl->dropped)
		rc = prepare(t, err);
	return rc ? mfs_fail_in(err, "rollout %llu", (unsigned long long)t->rl->rollout.number) : 0;
}
