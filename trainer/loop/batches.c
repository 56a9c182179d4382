#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/loop/trainer_i.h"

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

static int open_set(struct mft_trainer *t, enum mfs_split split, uint32_t set,
		    struct mfs_error *err)
{
	const uint64_t consumed = split == MFS_TRAIN   ? t->progress.consumed_train_samples
				  : split == MFS_VALID ? t->progress.consumed_valid_samples
						       : 0;

	return mft_loader_new(t->config, split, set, consumed,
			      (uint32_t)t->config->micro_batch_size, t->params->padded_vocab,
			      &(struct mft_slot_memory_ops){slot_alloc, slot_free, t},
			      &t->data[split].list[set], err);
}

/* The consumed samples of a checkpoint count in its own samples: in others they mean nothing. */
static int check_conversations(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_progress *p = &t->progress;
	struct mft_loader_stats now;

	mft_loader_stats(t->data[MFS_TRAIN].list[0], &now);
	if (now.epoch_samples && p->sft_samples && p->consumed_train_samples &&
	    (now.epoch_samples != p->sft_samples || now.epoch_order != p->sft_order))
		return mfs_fail(err, -EINVAL,
				"which conversations come next is not known: the checkpoint counts "
				"in an epoch of %llu samples, and these have %llu, or others; "
				"expected the checkpoint's conversations, --sft flags, "
				"--seq-length, --seed and --context-parallel-size, or --finetune, "
				"which begins anew",
				(unsigned long long)p->sft_samples,
				(unsigned long long)now.epoch_samples);
	p->sft_samples = now.epoch_samples;
	p->sft_order = now.epoch_order;
	return 0;
}

/* training.py: evaluate_and_print_results. */
static int check_names(const struct mft_trainer *t, uint32_t sets, struct mfs_error *err)
{
	const struct mfs_arg_words *names = &t->config->validation_set_names;

	if (names->count && names->count != sets)
		return mfs_fail(err, -EINVAL,
				"--validation-set-names: expected a name for each validation set, "
				"%u, found %zu",
				sets, (size_t)names->count);
	for (size_t i = 0; i < names->count; i++)
		if (strlen(names->list[i]) > MFT_SET_NAME - 2)
			return mfs_fail(err, -EINVAL,
					"--validation-set-names: expected %d bytes at most, found "
					"'%.*s...'",
					MFT_SET_NAME - 2, MFT_SET_NAME, names->list[i]);
	return 0;
}

int mft_trainer_open_data(struct mft_trainer *t, enum mfs_split split, struct mfs_error *err)
{
	struct mft_sets *sets = &t->data[split];
	uint32_t count;
	int rc = mft_loader_sets(t->config, split, &count, err);

	if (!rc && split == MFS_VALID)
		rc = check_names(t, count, err);
	if (rc)
		return rc;
	sets->list = calloc(count, sizeof(struct mft_loader *));
	if (!sets->list)
		return mfs_fail_nomem(err);
	while (!rc && sets->count < count) {
		rc = open_set(t, split, sets->count, err);
		sets->count += !rc;
	}
	if (!rc && split == MFS_TRAIN)
		rc = check_conversations(t, err);
	if (rc != -ENODATA || count == 1)
		return rc;
	/* A split may have no data, but not one of several sets. */
	mfs_fail_in(err, "validation set %u", sets->count);
	return -EINVAL;
}

void mft_trainer_close_data(struct mft_trainer *t)
{
	for (int i = 0; i < MFS_SPLITS; i++) {
		for (uint32_t k = 0; k < t->data[i].count; k++)
			mft_loader_free(t->data[i].list[k]);
		free(t->data[i].list);
	}
}

uint64_t mft_trainer_microbatches(const struct mft_trainer *t, uint64_t batch)
{
	return batch / (uint64_t)t->config->micro_batch_size /
	       t->parallel.group[MFT_GROUP_DATA].size;
}

int mft_trainer_losses(struct mft_trainer *t, struct mft_net_losses *ret, struct mfs_error *err)
{
	/* Those that share a sequence have parts of its losses. */
	const double size = t->parallel.group[MFT_GROUP_DATA].size;
	const unsigned count = sizeof(*ret) / sizeof(double);
	double *sums = (double *)ret; /* all of it */
	int rc = mft_net_losses(t->net, t->ctx, ret, err);

	if (rc)
		return rc;
	rc = mft_parallel_sum(&t->parallel, MFT_GROUP_GRADS, sums, count, err);
	if (!rc)
		rc = mft_parallel_sum(&t->parallel, MFT_GROUP_PIPELINE, sums, count, err);
	ret->z_loss /= size;
	/* Of all samples' loss each process has a part. */
	for (int i = 0; i < MFT_AUX_LOSSES; i++)
		ret->aux[i] /= i == MFT_GLOBAL_AUX_LOSS ? 1 : size;
	for (int i = 0; i < MFT_MTP_MOST; i++)
		ret->mtp[i] /= size;
	return rc;
}

/* ---- in flight ---- */

static int wait_for(struct mft_trainer *t, struct mfk_event *done, struct mfs_error *err)
{
	char why[MFK_WHY];
	const int rc = t->backend->device->event_sync(done, why);

	return rc ? mfs_fail(err, rc, "%s: %s", t->backend->name, why) : 0;
}

static void give_back(struct mft_batch_in_flight *b)
{
	if (b->batch)
		b->of.ops->give_back(b->of.arg, b->batch);
	b->batch = NULL;
}

static void look_at(struct mft_trainer *t, struct mft_loss_in_flight *l)
{
	if (!l->microbatch)
		return;
	mft_check_loss(&t->check, t->progress.iteration + 1, l->microbatch,
		       *l->losses - t->loss_before);
	t->loss_before = *l->losses;
	l->microbatch = 0;
}

void mft_trainer_batches_done(struct mft_trainer *t)
{
	/* In their order: the next place is that of the oldest. */
	for (unsigned i = 0; i < MFT_BATCHES_IN_FLIGHT; i++) {
		give_back(&t->in_flight[(t->next_in_flight + i) % MFT_BATCHES_IN_FLIGHT]);
		look_at(t, &t->losses[(t->next_loss + i) % MFT_BATCHES_IN_FLIGHT]);
	}
}

/* ---- microbatches ---- */

/* The loss of a microbatch is the mean over its counted tokens (schedules.py:
 * forward_step_calc_loss), and a step's is the mean of its microbatches; with per-token loss it is
 * one sum. */
static double grad_scale(const struct mft_microbatches *m, uint64_t counted)
{
	return m->per_token ? m->scale : m->scale / (double)(counted ? counted : 1);
}

/* Brings the next microbatch to the device. */
static int take(struct mft_trainer *t, const struct mft_microbatches *m,
		const struct mft_pipeline_step *step, double *counted, struct mfs_error *err)
{
	struct mft_batch_in_flight *b = &t->in_flight[t->next_in_flight];
	const struct mft_group_place *data_parallel = &t->parallel.group[MFT_GROUP_DATA];
	struct mft_microbatch_info info;
	int64_t from;
	int rc = 0;

	mft_watch_begin(t->parallel.watch, "a microbatch", NULL);
	/* The one before the last is done: the device has one to work on while this one is
	 * submitted. */
	if (b->batch)
		rc = wait_for(t, b->done, err);
	if (rc)
		return rc;
	give_back(b);
	b->of = m->from;
	from = mfs_now_ns();
	MFT_RANGE_BEGIN("data");
	rc = b->of.ops->next(b->of.arg, &b->batch, err);
	MFT_RANGE_END();
	mft_straggler_waited(t, mfs_now_ns() - from);
	if (rc)
		return rc;
	*counted += (double)b->batch->counted;
	info = (struct mft_microbatch_info){
		.batch = b->batch,
		.grad_scale = (float)grad_scale(m, b->batch->counted),
		.backward = m->backward,
		.old_is_own = m->old_is_own,
		.first = step->microbatch == 0,
		.last = step->microbatch + 1 == m->count,
		.iteration = t->progress.iteration,
		/* As one process would number them. */
		.microbatch = step->microbatch * data_parallel->size + data_parallel->rank,
	};
	return mft_net_take(t->net, t->ctx, step->batch, &info, err);
}

static void taken(struct mft_trainer *t)
{
	t->backend->device->event_record(t->ctx, t->in_flight[t->next_in_flight].done);
	t->next_in_flight = (t->next_in_flight + 1) % MFT_BATCHES_IN_FLIGHT;
}

/* The loss of a microbatch that trains is looked at by itself. */
static int keep_loss(struct mft_trainer *t, uint64_t microbatch, struct mfs_error *err)
{
	struct mft_loss_in_flight *l = &t->losses[t->next_loss];
	const int rc = l->microbatch ? wait_for(t, l->done, err) : 0;

	if (rc)
		return rc;
	look_at(t, l);
	mft_net_copy_loss(t->net, t->ctx, l->losses);
	t->backend->device->event_record(t->ctx, l->done);
	l->microbatch = microbatch + 1;
	t->next_loss = (t->next_loss + 1) % MFT_BATCHES_IN_FLIGHT;
	return 0;
}

uint64_t mft_trainer_tokens(const struct mft_trainer *t)
{
	const struct mft_train_config *c = t->config;

	return (uint64_t)c->micro_batch_size * (uint64_t)c->seq_length / t->parallel.size.cp;
}

static int keep_log_probs(struct mft_trainer *t, const struct mft_microbatches *m,
			  uint64_t microbatch, struct mfs_error *err)
{
	const int rc = mft_net_copy_log_probs(t->net, t->ctx,
					      m->log_probs + microbatch * mft_trainer_tokens(t));

	return rc ? mfs_fail(err, rc, "the loss gives no log-probs") : 0;
}

static bool is_same(const struct mft_pipeline_shape *a, const struct mft_pipeline_shape *b)
{
	return a->stages == b->stages && a->chunks == b->chunks && a->group == b->group &&
	       a->microbatches == b->microbatches && a->backward == b->backward;
}

static int use_pipeline(struct mft_trainer *t, const struct mft_microbatches *m,
			struct mfs_error *err)
{
	struct mft_pipeline_shape shape;
	int rc;

	mft_net_pipeline(t->net, m->count, m->backward, &shape);
	if (is_same(&shape, &t->pipeline_shape))
		return 0;
	mft_pipeline_release(&t->pipeline);
	t->pipeline_shape = (struct mft_pipeline_shape){0};
	rc = mft_pipeline_new(&shape, t->parallel.place.pp, &t->pipeline, err);
	if (rc)
		return rc;
	if (!mft_net_has_room(t->net, &t->pipeline))
		return mfs_fail(err, -EINVAL,
				"%llu microbatches keep more activations than those of the run's "
				"largest batch",
				(unsigned long long)m->count);
	t->pipeline_shape = shape;
	return 0;
}

int mft_trainer_run(struct mft_trainer *t, const struct mft_microbatches *m, double *counted,
		    struct mfs_error *err)
{
	int rc = use_pipeline(t, m, err);

	for (uint64_t i = 0; !rc && i < t->pipeline.count; i++) {
		const struct mft_pipeline_step *step = &t->pipeline.steps[i];

		if (step->first)
			rc = take(t, m, step, counted, err);
		if (rc)
			break;
		mft_net_step(t->net, t->ctx, step);
		if (step->first)
			taken(t);
		if (m->backward && mft_net_gives_loss(t->net, step))
			rc = keep_loss(t, step->microbatch, err);
		if (!rc && m->log_probs && mft_net_gives_loss(t->net, step))
			rc = keep_log_probs(t, m, step->microbatch, err);
	}
	if (!rc)
		mft_net_end(t->net, t->ctx);
	return rc;
}
