#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/clock.h"
#include "trainer/config/settle/settle.h"
#include "trainer/loop/device.h"
#include "trainer/loop/train.h"
#include "trainer/loop/trainer_i.h"
#include "trainer/base/dtype.h"

/* ---- flat buffers ---- */

static uint64_t plan_flat(struct mfs_trainer *t, enum mfs_memory_kind kind, enum mfs_dtype type,
			  uint64_t elements)
{
	return mfs_memory_add(&t->memory, kind, elements * mfs_dtype_size(type));
}

static void plan_parameters(struct mfs_trainer *t)
{
	const struct mfs_params *p = t->params;

	t->places = (struct mfs_flat_places){
		.weights = plan_flat(t, MFS_MEMORY_WEIGHTS, p->weight_type,
				     mfs_params_weight_elements(p)),
		.grads = plan_flat(t, MFS_MEMORY_GRADIENTS, p->grad_type,
				   mfs_params_grad_elements(p)),
	};
	for (unsigned i = 0; i < MFS_SLOTS; i++)
		t->places.slot[i] =
			plan_flat(t, i == MFS_SLOT_MAIN ? MFS_MEMORY_MAIN : MFS_MEMORY_MOMENTS,
				  p->slot[i].type, p->slot[i].elements - p->offloaded_owned);
	t->places.buffers =
		mfs_memory_add(&t->memory, MFS_MEMORY_WEIGHTS, p->buffer_elements * sizeof(float));
}

static void place_parameters(struct mfs_trainer *t)
{
	struct mfs_params *p = t->params;
	const struct mfs_flat_places *at = &t->places;
	const struct mfs_memory *m = &t->memory;
	const struct mfk_device_ops *device = t->backend->device;

	p->weights = mfs_memory_at(m, at->weights);
	p->grads = mfs_memory_at(m, at->grads);
	for (unsigned i = 0; i < MFS_SLOTS; i++)
		if (p->slot[i].type != MFS_DTYPE_NONE)
			p->slot[i].device = mfs_memory_at(m, at->slot[i]);
	p->buffers = mfs_memory_at(m, at->buffers);
	/* What lies between parameters stays zero for the whole run. */
	device->zero(t->ctx, m->base, m->total);
}

struct drawing {
	struct mfs_trainer *t;
	const struct mfs_param *param;
	uint64_t at; /* the element that `to` is */
	enum mfk_dtype type;
	char *to;
};

static int draw_run(void *arg, const struct mfs_param_run *run)
{
	const struct drawing *d = arg;

	d->t->backend->ops->fill_normal(
		d->t->ctx, d->type, d->to + (run->first - d->at) * mfk_dtype_size(d->type),
		(int64_t)run->count, 0, (float)d->param->init_std, (uint64_t)d->t->config->seed,
		d->param->drawn_from + run->whole_first);
	return 0;
}

/* Numbers of a parameter, from element at on. They depend on the seed and on their place in the
 * whole model alone. */
static void draw_numbers(struct mfs_trainer *t, const struct mfs_param *q, uint64_t at,
			 uint64_t count, enum mfk_dtype type, void *to)
{
	struct drawing d = {t, q, at, type, to};

	if (q->init_std < 0)
		t->backend->ops->fill(t->ctx, type, to, (int64_t)count, q->init_value);
	else
		mfs_param_runs(q, at, count, draw_run, &d);
}

/* Elements of a parameter that are drawn: first is that of the flat buffers. */
struct stretch {
	const struct mfs_param *param;
	uint64_t first, count;
};

/* Main parameters that are offloaded are drawn in the memory of gradients, which are zeroed again
 * afterwards. Main parameters have two times the bytes of gradients at most, and of these there are
 * MFS_PARAM_ALIGN: so there is room for a piece. */
#define DRAWN_AT_ONCE (MFS_PARAM_ALIGN / 2)

static void draw_offloaded(struct mfs_trainer *t, const struct stretch *s)
{
	const struct mfs_params *p = t->params;
	const struct mfk_device_ops *device = t->backend->device;
	const size_t main_size = mfs_dtype_size(p->slot[MFS_SLOT_MAIN].type);
	const uint64_t bytes = mfs_params_grad_elements(p) * mfs_dtype_size(p->grad_type);
	const uint64_t most = bytes / main_size / DRAWN_AT_ONCE * DRAWN_AT_ONCE;
	const uint64_t end = s->first + s->count;

	for (uint64_t at = s->first, n; at < end; at += n) {
		const struct mfs_flat weight = mfs_params_flat(p, MFS_STATE_MODEL, at);
		const struct mfs_flat main = mfs_params_flat(p, MFS_STATE_MAIN, at);

		n = end - at < most ? end - at : most;
		draw_numbers(t, s->param, at - s->param->start, n, mfs_mfk_dtype(main.type),
			     p->grads);
		t->backend->ops->cast(t->ctx, mfs_mfk_dtype(weight.type), weight.at,
				      mfs_mfk_dtype(main.type), p->grads, (int64_t)n);
		device->copy_out(t->ctx, main.at, p->grads, n * main_size);
		device->zero(t->ctx, p->grads, n * main_size);
	}
}

/* Draws in the main parameters' type, and rounds to the weights. */
static void draw(struct mfs_trainer *t, const struct stretch *s)
{
	const struct mfs_flat weight = mfs_params_flat(t->params, MFS_STATE_MODEL, s->first);
	const struct mfs_flat main = mfs_params_flat(t->params, MFS_STATE_MAIN, s->first);
	const enum mfk_dtype type = mfs_mfk_dtype(weight.type);
	const uint64_t at = s->first - s->param->start;

	if (!main.at) {
		draw_numbers(t, s->param, at, s->count, type, weight.at);
	} else if (main.on_host) {
		draw_offloaded(t, s);
	} else {
		draw_numbers(t, s->param, at, s->count, mfs_mfk_dtype(main.type), main.at);
		t->backend->ops->cast(t->ctx, type, weight.at, mfs_mfk_dtype(main.type), main.at,
				      (int64_t)s->count);
	}
}

/* Each process draws what it owns; the others' weights are gathered as after an update. */
static void draw_all(struct mfs_trainer *t)
{
	const struct mfs_params *p = t->params;

	for (uint32_t i = 0; i < p->count; i++) {
		struct stretch s = {.param = &p->list[i], .first = p->list[i].start};
		const uint64_t end = s.first + p->list[i].elements;

		for (; (s.count = mfs_params_owned(p, &s.first, end)); s.first += s.count)
			draw(t, &s);
	}
	mfs_sync_gather(t->sync, t->ctx);
}

/* ---- in order ---- */

/* Sizes that mfs_train_config_settle() has checked. */
static struct mfs_parallel_sizes sizes_of(const struct mfs_train_config *c)
{
	const struct mfs_megatron_args *a = &c->model;
	const uint32_t tp = (uint32_t)a->tensor_model_parallel_size;
	const uint32_t cp = (uint32_t)c->context_parallel_size;
	const uint32_t dp = (uint32_t)c->data_parallel_size;
	const uint32_t etp = (uint32_t)a->expert_tensor_parallel_size;
	const uint32_t ep = (uint32_t)a->expert_model_parallel_size;

	return (struct mfs_parallel_sizes){
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

static int open_recorder(struct mfs_trainer *t, const struct mfk_backend *recorder,
			 struct mfs_error *err)
{
	char why[MFK_WHY];
	const int rc = recorder->device->open(0, 0, &t->device, why);

	t->backend = rc ? NULL : recorder;
	return rc ? mfs_fail(err, rc, "%s", why) : 0;
}

static int open_device(struct mfs_trainer *t, const struct mfs_launch *launch,
		       const struct mfk_backend *recorder, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc = recorder ? open_recorder(t, recorder, err)
			  : mfs_device_choose(t->config, launch, &t->backend, &t->device, err);

	if (rc)
		return rc;
	rc = t->backend->device->ctx_new(t->device, false, &t->ctx, why);
	if (rc)
		return mfs_fail(err, rc, "%s: %s", t->backend->name, why);
	for (unsigned i = 0; i < MFS_BATCHES_IN_FLIGHT; i++) {
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
static int plan(struct mfs_trainer *t, struct mfs_error *err)
{
	struct mfs_train_config *c = t->config;
	struct mfs_net_watch watch;
	int rc = mfs_params_new(c, &t->parallel, &t->params, err);

	if (rc)
		return rc;
	plan_parameters(t);
	rc = mfs_net_new(c, t->params, &t->memory, t->backend, t->device, &t->parallel, &t->net,
			 err);
	if (!rc)
		rc = mfs_sync_new(c, t->params, &t->memory, t->backend, t->device, &t->parallel,
				  &t->sync, err);
	if (rc)
		return rc;
	watch = mfs_sync_watch(t->sync);
	mfs_net_set_watch(t->net, &watch);
	return mfs_update_new(c, t->params, &t->memory, t->backend, t->device, &t->parallel,
			      &t->update, err);
}

static int fill(struct mfs_trainer *t, struct mfs_load *load, struct mfs_error *err)
{
	int64_t began;
	int rc;

	mfs_check_init(&t->check, t->config, t->parallel.launch.rank);
	mfs_loss_scaler_init(t->config, &t->progress.scaler);
	rc = mfs_schedule_init(t->config, &t->progress.schedule, err);
	if (rc)
		return rc;
	if (!load) {
		draw_all(t);
		return 0;
	}
	mfs_watch_rest(t->parallel.watch, true);
	began = mfs_now_ns();
	rc = mfs_load_state(load, t->config, t->params, t->backend, t->device, t->ctx, &t->progress,
			    &t->loaded_optimizer, err);
	t->load_seconds = (double)(mfs_now_ns() - began) / 1e9;
	mfs_watch_rest(t->parallel.watch, false);
	return rc;
}

/* An index of samples may have to be built first. */
static int open_data(struct mfs_trainer *t, struct mfs_error *err)
{
	const bool validates = t->config->eval_iters > 0 || t->config->full_validation;
	int rc = 0;

	mfs_watch_rest(t->parallel.watch, true);
	/* A run that is started again after its last iteration has consumed all samples. */
	if (!t->config->skip_train && t->progress.iteration < t->iterations)
		rc = mfs_trainer_open_data(t, MFS_TRAIN, err);
	/* A split without data is not validated on, and that is no error (training.py:
	 * build_train_valid_test_data_iterators). */
	for (int split = MFS_VALID; !rc && validates && split <= MFS_TEST; split++) {
		rc = mfs_trainer_open_data(t, (enum mfs_split)split, err);
		if (rc == -ENODATA)
			rc = 0;
	}
	mfs_watch_rest(t->parallel.watch, false);
	return rc;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* The directory whose tokenizer goes along with checkpoints: that of --tokenizer-model, or what the
 * checkpoint has that the run began with. text: room for a path. NULL: there is none. */
static const char *tokenizer_of(const struct mfs_train_config *config, const struct mfs_load *load,
				char text[PATH_MAX])
{
	const char *model = config->tokenizer_model;

	if (!config->save_tokenizer_assets)
		return NULL;
	if (model && is_directory(model))
		return model;
	if (!load)
		return NULL;
	snprintf(text, PATH_MAX, "%s/tokenizer", mfs_load_dir(load));
	return is_directory(text) ? text : NULL;
}

/* Only for the process that logs it: other processes' passes are not measured. */
static int open_exposure(struct mfs_trainer *t, struct mfs_error *err)
{
	int rc;

	if (!t->config->log_communication || !t->speaks || t->parallel.launch.size == 1)
		return 0;
	rc = mfs_exposure_new(t->backend, t->device, t->ctx, &t->exposure, err);
	t->parallel.exposure = t->exposure;
	return rc;
}

/* A run of several processes is watched from here on, until it is closed: its processes wait for
 * each other. What each does for itself may take as long as it takes, such as a load; who waits for
 * it meanwhile is watched. */
static int open_processes(struct mfs_trainer *t, const struct mfs_launch *launch,
			  const struct mfk_backend *recorder, struct mfs_error *err)
{
	const struct mfs_parallel_sizes sizes = sizes_of(t->config);
	const unsigned seconds = 60 * (unsigned)t->config->distributed_timeout_minutes;
	int rc = 0;

	mfs_parallel_places(launch, &sizes, &t->parallel);
	t->parallel.traffic = t->traffic;
	if (t->config->dry_run && !recorder)
		return 0;
	if (launch->size > 1 && !recorder)
		rc = mfs_watch_new(launch, seconds, MFS_TRAIN_FAILED, &t->parallel.watch, err);
	if (!rc)
		rc = open_device(t, launch, recorder, err);
	if (!rc && !recorder)
		rc = open_exposure(t, err);
	if (!rc)
		rc = mfs_parallel_open(&t->parallel, t->backend, t->device, seconds, err);
	return rc;
}

int mfs_trainer_open(struct mfs_train_config *config, const struct mfs_launch *launch,
		     const struct mfk_backend *recorder, struct mfs_trainer *t,
		     struct mfs_error *err)
{
	const bool plans = config->dry_run && !recorder;
	struct mfs_load *load = NULL;
	char tokenizer[PATH_MAX];
	int rc;

	*t = (struct mfs_trainer){.config = config, .speaks = !launch->rank};
	mfs_parallel_one(&t->parallel);
	rc = recorder ? mfs_load_open(config, &load, err)
		      : mfs_load_await(config, launch, &load, err);
	if (!rc)
		rc = load ? mfs_load_args(load, config, err) : mfs_train_config_settle(config, err);
	if (!rc)
		rc = open_processes(t, launch, recorder, err);
	if (!rc && !config->dry_run && !recorder)
		rc = mfs_load_agree(&load, config, &t->parallel, err);
	/* While the device has room. */
	if (!rc && !config->dry_run && config->log_throughput)
		rc = mfs_peak_measure(t->backend, t->device, t->ctx,
				      mfs_mfk_dtype(config->params_dtype), &t->peak, err);
	if (!rc)
		rc = plan(t, err);
	if (rc || plans)
		goto out;
	rc = mfs_memory_place(&t->memory, t->backend, t->device, err);
	if (rc)
		goto out;
	place_parameters(t);
	t->iterations = mfs_schedule_iterations(config);
	rc = mfs_net_begin(t->net, t->ctx, err);
	if (!rc)
		rc = fill(t, recorder ? NULL : load, err);
	if (!rc)
		rc = open_data(t, err);
	if (!rc && config->save && !recorder)
		rc = mfs_saver_new(config, t->params, &t->parallel, t->backend, t->device,
				   tokenizer_of(config, load, tokenizer), &t->saver, err);
	if (load)
		snprintf(t->loaded, sizeof(t->loaded), "%s", mfs_load_what(load));
out:
	mfs_load_free(load);
	return rc;
}

static void close_in_flight(struct mfs_trainer *t, unsigned i)
{
	struct mfs_loss_in_flight *l = &t->losses[i];

	if (t->in_flight[i].done)
		t->backend->device->event_free(t->in_flight[i].done);
	if (l->done)
		t->backend->device->event_free(l->done);
	if (l->losses)
		t->backend->device->host_free(t->device, l->losses, sizeof(*l->losses));
}

int mfs_trainer_close(struct mfs_trainer *t, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc = 0;

	mfs_watch_phase(t->parallel.watch, "the end");
	if (t->ctx)
		t->backend->device->sync(t->ctx, why);
	mfs_trainer_batches_done(t);
	mfs_saver_free(t->saver);
	mfs_trainer_close_data(t);
	mfs_pipeline_release(&t->pipeline);
	mfs_events_close(t->events);
	mfs_offline_close(t->offline);
	mfs_straggler_free(t->straggler);
	mfs_update_free(t->update);
	mfs_sync_free(t->sync);
	mfs_net_free(t->net);
	mfs_params_free(t->params);
	if (t->backend) {
		mfs_memory_release(&t->memory, t->backend, t->device);
		for (unsigned i = 0; i < MFS_BATCHES_IN_FLIGHT; i++)
			close_in_flight(t, i);
		rc = mfs_parallel_close(&t->parallel, err);
		mfs_exposure_free(t->exposure);
		if (t->ctx)
			t->backend->device->ctx_free(t->ctx);
		t->backend->device->close(t->device);
	}
	mfs_watch_free(t->parallel.watch);
	return rc;
}
