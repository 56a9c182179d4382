#include <stdlib.h>

#include "trainer/loop/trainer_i.h"

static void *slot_alloc(void *arg, size_t bytes)
{
	const struct mfs_trainer *t = arg;

	return t->backend->device->host_alloc(t->device, bytes);
}

static void slot_free(void *arg, void *p, size_t bytes)
{
	const struct mfs_trainer *t = arg;

	t->backend->device->host_free(t->device, p, bytes);
}

int mfs_trainer_open_data(struct mfs_trainer *t, enum mfs_split split, struct mfs_error *err)
{
	const uint64_t consumed = split == MFS_TRAIN   ? t->progress.consumed_train_samples
				  : split == MFS_VALID ? t->progress.consumed_valid_samples
						       : 0;

	return mfs_loader_new(t->config, split, consumed, (uint32_t)t->config->micro_batch_size,
			      t->params->padded_vocab,
			      &(struct mfs_slot_memory){slot_alloc, slot_free, t}, &t->data[split],
			      err);
}

uint64_t mfs_trainer_microbatches(const struct mfs_trainer *t, uint64_t batch)
{
	return batch / (uint64_t)t->config->micro_batch_size /
	       t->parallel.group[MFS_GROUP_DATA].size;
}

int mfs_trainer_losses(struct mfs_trainer *t, struct mfs_net_losses *ret, struct mfs_error *err)
{
	const double size = t->parallel.group[MFS_GROUP_DATA].size;
	double sums[4];
	int rc = mfs_net_losses(t->net, t->ctx, ret, err);

	if (rc)
		return rc;
	sums[0] = ret->lm_loss_sum;
	sums[1] = ret->load_balancing;
	sums[2] = ret->seq_load_balancing;
	sums[3] = ret->z_loss;
	rc = mfs_parallel_sum(&t->parallel, MFS_GROUP_DATA, sums, 4, err);
	*ret = (struct mfs_net_losses){sums[0], sums[1] / size, sums[2] / size, sums[3] / size};
	return rc;
}

/* One that the device is done with. */
static void finish(struct mfs_trainer *t, struct mfs_batch_in_flight *b)
{
	if (b->training) {
		mfs_check_loss(&t->check, t->progress.iteration + 1, b->training,
			       *b->losses - t->loss_before);
		t->loss_before = *b->losses;
	}
	mfs_loader_give_back(b->of, b->batch);
	b->batch = NULL;
}

static int wait_for(struct mfs_trainer *t, struct mfs_batch_in_flight *b, struct mfs_error *err)
{
	char why[MFK_WHY];
	int rc;

	if (!b->batch)
		return 0;
	rc = t->backend->device->event_sync(b->done, why);
	if (rc)
		return mfs_fail(err, rc, "%s: %s", t->backend->name, why);
	finish(t, b);
	return 0;
}

void mfs_trainer_batches_done(struct mfs_trainer *t)
{
	/* In their order: the next place is that of the oldest. */
	for (unsigned i = 0; i < MFS_BATCHES_IN_FLIGHT; i++) {
		struct mfs_batch_in_flight *b =
			&t->in_flight[(t->next_in_flight + i) % MFS_BATCHES_IN_FLIGHT];

		if (b->batch)
			finish(t, b);
	}
}

/* The loss of a microbatch is the mean over its counted tokens (schedules.py:
 * forward_step_calc_loss), and a step's is the mean of its microbatches; with per-token loss it is
 * one sum. */
static double grad_scale(const struct mfs_microbatch *m, uint64_t counted)
{
	return m->per_token ? m->scale : m->scale / (double)(counted ? counted : 1);
}

int mfs_trainer_microbatch(struct mfs_trainer *t, const struct mfs_microbatch *m,
			   uint64_t *ret_counted, struct mfs_error *err)
{
	struct mfs_batch_in_flight *b = &t->in_flight[t->next_in_flight];
	struct mfs_loader *data = t->data[m->split];
	const struct mfs_group_place *data_parallel = &t->parallel.group[MFS_GROUP_DATA];
	const struct mfs_batch *batch;
	struct mfs_net_pass pass;
	int rc;

	/* The one before the last is done: the device has one to work on while this one is
	 * submitted. */
	rc = wait_for(t, b, err);
	if (rc)
		return rc;
	rc = mfs_loader_next(data, &batch, err);
	if (rc)
		return rc;
	pass = (struct mfs_net_pass){
		.batch = batch,
		.grad_scale = (float)grad_scale(m, batch->counted),
		.backward = m->backward,
		.first = m->number == 0,
		.iteration = t->progress.iteration,
		/* As one process would number them. */
		.microbatch = m->number * data_parallel->size + data_parallel->rank,
	};
	*ret_counted = batch->counted;
	rc = mfs_net_run(t->net, t->ctx, &pass, err);
	if (m->backward)
		mfs_net_copy_loss(t->net, t->ctx, b->losses);
	t->backend->device->event_record(t->ctx, b->done);
	b->training = m->backward ? m->number + 1 : 0;
	b->of = data;
	b->batch = batch;
	t->next_in_flight = (t->next_in_flight + 1) % MFS_BATCHES_IN_FLIGHT;
	return rc;
}
