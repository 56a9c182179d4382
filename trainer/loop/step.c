#include <math.h>
#include <string.h>

#include "trainer/base/dtype.h"
#include "trainer/loop/rl.h"
#include "trainer/loop/trainer_i.h"
#include "trainer/base/nvtx_ranges.h"
#include "trainer/config/precision.h"

/* What a step's gradients are multiplied by in excess of the loss's. */
static double divisor(const struct mft_trainer *t, double counted)
{
	const bool sums = t->config->calculate_per_token_loss || t->rl;

	return t->progress.scaler.scale * (sums ? counted : 1);
}

static void before_update(void *arg, struct mfk_ctx *ctx, uint64_t first, uint64_t count)
{
	struct mft_trainer *t = arg;

	if (t->saver)
		mft_saver_fence(t->saver, ctx, first, count);
}

static struct mft_update_step update_of(struct mft_trainer *t, double counted)
{
	return (struct mft_update_step){
		.number = t->progress.optimizer_step + 1,
		.lr = mft_schedule_lr(&t->progress.schedule),
		.decoupled_lr = mft_schedule_decoupled_lr(&t->progress.schedule),
		.mup_lr = mft_schedule_mup_lr(&t->progress.schedule),
		.weight_decay = mft_schedule_weight_decay(&t->progress.schedule),
		.grad_divisor = divisor(t, counted),
		.fence = before_update,
		.fence_arg = t,
	};
}

/* A step that changed nothing does not count for the schedule and for Adam, but its samples are
 * consumed (training.py: train_step). */
static void advance(struct mft_trainer *t, const struct mft_step *step)
{
	struct mft_progress *p = &t->progress;

	if (mft_precision_needs_scale(t->config->params_dtype))
		mft_loss_scaler_update(&p->scaler, step->update.not_finite);
	if (!step->update.skipped) {
		mft_schedule_step(&p->schedule, step->batch);
		p->optimizer_step++;
	}
	p->iteration++;
	p->skipped_train_samples +=
		mft_schedule_global_batch(t->config, p->consumed_train_samples) - step->batch;
	p->consumed_train_samples += step->batch;
	p->floating_point_operations += mft_step_flops(t, step->batch);
}

/* What is asked of parameters and gradients in a step that is reported. Megatron counts no zeros
 * where nothing was updated. */
static int measure(struct mft_trainer *t, struct mft_step *step, struct mfs_error *err)
{
	const struct mft_train_config *c = t->config;
	int rc = 0;

	step->params_norm = step->zeros = MFS_ABSENT;
	if (!mft_log_reports(t))
		return 0;
	if (c->log_params_norm)
		rc = mft_update_params_norm(t->update, t->ctx, &step->params_norm, err);
	if (!rc && c->log_num_zeros_in_grad && !step->update.skipped)
		rc = mft_update_zeros(t->update, t->ctx, &step->zeros, err);
	return rc;
}

/* What a step of a dataset's samples is trained on. */
static void take_data(struct mft_trainer *t, uint64_t batch, struct mft_microbatches *ret)
{
	const bool per_token = t->config->calculate_per_token_loss;
	const uint64_t count = mft_trainer_microbatches(t, batch);
	/* Divided before they are added up, so that sums in fp16 are no larger than one process's
	 * (distributed_data_parallel.py: gradient_scaling_factor). */
	const double parts = (double)count * t->parallel.group[MFT_GROUP_DATA].size;

	*ret = (struct mft_microbatches){
		.from = mft_loader_source(t->data[MFS_TRAIN].list[0]),
		.count = count,
		.backward = true,
		.per_token = per_token,
		.scale = t->progress.scaler.scale / (per_token ? 1 : parts),
	};
}

/* Forward and backward of this process's microbatches. *ret_counted: tokens whose loss counts, of
 * all processes; those that share a sequence count all of it. A policy's tokens have weights, whose
 * sum is what a step's loss is. */
static int run_microbatches(struct mft_trainer *t, const struct mft_microbatches *m,
			    double *ret_counted, struct mfs_error *err)
{
	double counted = 0;
	int rc;

	mft_net_clear_grads(t->net, t->ctx);
	mft_net_clear_losses(t->net, t->ctx);
	mft_sync_begin(t->sync);
	mft_check_begin(&t->check);
	t->loss_before = 0;
	mft_straggler_begin(t);
	rc = mft_trainer_run(t, m, &counted, err);
	if (!rc)
		rc = mft_straggler_end(t, err);
	if (rc)
		return rc;
	rc = mft_parallel_sum(&t->parallel, MFT_GROUP_DATA, &counted, 1, err);
	*ret_counted = counted > 0 && !t->rl ? counted : 1;
	return rc;
}

/* Gradients of all processes, and their norm. */
static int sum_gradients(struct mft_trainer *t, const struct mft_update_step *update,
			 struct mft_update_result *ret, struct mfs_error *err)
{
	int rc;

	MFT_RANGE_BEGIN("gradient sums");
	mft_sync_reduce(t->sync, t->ctx);
	mft_net_sum_gradients(t->net, t->ctx);
	MFT_RANGE_END();
	MFT_RANGE_BEGIN("gradient norm");
	rc = mft_update_norm(t->update, t->ctx, update, ret, err);
	MFT_RANGE_END();
	return rc;
}

/* A save in flight still reads what the others' weights overwrite. */
static void gather(struct mft_trainer *t, const struct mft_update_result *result)
{
	const struct mft_params *p = t->params;

	if (result->skipped)
		return;
	if (p->owned_elements < mft_params_weight_elements(p))
		before_update(t, t->ctx, 0, p->elements);
	mft_sync_gather(t->sync, t->ctx);
}

static int optimize(struct mft_trainer *t, const struct mft_update_step *update,
		    struct mft_step *step, struct mfs_error *err)
{
	const struct mft_update_result *result = &step->update;
	int rc;

	MFT_RANGE_BEGIN("optimizer");
	rc = mft_net_update_expert_bias(t->net, t->ctx, err);
	if (!rc)
		rc = mft_update_apply(t->update, t->ctx, update, result, err);
	if (!rc)
		gather(t, result);
	if (!rc && (t->config->qk_clip || t->config->log_max_attention_logit))
		rc = mft_net_clip_qk(t->net, t->ctx, &step->max_attention_logit, err);
	MFT_RANGE_END();
	return rc;
}

/* What one process rejects, all do, and the first that does says why. A process looks at its own
 * losses; gradients are the same in all. */
static int check(struct mft_trainer *t, double norm, struct mfs_error *err)
{
	uint32_t first;
	const int rc = mft_parallel_first(&t->parallel, MFT_GROUP_WORLD,
					  t->check.verdict == MFT_REJECTED, &first, err);

	if (!rc && first != MFT_RANK_NONE)
		mft_check_reject(&t->check, first);
	else if (!rc)
		mft_check_grads(&t->check, t->progress.iteration + 1, norm);
	return rc;
}

int mft_trainer_step(struct mft_trainer *t, struct mft_step *ret, struct mfs_error *err)
{
	struct mft_step step = {
		.batch = mft_schedule_batch(t->config, t->progress.consumed_train_samples),
	};
	struct mft_update_step update;
	struct mft_microbatches m;
	double counted;
	int rc = 0;

	memset(t->traffic, 0, sizeof(t->traffic));
	mft_exposure_begin(t->exposure);
	mft_watch_iteration(t->parallel.watch, t->progress.iteration + 1);
	if (t->rl)
		rc = mft_rl_begin_step(t, &m, err);
	else
		take_data(t, step.batch, &m);
	if (rc || mft_rl_is_dropped(t))
		return rc;
	step.microbatches = m.count;
	rc = run_microbatches(t, &m, &counted, err);
	if (rc)
		return rc;
	update = update_of(t, counted);
	rc = sum_gradients(t, &update, &step.update, err);
	if (!rc)
		rc = mft_trainer_losses(t, &step.losses, err);
	if (rc)
		return rc;
	mft_trainer_batches_done(t);
	for (int i = 0; i < MFT_LOSS_TERMS; i++)
		step.losses.loss[i] /= counted;
	step.loss = step.losses.loss[0];
	rc = check(t, step.update.grad_norm * update.grad_divisor, err);
	if (rc)
		return rc;
	if (t->check.verdict != MFT_REJECTED) {
		rc = optimize(t, &update, &step, err);
		if (rc)
			return rc;
		advance(t, &step);
		memcpy(t->step_traffic, t->traffic, sizeof(t->traffic));
		mft_exposure_keep(t->exposure);
		rc = measure(t, &step, err);
	}
	*ret = step;
	return rc;
}

/* training.py: train(), dummy_train_step(). */
int mft_trainer_skip(struct mft_trainer *t, struct mfs_error *err)
{
	struct mft_progress *p = &t->progress;
	const uint64_t batch = mft_schedule_batch(t->config, p->consumed_train_samples);
	const uint64_t microbatches = mft_trainer_microbatches(t, batch);

	for (uint64_t i = 0; i < microbatches; i++) {
		const struct mft_batch *b;
		const int rc = mft_loader_next(t->data[MFS_TRAIN].list[0], &b, err);

		if (rc)
			return rc;
		mft_loader_give_back(t->data[MFS_TRAIN].list[0], b);
	}
	p->iteration++;
	p->consumed_train_samples += batch;
	p->skipped_train_samples += batch;
	return 0;
}
