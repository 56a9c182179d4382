/*
 * Learning rate and weight decay by consumed samples, and the loss scale of fp16.
 *
 * Sources: megatron/core/optimizer_param_scheduler.py; megatron/training/training.py:
 * get_optimizer_param_scheduler; core/optimizer/grad_scaler.py. The scheduler counts samples. It
 * begins with step(0): with warm-up the first update has lr_warmup_init. A skipped step does not
 * advance it.
 */
#ifndef MFT_TRAINER_OPTIM_SCHEDULE_H
#define MFT_TRAINER_OPTIM_SCHEDULE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "trainer/config/batch_schedule.h"
#include "trainer/config/config.h"

/* In samples, as OptimizerParamScheduler has them and checkpoints keep them. */
struct mft_schedule {
	double max_lr, min_lr, init_lr, start_wd, end_wd;
	double decoupled_lr, decoupled_min_lr; /* < 0: none */
	double mup_mult; /* of the rates of parameters that --use-mup singles out */
	double warmup_steps, decay_steps, wsd_decay_steps, wd_incr_steps; /* samples */
	enum mft_lr_decay_style style;
	enum mft_wsd_decay_style wsd_style;
	enum mft_wd_incr wd_style;
	uint64_t num_steps; /* consumed samples, skipped steps not counted */
};

/* Reads the schedules of the rates and of the weight decay from the arguments. -EINVAL: what
 * Megatron's assertions refuse; the message names the argument. */
int mft_schedule_init(const struct mft_train_config *config, struct mft_schedule *ret,
		      struct mfs_error *err);
double mft_schedule_lr(const struct mft_schedule *s);
double mft_schedule_decoupled_lr(const struct mft_schedule *s);
/* Of parameters that --use-mup gives a rate of their own (params.h). */
double mft_schedule_mup_lr(const struct mft_schedule *s);
double mft_schedule_weight_decay(const struct mft_schedule *s);
void mft_schedule_step(struct mft_schedule *s, uint64_t samples);

/* DynamicGradScaler, or a constant one. */
struct mft_loss_scaler {
	bool dynamic;
	double scale, min_scale, growth_factor, backoff_factor;
	int64_t growth_interval, hysteresis;
	int64_t growth_tracker, hysteresis_tracker;
};
void mft_loss_scaler_init(const struct mft_train_config *config, struct mft_loss_scaler *ret);
void mft_loss_scaler_update(struct mft_loss_scaler *s, bool found_inf);

#endif
