#include "trainer/loop/rl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "formats/tokenizer/tokenizer.h"
#include "formats/args/megatron_args.h"
#include "trainer/loop/rl_i.h"
#include "trainer/loop/stops.h"
#include "trainer/rl/advantage.h"

#define TRIES 5 /* of a request that is answered badly */

uint64_t mft_rl_steps(const struct mft_train_config *c)
{
	return (uint64_t)(c->grpo_prompts_per_step * c->grpo_group_size * c->grpo_iterations /
			  c->global_batch_size);
}

uint64_t mft_rl_vocab(const struct mft_trainer *t)
{
	const uint64_t known = mfs_args_true_vocab(&t->config->model, t->params->padded_vocab);

	return known ? known : t->params->padded_vocab;
}

bool mft_rl_is_within(const struct mft_trainer *t)
{
	return t->rl && t->rl->has_rollout;
}

bool mft_rl_is_between(const struct mft_trainer *t)
{
	return t->rl && t->progress.iteration % mft_rl_steps(t->config);
}

bool mft_rl_is_dropped(const struct mft_trainer *t)
{
	return t->rl && t->rl->dropped;
}

/* ---- opening ---- */

static int open_prompts(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	const struct mft_prompts_config prompts = {
		.path = c->rl_prompt_data,
		.prompt_key = c->rl_prompt_key,
		.label_key = c->rl_label_key,
		.tokenizer = c->tokenizer_model,
		.vocab = mft_rl_vocab(t),
		.longest = (uint32_t)(c->seq_length - c->rl_max_response_length + 1),
		.seed = (uint32_t)c->seed,
	};
	const int rc = mft_prompts_open(&prompts, &t->rl->prompts, err);

	if (!rc && t->speaks)
		printf("prompts: %llu, of which a rollout has %lld\n",
		       (unsigned long long)mft_prompts_count(t->rl->prompts),
		       (long long)c->grpo_prompts_per_step);
	return rc;
}

static int open_rewards(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	const struct mft_reward_config rewards = {
		.kinds = c->rl_reward.list,
		.count = c->rl_reward.count,
		.url = c->rl_reward_url,
		.command = c->rl_reward_command,
		.key = c->rl_reward_key,
		.seconds = c->rl_reward_seconds,
		.pattern = c->rl_reward_pattern,
		.length = (uint32_t)c->rl_max_response_length,
		.overlong_buffer = (uint32_t)c->rl_overlong_buffer,
		.overlong_factor = c->rl_overlong_factor,
	};

	return t->parallel.launch.rank ? 0 : mft_rewards_open(&rewards, &t->rl->rewards, err);
}

static int open_tokenizer(struct mft_trainer *t, struct mfs_error *err)
{
	const char *path = t->config->tokenizer_model;

	return path ? mfs_tokenizer_open(path, &t->rl->tokenizer, err) : 0;
}

static int open_samples(struct mft_trainer *t, struct mfs_error *err)
{
	const char *path = t->config->rl_log_samples;
	int fd;

	if (!path || t->parallel.launch.rank)
		return 0;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	t->rl->samples = fd < 0 ? NULL : fdopen(fd, "a");
	if (t->rl->samples)
		return 0;
	if (fd >= 0)
		close(fd);
	return mfs_fail(err, -errno, "--rl-log-samples: '%s': %s", path, strerror(errno));
}

static int find_stops(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mfs_tokenizer *tokenizer = t->rl->tokenizer;
	const struct mft_stops_of of = {
		{mft_trainer_tokenizer(t->config), t->config->pretrained_checkpoint},
		t->config->eod,
		tokenizer ? mfs_tokenizer_roles(tokenizer)->eos : MFS_ABSENT};
	struct mft_sampling *sampling = &t->rl->sampling;
	const int rc = mft_stops_find(&of, &t->rl->stops, &sampling->stop_count, err);

	sampling->stops = t->rl->stops;
	if (!rc && !sampling->stop_count)
		return mfs_fail(err, -ENODATA,
				"no token ends a response: expected --eod-id, or a tokenizer whose "
				"files name one");
	return rc;
}

static int open_sampling(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	int rc;

	t->rl->sampling = (struct mft_sampling){
		.temperature = c->rl_default_temperature,
		.top_p = c->rl_default_top_p > 0 ? c->rl_default_top_p : 1,
		.top_k = c->rl_default_top_k > 0 ? c->rl_default_top_k : 0,
		.max_tokens = (uint32_t)c->rl_max_response_length,
	};
	rc = find_stops(t, err);
	return rc ? rc : mft_sampling_check(&t->rl->sampling, err);
}

/* Processes that share sequences in training have their own here. */
static void sampler_of(const struct mft_trainer *t, struct mft_train_config *config,
		       struct mft_parallel *parallel)
{
	*config = *t->config;
	config->context_parallel_size = 1;
	config->context_parallel_rank = 0;
	*parallel = t->parallel;
	parallel->size.cp = 1;
	parallel->place.cp = 0;
}

static int open_sampler(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	struct mft_rl *rl = t->rl;
	int rc;

	if (c->rl_inference_url.count)
		return 0;
	sampler_of(t, &rl->sampler_config, &rl->sampler_parallel);
	rc = mft_sampler_new(&rl->sampler_config, t->params, t->backend, t->device,
			     &rl->sampler_parallel, (uint32_t)c->rl_sampler_slots,
			     (uint32_t)c->seq_length, &rl->sampler, err);
	if (!rc)
		mft_sampler_stop_on(rl->sampler, mft_rl_stops);
	return rc;
}

int mft_rl_plan(const struct mft_trainer *t, struct mft_rl_needs *ret, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	struct mft_train_config config;
	struct mft_parallel parallel;

	*ret = (struct mft_rl_needs){0};
	if (c->grpo_kl_beta > 0)
		ret->reference = mft_reference_bytes(t);
	if (c->rl_inference_url.count)
		return 0;
	sampler_of(t, &config, &parallel);
	return mft_sampler_plan(&config, t->params, &parallel, (uint32_t)c->rl_sampler_slots,
				(uint32_t)c->seq_length, &ret->sampler, err);
}

static void print_awaited(const struct mft_trainer *t, const struct mfs_error *err)
{
	printf("engines: %s; the first weights for them are at %s/iter_%07llu/hf\n", err->msg,
	       t->config->rl_mount, (unsigned long long)t->progress.iteration);
	fflush(stdout);
}

/* Engines may be started after the run: they need a directory, which is the run's first save. */
static int await_engines(struct mft_trainer *t, const struct mft_engines_config *config,
			 struct mfs_error *err)
{
	const int64_t end = mfs_now_ns() + t->config->rl_engine_wait_seconds * INT64_C(1000000000);
	int rc;

	rc = mft_engines_open(config, &t->rl->engines, err);
	if (rc == -EIO)
		print_awaited(t, err);
	while (rc == -EIO && mfs_now_ns() < end && !mft_stop_signal()) {
		sleep(1);
		rc = mft_engines_open(config, &t->rl->engines, err);
	}
	if (!rc)
		rc = mft_engines_open(config, &t->rl->told, err);
	return rc ? rc : mft_ahead_new(t->rl->engines, &t->rl->sampling, &t->rl->ahead, err);
}

static int open_engines(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	const struct mft_engines_config engines = {
		.urls = c->rl_inference_url.list,
		.count = c->rl_inference_url.count,
		.most = (unsigned)c->rl_max_inflight_requests,
		.seconds = (long)c->rl_request_seconds,
		.tries = TRIES,
		.vocab = mft_rl_vocab(t),
	};
	int rc;

	if (!engines.count)
		return 0;
	rc = mft_rl_open_sync(t, err);
	if (!rc)
		rc = mft_rl_save_weights(t, err);
	return rc || t->parallel.launch.rank ? rc : await_engines(t, &engines, err);
}

static void *slot_alloc(void *arg, size_t bytes)
{
	const struct mft_trainer *t = arg;

	return t->backend->device->host_alloc(t->device, bytes);
}

static void slot_free(void *arg, void *p, size_t bytes)
{
	const struct mft_trainer *t = arg;

	t->backend->device->host_free(t->device, p, bytes);
}

static int open_feed(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_group_place *data = &t->parallel.group[MFT_GROUP_DATA];
	const struct mft_slot_memory_ops memory = {slot_alloc, slot_free, t};
	const size_t n = (size_t)(t->config->grpo_prompts_per_step * t->config->grpo_group_size);
	struct mft_rl *rl = t->rl;

	rl->trains = calloc(n, sizeof(*rl->trains));
	rl->weight = calloc(n, sizeof(*rl->weight));
	rl->list = calloc(n, sizeof(*rl->list));
	rl->places = calloc(n, sizeof(*rl->places));
	if (!rl->trains || !rl->weight || !rl->list || !rl->places)
		return mfs_fail_nomem(err);
	return mft_feed_new(t->config, t->params->padded_vocab, data->rank, data->size, &memory,
			    &rl->feed, err);
}

/* Rollouts begin where steps of the one before end. */
static int check_iteration(const struct mft_trainer *t, struct mfs_error *err)
{
	const uint64_t steps = mft_rl_steps(t->config), found = t->progress.iteration;

	return found % steps ? mfs_fail(err, -EINVAL,
					"the run goes on at iteration %llu: expected a multiple of "
					"the %llu steps of a rollout, or --finetune",
					(unsigned long long)found, (unsigned long long)steps)
			     : 0;
}

int mft_rl_open(struct mft_trainer *t, struct mfs_error *err)
{
	static int (*const parts[])(struct mft_trainer *, struct mfs_error *) = {
		open_prompts,  open_rewards, open_tokenizer, open_samples,
		open_sampling, open_sampler, open_engines,   open_feed};
	int rc = check_iteration(t, err);

	if (rc)
		return rc;
	t->rl = calloc(1, sizeof(*t->rl));
	if (!t->rl)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(parts) && !rc; i++)
		rc = parts[i](t, err);
	return rc;
}

void mft_rl_close(struct mft_trainer *t)
{
	struct mft_rl *rl = t->rl;

	mft_reference_release(t);
	if (!rl)
		return;
	mft_feed_free(rl->feed);
	mft_sampler_free(rl->sampler);
	mft_rl_await_delta(rl);
	mft_ahead_free(rl->ahead);
	mft_engines_close(rl->engines);
	mft_engines_close(rl->told);
	mft_saver_free(rl->sync_saver);
	mft_rollout_release(&rl->rollout);
	mft_bins_release(&rl->bins);
	mft_rewards_close(rl->rewards);
	mft_prompts_free(rl->prompts);
	mfs_tokenizer_free(rl->tokenizer);
	if (rl->samples)
		fclose(rl->samples);
	mfs_buf_release(&rl->sample_lines);
	free(rl->stops);
	free(rl->trains);
	free(rl->weight);
	free(rl->list);
	free(rl->places);
	free(rl);
	t->rl = NULL;
}

/* ---- a step ---- */

/* Lists the responses of the step that train. */
static uint32_t list_step(struct mft_trainer *t)
{
	struct mft_rl *rl = t->rl;
	const uint32_t n = mft_rollout_size(&rl->rollout);
	const uint64_t batch = (uint64_t)t->config->global_batch_size, first = rl->done * batch;
	uint32_t count = 0;

	for (uint64_t i = first; i < first + batch; i++)
		if (rl->trains[i % n])
			rl->list[count++] = (uint32_t)(i % n);
	return count;
}

static int weigh(struct mft_trainer *t, uint32_t count, struct mfs_error *err)
{
	const struct mft_rollout *r = &t->rl->rollout;
	const struct mft_rl_weighed of = {.tokens = r->count,
					  .list = t->rl->list,
					  .count = count,
					  .group = r->group,
					  .most = r->room};

	return mft_rl_weigh(t->config->rl_loss_aggregation, &of, t->rl->weight, err);
}

int mft_rl_begin_step(struct mft_trainer *t, struct mft_microbatches *ret, struct mfs_error *err)
{
	struct mft_rl *rl = t->rl;
	uint32_t count;
	int rc = 0;

	if (!rl->has_rollout) {
		rc = mft_rl_make_rollout(t, err);
		rl->has_rollout = !rc && !rl->dropped;
		rl->done = 0;
	}
	if (rc || rl->dropped)
		return rc;
	count = list_step(t);
	rc = weigh(t, count, err);
	if (!rc)
		rc = mft_rl_pack(t, count, err);
	if (rc)
		return rc;
	rl->done++;
	rl->has_rollout = rl->done < mft_rl_steps(t->config);
	*ret = (struct mft_microbatches){
		.from = mft_feed_source(rl->feed),
		.count = mft_feed_microbatches(rl->feed),
		.backward = true,
		.per_token = true,
		.scale = t->progress.scaler.scale,
		.old_is_own = mft_rl_steps(t->config) == 1,
	};
	return 0;
}
