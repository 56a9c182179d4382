#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/clock.h"
#include "formats/sft/conversation.h"
#include "trainer/config/settle/settle.h"
#include "trainer/loop/device.h"
#include "trainer/loop/rl.h"
#include "trainer/loop/train.h"
#include "trainer/loop/trainer_i.h"
#include "trainer/params/draw.h"
#include "trainer/base/dtype.h"

/* ---- in order ---- */

/* Sizes that mft_train_config_settle() has checked. */
static struct mft_parallel_sizes sizes_of(const struct mft_train_config *c)
{
	const struct mfs_megatron_args *a = &c->model;
	const uint32_t tp = (uint32_t)a->tensor_model_parallel_size;
	const uint32_t cp = (uint32_t)c->context_parallel_size;
	const uint32_t dp = (uint32_t)c->data_parallel_size;
	const uint32_t etp = (uint32_t)a->expert_tensor_parallel_size;
	const uint32_t ep = (uint32_t)a->expert_model_parallel_size;

	return (struct mft_parallel_sizes){
		.tp = tp,
		.cp = cp,
		.dp = dp,
		.pp = (uint32_t)a->pipeline_model_parallel_size,
		.etp = etp,
		.ep = ep,
		.edp = tp * cp * dp / (etp * ep),
		.neighbours = (uint32_t)c->context_neighbours,
		.instances = (uint32_t)c->num_distributed_optimizer_instances};
}

static int open_recorder(struct mft_trainer *t, const struct mfk_backend *recorder,
			 struct mfs_error *err)
{
	char why[MFK_WHY];
	const int rc = recorder->device->open(0, 0, &t->device, why);

	t->backend = rc ? NULL : recorder;
	return rc ? mfs_fail(err, rc, "%s", why) : 0;
}

static int check_device(const struct mft_trainer *t, struct mfs_error *err)
{
	struct mfk_device_info info;

	t->backend->device->info(t->device, &info);
	return mft_device_check(t->config, &info, err);
}

static int open_device(struct mft_trainer *t, const struct mft_launch *launch,
		       const struct mfk_backend *recorder, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc = recorder ? open_recorder(t, recorder, err)
			  : mft_device_choose(t->config, launch, &t->backend, &t->device, err);

	if (!rc)
		rc = check_device(t, err);
	if (rc)
		return rc;
	rc = t->backend->device->ctx_new(t->device, false, &t->ctx, why);
	if (rc)
		return mfs_fail(err, rc, "%s: %s", t->backend->name, why);
	for (unsigned i = 0; i < MFT_BATCHES_IN_FLIGHT; i++) {
		rc = t->backend->device->event_new(t->device, &t->in_flight[i].done);
		if (!rc)
			rc = t->backend->device->event_new(t->device, &t->losses[i].done);
		if (rc)
			return mfs_fail(err, rc, "%s: no event could be made", t->backend->name);
		t->losses[i].losses =
			t->backend->device->host_alloc(t->device, sizeof(*t->losses[i].losses));
		if (!t->losses[i].losses)
			return mfs_fail_nomem(err);
	}
	return 0;
}

/* Everything that needs memory says how much. */
static int plan(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_train_config *c = t->config;
	struct mft_net_hooks hooks;
	int rc = mft_params_new(c, &t->parallel, &t->params, err);

	if (rc)
		return rc;
	mft_params_plan(t->params, &t->memory, &t->places);
	rc = mft_net_new(c, t->params, &t->memory, t->backend, t->device, &t->parallel, &t->net,
			 err);
	if (!rc)
		rc = mft_sync_new(c, t->params, &t->memory, t->backend, t->device, &t->parallel,
				  &t->sync, err);
	if (rc)
		return rc;
	hooks = mft_sync_hooks(t->sync);
	mft_net_set_hooks(t->net, &hooks);
	return mft_update_new(c, t->params, &t->memory, t->backend, t->device, &t->parallel,
			      &t->update, err);
}

/* Before the run's own state, whose place it takes for a moment. */
static int open_reference(struct mft_trainer *t, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	const int rc = c->perform_rl_step && c->grpo_kl_beta > 0 ? mft_reference_new(t, err) : 0;

	return rc || !t->reference.weights ? rc : mft_reference_load(t, err);
}

/* Without --pretrained-checkpoint the reference is what the run begins with. */
static int take_reference(struct mft_trainer *t, struct mfs_error *err)
{
	if (!t->reference.weights || t->reference.taken)
		return 0;
	if (t->progress.iteration)
		return mfs_fail(
			err, -ENODATA,
			"what the run began with is its reference, and it is at iteration "
			"%llu already: expected --pretrained-checkpoint, or --grpo-kl-beta 0",
			(unsigned long long)t->progress.iteration);
	return mft_reference_take(t, err);
}

/* Without those of earlier passes the first ones are made of the first numbers. */
static int load_scales(struct mft_trainer *t, struct mft_load *load, struct mfs_error *err)
{
	const int rc = mft_load_scales(load, t->config, t->params, t->backend, t->device, t->ctx,
				       t->scales_why, err);

	if (!rc && t->scales_why[0])
		mft_net_find_scales(t->net);
	return rc;
}

static int fill(struct mft_trainer *t, struct mft_load *load, struct mfs_error *err)
{
	int64_t began;
	int rc;

	mft_check_init(&t->check, t->config, t->parallel.launch.rank);
	mft_loss_scaler_init(t->config, &t->progress.scaler);
	rc = mft_schedule_init(t->config, &t->progress.schedule, err);
	if (rc)
		return rc;
	if (!load) {
		mft_params_draw(t->params, (uint64_t)t->config->seed, t->backend, t->ctx);
		mft_sync_gather(t->sync, t->ctx); /* as after an update */
		rc = open_reference(t, err);
		return rc ? rc : take_reference(t, err);
	}
	rc = open_reference(t, err);
	if (rc)
		return rc;
	mft_watch_rest(t->parallel.watch, true);
	began = mfs_now_ns();
	rc = mft_load_state(load, t->config, t->params, t->backend, t->device, t->ctx, &t->progress,
			    &t->loaded_optimizer, err);
	t->load_seconds = (double)(mfs_now_ns() - began) / 1e9;
	mft_watch_rest(t->parallel.watch, false);
	if (!rc && t->params->scales)
		rc = load_scales(t, load, err);
	return rc ? rc : take_reference(t, err);
}

/* The first process's time is that of all: their texts are the same. */
static int agree_on_now(struct mft_trainer *t, struct mfs_error *err)
{
	double now;
	int rc;

	if (!t->config->sft)
		return 0;
	rc = mfs_talk_now(&t->config->sft_now, err);
	if (rc)
		return rc;
	now = t->parallel.launch.rank == 0 ? (double)t->config->sft_now : 0;
	rc = mft_parallel_sum(&t->parallel, MFT_GROUP_WORLD, &now, 1, err);
	t->config->sft_now = (int64_t)now;
	return rc;
}

/* An index of samples may have to be built first. */
static int open_data(struct mft_trainer *t, struct mfs_error *err)
{
	const bool validates = t->config->eval_iters > 0 || t->config->full_validation;
	int rc = agree_on_now(t, err);

	if (rc)
		return rc;
	mft_watch_rest(t->parallel.watch, true);
	/* A run that is started again after its last iteration has consumed all samples. */
	if (!t->config->skip_train && t->progress.iteration < t->iterations)
		rc = t->config->perform_rl_step ? mft_rl_open(t, err)
						: mft_trainer_open_data(t, MFS_TRAIN, err);
	/* A split without data is not validated on, and that is no error (training.py:
	 * build_train_valid_test_data_iterators). */
	for (int split = MFS_VALID; !rc && validates && split <= MFS_TEST; split++) {
		rc = mft_trainer_open_data(t, (enum mfs_split)split, err);
		if (rc == -ENODATA)
			rc = 0;
	}
	mft_watch_rest(t->parallel.watch, false);
	return rc;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

const char *mft_trainer_tokenizer(const struct mft_train_config *config)
{
	const char *model = config->tokenizer_model;

	return model && is_directory(model) ? model : NULL;
}

/* The directory whose tokenizer goes along with checkpoints: that of --tokenizer-model, or what the
 * checkpoint has that the run began with. text: room for a path. NULL: there is none. */
static const char *tokenizer_of(const struct mft_train_config *config, const struct mft_load *load,
				char text[PATH_MAX])
{
	if (!config->save_tokenizer_assets)
		return NULL;
	if (mft_trainer_tokenizer(config))
		return config->tokenizer_model;
	if (!load)
		return NULL;
	snprintf(text, PATH_MAX, "%s/tokenizer", mft_load_dir(load));
	return is_directory(text) ? text : NULL;
}

/* Only for the process that logs it: other processes' passes are not measured. */
static int open_exposure(struct mft_trainer *t, struct mfs_error *err)
{
	int rc;

	if (!t->config->log_communication || !t->speaks || t->parallel.launch.size == 1)
		return 0;
	rc = mft_exposure_new(t->backend, t->device, t->ctx, &t->exposure, err);
	t->parallel.exposure = t->exposure;
	return rc;
}

/* A run of several processes is watched from here on, until it is closed: its processes wait for
 * each other. What each does for itself may take as long as it takes, such as a load; who waits for
 * it meanwhile is watched. */
int mft_trainer_open_processes(struct mft_trainer *t, const struct mft_launch *launch,
			       const struct mfk_backend *recorder, struct mfs_error *err)
{
	const struct mft_parallel_sizes sizes = sizes_of(t->config);
	const unsigned seconds = 60 * (unsigned)t->config->distributed_timeout_minutes;
	int rc = 0;

	mft_parallel_places(launch, &sizes, &t->parallel);
	t->parallel.traffic = t->traffic;
	if (t->config->dry_run && !recorder)
		return 0;
	if (launch->size > 1 && !recorder)
		rc = mft_watch_new(launch, seconds, MFT_TRAIN_FAILED, &t->parallel.watch, err);
	if (!rc)
		rc = open_device(t, launch, recorder, err);
	if (!rc && !recorder)
		rc = open_exposure(t, err);
	if (!rc)
		rc = mft_parallel_open(&t->parallel, t->backend, t->device, seconds, err);
	return rc;
}

int mft_trainer_open(struct mft_train_config *config, const struct mft_launch *launch,
		     const struct mfk_backend *recorder, struct mft_trainer *t,
		     struct mfs_error *err)
{
	const bool plans = config->dry_run && !recorder;
	struct mft_load *load = NULL;
	char tokenizer[PATH_MAX];
	int rc;

	*t = (struct mft_trainer){.config = config, .speaks = !launch->rank};
	mft_parallel_one(&t->parallel);
	rc = recorder ? mft_load_open(config, &load, err)
		      : mft_load_await(config, launch, &load, err);
	if (!rc)
		rc = load ? mft_load_args(load, config, err) : mft_train_config_settle(config, err);
	if (!rc)
		rc = mft_trainer_open_processes(t, launch, recorder, err);
	if (!rc && !config->dry_run && !recorder)
		rc = mft_load_agree(&load, config, &t->parallel, err);
	/* While the device has room. */
	if (!rc && !config->dry_run && config->log_throughput)
		rc = mft_peak_measure(t->backend, t->device, t->ctx,
				      mft_mfk_dtype(config->params_dtype), &t->peak, err);
	if (!rc)
		rc = plan(t, err);
	if (rc || plans)
		goto out;
	rc = mft_memory_place(&t->memory, t->backend, t->device, err);
	if (rc)
		goto out;
	mft_params_place(t->params, &t->places, &t->memory);
	/* What lies between parameters stays zero for the whole run. */
	t->backend->device->zero(t->ctx, t->memory.base, t->memory.total);
	t->iterations = mft_schedule_iterations(config);
	rc = mft_net_begin(t->net, t->ctx, err);
	if (!rc)
		rc = fill(t, recorder ? NULL : load, err);
	if (!rc)
		rc = open_data(t, err);
	if (!rc && config->save && !recorder)
		rc = mft_saver_new(config, t->params, &t->parallel, t->backend, t->device,
				   tokenizer_of(config, load, tokenizer), &t->saver, err);
	if (load)
		snprintf(t->loaded, sizeof(t->loaded), "%s", mft_load_what(load));
out:
	mft_load_free(load);
	return rc;
}

static void close_in_flight(struct mft_trainer *t, unsigned i)
{
	struct mft_loss_in_flight *l = &t->losses[i];

	if (t->in_flight[i].done)
		t->backend->device->event_free(t->in_flight[i].done);
	if (l->done)
		t->backend->device->event_free(l->done);
	if (l->losses)
		t->backend->device->host_free(t->device, l->losses, sizeof(*l->losses));
}

int mft_trainer_close(struct mft_trainer *t, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc = 0;

	mft_watch_phase(t->parallel.watch, "the end");
	if (t->ctx)
		t->backend->device->sync(t->ctx, why);
	mft_trainer_batches_done(t);
	mft_saver_free(t->saver);
	mft_rl_close(t);
	mft_trainer_close_data(t);
	mft_pipeline_release(&t->pipeline);
	mft_events_close(t->events);
	mft_offline_close(t->offline);
	mft_straggler_free(t->straggler);
	mft_update_free(t->update);
	mft_sync_free(t->sync);
	mft_net_free(t->net);
	mft_params_free(t->params);
	if (t->backend) {
		mft_memory_release(&t->memory, t->backend, t->device);
		for (unsigned i = 0; i < MFT_BATCHES_IN_FLIGHT; i++)
			close_in_flight(t, i);
		rc = mft_parallel_close(&t->parallel, err);
		mft_exposure_free(t->exposure);
		if (t->ctx)
			t->backend->device->ctx_free(t->ctx);
		t->backend->device->close(t->device);
	}
	mft_watch_free(t->parallel.watch);
	return rc;
}
