#include "trainer/optim/schedule.h"

#include <math.h>

#include "trainer/config/precision.h"
#include "trainer/optimizers/optimizer.h"

/* ---- in samples ---- */

/* training.py: get_optimizer_param_scheduler. A number that was not given is None there. */
struct lengths {
	int64_t whole, decay, wsd, warmup; /* MFS_ABSENT: not given */
	double unit;			   /* samples of each */
};

static struct lengths lengths_of(const struct mft_train_config *c)
{
	if (c->train_samples != MFS_ABSENT && c->train_samples > 0)
		return (struct lengths){c->train_samples, c->lr_decay_samples,
					c->lr_wsd_decay_samples, c->lr_warmup_samples, 1};
	return (struct lengths){c->train_iters, c->lr_decay_iters, c->lr_wsd_decay_iters,
				c->lr_warmup_iters, (double)c->global_batch_size};
}

static int check(const struct mft_schedule *s, struct mfs_error *err)
{
	if (s->decay_steps <= 0)
		return mfs_fail(err, -EINVAL,
				"the learning rate decays over %g samples: give "
				"--train-iters or --train-samples",
				s->decay_steps);
	if (s->warmup_steps >= s->decay_steps)
		return mfs_fail(err, -EINVAL,
				"the learning rate warms up for %g samples, which is not less than "
				"the %g that it decays over",
				s->warmup_steps, s->decay_steps);
	if (s->style == MFT_LR_WSD && s->wsd_decay_steps <= 0)
		return mfs_fail(err, -EINVAL,
				"--lr-decay-style WSD needs --lr-wsd-decay-iters (or -samples)");
	if (s->min_lr < 0 || s->max_lr < s->min_lr || s->init_lr > s->max_lr)
		return mfs_fail(err, -EINVAL,
				"--lr %g, --min-lr %g, --lr-warmup-init %g: the first must be the "
				"largest, and none negative",
				s->max_lr, s->min_lr, s->init_lr);
	if (s->start_wd < 0 || s->end_wd < s->start_wd)
		return mfs_fail(
			err, -EINVAL,
			"--start-weight-decay %g, --end-weight-decay %g: expected 0 <= start "
			"<= end",
			s->start_wd, s->end_wd);
	return 0;
}

int mft_schedule_init(const struct mft_train_config *c, struct mft_schedule *ret,
		      struct mfs_error *err)
{
	const struct lengths l = lengths_of(c);
	const double whole = (double)l.whole * l.unit;
	struct mft_schedule s = {
		.max_lr = c->lr,
		.min_lr = c->min_lr,
		.init_lr = c->lr_warmup_init,
		.start_wd = c->start_weight_decay,
		.end_wd = c->end_weight_decay,
		.decoupled_lr = c->decoupled_lr,
		.decoupled_min_lr = c->decoupled_min_lr,
		.mup_mult = mft_optimizer_mup(c),
		.decay_steps = l.decay == MFS_ABSENT ? whole : (double)l.decay * l.unit,
		.wsd_decay_steps = l.wsd == MFS_ABSENT ? 0 : (double)l.wsd * l.unit,
		.wd_incr_steps = whole,
		.style = c->lr_decay_style,
		.wsd_style = c->lr_wsd_decay_style,
		.wd_style = c->weight_decay_incr_style,
	};
	int rc;

	s.warmup_steps = c->lr_warmup_fraction >= 0 ? c->lr_warmup_fraction * s.decay_steps
						    : (double)l.warmup * l.unit;
	rc = check(&s, err);
	if (!rc)
		*ret = s;
	return rc;
}

/* ---- learning rate ---- */

static double wsd(const struct mft_schedule *s, double n)
{
	const double start = s->decay_steps - s->wsd_decay_steps;
	const double r = (n - start) / s->wsd_decay_steps;

	if (n <= start)
		return 1;
	switch (s->wsd_style) {
	case MFT_WSD_LINEAR:
		return 1 - r;
	case MFT_WSD_COSINE:
		return 0.5 * (cos(M_PI * r) + 1);
	case MFT_WSD_EXPONENTIAL:
		return 2 * pow(0.5, r) - 1;
	case MFT_WSD_MINUS_SQRT:
		return 1 - sqrt(r);
	}
	return 1;
}

/* OptimizerParamScheduler.get_lr */
static double lr(const struct mft_schedule *s, double max, double min)
{
	const double n = (double)s->num_steps, warmup = s->warmup_steps;
	const double r = (n - warmup) / (s->decay_steps - warmup);
	double share = 1;

	if (warmup > 0 && n <= warmup)
		return s->init_lr + (max - s->init_lr) * n / warmup;
	if (s->style == MFT_LR_CONSTANT)
		return max;
	if (n > s->decay_steps)
		return min;
	switch (s->style) {
	case MFT_LR_INVERSE_SQUARE_ROOT:
		return fmax(min, max * sqrt(fmax(warmup, 1)) / sqrt(fmax(n, 1)));
	case MFT_LR_LINEAR:
		share = 1 - r;
		break;
	case MFT_LR_COSINE:
		share = 0.5 * (cos(M_PI * r) + 1);
		break;
	case MFT_LR_WSD:
		share = wsd(s, n);
		break;
	case MFT_LR_CONSTANT:
		break;
	}
	return min + share * (max - min);
}

double mft_schedule_lr(const struct mft_schedule *s)
{
	return lr(s, s->max_lr, s->min_lr);
}

double mft_schedule_decoupled_lr(const struct mft_schedule *s)
{
	if (s->decoupled_lr < 0)
		return mft_schedule_lr(s);
	return lr(s, s->decoupled_lr, s->decoupled_min_lr < 0 ? s->min_lr : s->decoupled_min_lr);
}

double mft_schedule_mup_lr(const struct mft_schedule *s)
{
	return lr(s, s->max_lr * s->mup_mult, s->min_lr * s->mup_mult);
}

/* OptimizerParamScheduler.get_wd */
double mft_schedule_weight_decay(const struct mft_schedule *s)
{
	const double r = (double)s->num_steps / s->wd_incr_steps;
	double share = 1;

	if ((double)s->num_steps > s->wd_incr_steps || s->wd_style == MFT_WD_CONSTANT)
		return s->end_wd;
	share = s->wd_style == MFT_WD_LINEAR ? r : 0.5 * (cos(M_PI * (1 - r)) + 1);
	return s->start_wd + share * (s->end_wd - s->start_wd);
}

void mft_schedule_step(struct mft_schedule *s, uint64_t samples)
{
	s->num_steps += samples;
}

/* ---- loss scale ---- */

void mft_loss_scaler_init(const struct mft_train_config *c, struct mft_loss_scaler *ret)
{
	const bool dynamic = mft_precision_needs_scale(c->params_dtype) && c->loss_scale == 0;

	*ret = (struct mft_loss_scaler){
		.dynamic = dynamic,
		.scale = dynamic	 ? c->initial_loss_scale
			 : c->loss_scale ? c->loss_scale
					 : 1,
		.min_scale = c->min_loss_scale,
		.growth_factor = 2,
		.backoff_factor = 0.5,
		.growth_interval = c->loss_scale_window,
		.hysteresis = c->hysteresis,
		.hysteresis_tracker = c->hysteresis,
	};
}

void mft_loss_scaler_update(struct mft_loss_scaler *s, bool found_inf)
{
	if (!s->dynamic)
		return;
	if (found_inf) {
		s->growth_tracker = 0;
		s->hysteresis_tracker--;
		if (s->hysteresis_tracker <= 0)
			s->scale = fmax(s->scale * s->backoff_factor, s->min_scale);
		return;
	}
	if (++s->growth_tracker < s->growth_interval)
		return;
	s->growth_tracker = 0;
	s->hysteresis_tracker = s->hysteresis;
	s->scale *= s->growth_factor;
}
