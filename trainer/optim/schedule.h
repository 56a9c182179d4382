/*
 * Learning rate and weight decay by consumed samples, and the loss scale of fp16.
 *
 * Sources: megatron/core/optimizer_param_scheduler.py; megatron/training/training.py:
 * get_optimizer_param_scheduler; core/optimizer/grad_scaler.py. The scheduler counts samples. It
 * begins with step(0): with warm-up the first update has lr_warmup_init. A skipped step does not
 * advance it.
 */
#ifndef MFS_TRAINER_OPTIM_SCHEDULE_H
#define MFS_TRAINER_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/config/batches.h"
#include "trainer/config/config.h"

/* In samples, as OptimizerParamScheduler has them and checkpoints keep them. */
struct mfs_schedule {
	double max_lr, min_lr, init_lr, start_wd, end_wd;
	double decoupled_lr, decoupled_min_lr; /* < 0: none */
	double mup_mult; /* of the rates of parameters that --use-mup singles out */
	double warmup_steps, decay_steps, wsd_decay_steps, wd_incr_steps; /* samples */
	enum mfs_lr_decay style;
	enum mfs_wsd_decay wsd_style;
	enum mfs_wd_incr wd_style;
	uint64_t num_steps; /* consumed samples, skipped steps not counted */
};

/* -EINVAL: what Megatron's assertions refuse, with its argument's name. */
int mfs_schedule_init(const struct mfs_train_config *config, struct mfs_schedule *ret,
		      struct mfs_error *err);
double mfs_schedule_lr(const struct mfs_schedule *s);
double mfs_schedule_decoupled_lr(const struct mfs_schedule *s);
/* Of parameters that --use-mup gives a rate of their own (params.h). */
double mfs_schedule_mup_lr(const struct mfs_schedule *s);
double mfs_schedule_weight_decay(const struct mfs_schedule *s);
void mfs_schedule_step(struct mfs_schedule *s, uint64_t samples);

/* DynamicGradScaler, or a constant one. */
struct mfs_loss_scaler {
	bool dynamic;
	double scale, min_scale, growth_factor, backoff_factor;
	int64_t growth_interval, hysteresis;
	int64_t growth_tracker, hysteresis_tracker;
};
void mfs_loss_scaler_init(const struct mfs_train_config *config, struct mfs_loss_scaler *ret);
void mfs_loss_scaler_update(struct mfs_loss_scaler *s, bool found_inf);

#endif
