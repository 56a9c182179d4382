#include <math.h>

#include "trainer/loop/trainer_i.h"

/* What a step's gradients are multiplied by in excess of the loss's. */
static double divisor(const struct mfs_trainer *t, uint64_t counted)
{
	const double tokens =
		t->config->calculate_per_token_loss ? (double)(counted ? counted : 1) : 1;

	return t->progress.scaler.scale * tokens;
}

static void before_update(void *arg, struct mfk_ctx *ctx, uint64_t first, uint64_t count)
{
	struct mfs_trainer *t = arg;

	if (t->saver)
		mfs_saver_fence(t->saver, ctx, first, count);
}

static int update(struct mfs_trainer *t, uint64_t counted, struct mfs_update_result *ret,
		  struct mfs_error *err)
{
	const struct mfs_update_step step = {
		.number = t->progress.optimizer_step + 1,
		.lr = mfs_schedule_lr(&t->progress.schedule),
		.decoupled_lr = mfs_schedule_decoupled_lr(&t->progress.schedule),
		.weight_decay = mfs_schedule_weight_decay(&t->progress.schedule),
		.grad_divisor = divisor(t, counted),
		.fence = before_update,
		.fence_arg = t,
	};

	return mfs_update_run(t->update, t->ctx, &step, ret, err);
}

/* A step that changed nothing does not count for the schedule and for Adam, but its samples are
 * consumed (training.py: train_step). */
static void advance(struct mfs_trainer *t, const struct mfs_step *step)
{
	struct mfs_progress *p = &t->progress;

	if (t->config->params_dtype == MFS_F16)
		mfs_loss_scaler_update(&p->scaler, step->update.not_finite);
	if (!step->update.skipped) {
		mfs_schedule_step(&p->schedule, step->batch);
		p->optimizer_step++;
	}
	p->iteration++;
	p->consumed_train_samples += step->batch;
	p->floating_point_operations += mfs_step_flops(t, step->batch);
}

/* What is asked of parameters and gradients in a step that is reported. Megatron counts no zeros
 * where nothing was updated. */
static int measure(struct mfs_trainer *t, struct mfs_step *step, struct mfs_error *err)
{
	const struct mfs_train_config *c = t->config;
	int rc = 0;

	step->params_norm = step->zeros = MFS_NOT_SAID;
	if (!mfs_log_reports(t))
		return 0;
	if (c->log_params_norm)
		rc = mfs_update_params_norm(t->update, t->ctx, &step->params_norm, err);
	if (!rc && c->log_num_zeros_in_grad && !step->update.skipped)
		rc = mfs_update_zeros(t->update, t->ctx, &step->zeros, err);
	return rc;
}

int mfs_trainer_step(struct mfs_trainer *t, struct mfs_step *ret, struct mfs_error *err)
{
	struct mfs_step step = {
		.batch = mfs_schedule_batch(t->config, t->progress.consumed_train_samples),
	};
	uint64_t counted = 0;
	int rc;

	step.microbatches = step.batch / (uint64_t)t->config->micro_batch_size;
	mfs_net_clear_grads(t->net, t->ctx);
	mfs_net_clear_losses(t->net, t->ctx);
	for (uint64_t i = 0; i < step.microbatches; i++) {
		const bool per_token = t->config->calculate_per_token_loss;
		const struct mfs_microbatch m = {
			.split = MFS_TRAIN,
			.backward = true,
			.per_token = per_token,
			.scale = t->progress.scaler.scale /
				 (per_token ? 1 : (double)step.microbatches),
			.number = i,
		};
		uint64_t tokens;

		rc = mfs_trainer_microbatch(t, &m, &tokens, err);
		if (rc)
			return rc;
		counted += tokens;
	}
	mfs_net_update_expert_bias(t->net, t->ctx);
	rc = update(t, counted, &step.update, err);
	if (rc)
		return rc;
	mfs_trainer_batches_done(t);
	rc = mfs_net_losses(t->net, t->ctx, &step.losses, err);
	if (rc)
		return rc;
	step.loss = step.losses.lm_loss_sum / (double)(counted ? counted : 1);
	advance(t, &step);
	rc = measure(t, &step, err);
	*ret = step;
	return rc;
}
