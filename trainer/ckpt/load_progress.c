/*
 * Where a run stood: the common state of its checkpoint.
 *
 * Sources: megatron/training/checkpointing.py: load_checkpoint; core/optimizer_param_scheduler.py:
 * load_state_dict; core/optimizer/grad_scaler.py: DynamicGradScaler.
 */
#include <errno.h>
#include <stdio.h>

#include "formats/base/array.h"
#include "formats/optim/rules/settings.h"
#include "trainer/ckpt/load_i.h"
#include "trainer/optimizers/optimizer.h"

struct reader {
	const struct mft_load *load;
	const struct mft_train_config *config;
	const struct mfs_pickle *doc;
	mfs_value scheduler;
	struct mfs_error *err;
};

static int bad(const struct reader *r, const char *name, const char *what)
{
	return mfs_fail(r->err, -EINVAL, "%s: '%s' of its common state is %s",
			mfs_ckpt_dir(r->load->ckpt), name, what);
}

/* A natural number; ret stays if there is none. */
static int read_count(const struct reader *r, mfs_value v, const char *name, uint64_t *ret)
{
	int64_t number;
	double real;

	if (mfs_value_is_none(r->doc, v))
		return 0;
	if (!mfs_value_int(r->doc, v, &number)) {
		/* A number that came from a fraction of samples may be a float. */
		if (!mfs_value_float(r->doc, v, &real) || !(real >= 0 && real < 9e18))
			return bad(r, name, "no number");
		number = (int64_t)real;
	}
	if (number < 0)
		return bad(r, name, "negative");
	*ret = (uint64_t)number;
	return 0;
}

/* ---- scheduler ---- */

/* The first of several names, as releases have had them, that the state has. NULL: none of them. */
static const char *scheduler_name(const struct reader *r, const char *const names[3])
{
	for (int i = 0; i < 3 && names[i]; i++)
		if (mfs_value_has(r->doc, r->scheduler, names[i]))
			return names[i];
	return NULL;
}

static mfs_value scheduler_value(const struct reader *r, const char *const names[3])
{
	const char *name = scheduler_name(r, names);

	return name ? mfs_value_get(r->doc, r->scheduler, name) : 0;
}

static int differs(const struct reader *r, const char *name, const char *ours, const char *theirs)
{
	return mfs_fail(r->err, -EINVAL,
			"%s: %s of its scheduler is %s, the arguments say %s: "
			"--override-opt-param-scheduler takes the arguments', "
			"--use-checkpoint-opt-param-scheduler the checkpoint's",
			mfs_ckpt_dir(r->load->ckpt), name, theirs, ours);
}

/* A name without a value: NeMo's schedules are not Megatron's (ckpt/read/nemo.c). */
static int no_value(const struct reader *r, const char *const names[3])
{
	const char *name = scheduler_name(r, names);

	if (!name)
		return 0;
	return mfs_fail(r->err, -ENODATA,
			"%s: its scheduler says no %s: --override-opt-param-scheduler takes the "
			"arguments'",
			mfs_ckpt_dir(r->load->ckpt), name);
}

static int check_real(const struct reader *r, const char *const names[3], double *ret)
{
	mfs_value v = scheduler_value(r, names);
	char ours[32], theirs[32];
	double value;

	if (r->config->override_opt_param_scheduler)
		return 0;
	if (!v)
		return no_value(r, names);
	if (!mfs_value_float(r->doc, v, &value))
		return bad(r, names[0], "no number");
	if (value != *ret && !r->config->use_checkpoint_opt_param_scheduler) {
		snprintf(ours, sizeof(ours), "%.17g", *ret);
		snprintf(theirs, sizeof(theirs), "%.17g", value);
		return differs(r, names[0], ours, theirs);
	}
	*ret = value;
	return 0;
}

/* Styles are texts in the state and numbers here. */
static int check_style(const struct reader *r, const char *const names[3],
		       const char *const *styles, unsigned *ret)
{
	mfs_value v = scheduler_value(r, names);
	unsigned value = 0;

	if (!v || r->config->override_opt_param_scheduler)
		return 0;
	while (styles[value] && !mfs_value_is_str(r->doc, v, styles[value]))
		value++;
	if (!styles[value])
		return bad(r, names[0], "not a style that is known");
	if (value != *ret && !r->config->use_checkpoint_opt_param_scheduler)
		return differs(r, names[0], styles[*ret], styles[value]);
	*ret = value;
	return 0;
}

static int read_rates(const struct reader *r, struct mft_schedule *s)
{
	static const char *const max_lr[3] = {"start_lr", "max_lr"}, *const min_lr[3] = {"min_lr"};
	static const char *const start_wd[3] = {"start_wd"}, *const end_wd[3] = {"end_wd"};
	int rc = check_real(r, max_lr, &s->max_lr);

	if (!rc)
		rc = check_real(r, min_lr, &s->min_lr);
	if (!rc)
		rc = check_real(r, start_wd, &s->start_wd);
	return rc ? rc : check_real(r, end_wd, &s->end_wd);
}

static int read_steps(const struct reader *r, struct mft_schedule *s)
{
	static const char *const warmup[3] = {"warmup_iter", "warmup_steps", "lr_warmup_steps"};
	static const char *const decay[3] = {"end_iter", "decay_steps", "lr_decay_steps"};
	static const char *const wd[3] = {"wd_incr_steps"};
	int rc = check_real(r, warmup, &s->warmup_steps);

	if (!rc)
		rc = check_real(r, decay, &s->decay_steps);
	return rc ? rc : check_real(r, wd, &s->wd_incr_steps);
}

static int read_styles(const struct reader *r, struct mft_schedule *s)
{
	static const char *const lr[3] = {"decay_style", "lr_decay_style"};
	static const char *const wd[3] = {"wd_incr_style"};
	unsigned style = s->style, wd_style = s->wd_style;
	int rc = check_style(r, lr, mft_lr_decay_names, &style);

	if (!rc)
		rc = check_style(r, wd, mft_wd_incr_names, &wd_style);
	s->style = (enum mft_lr_decay_style)style;
	s->wd_style = (enum mft_wd_incr)wd_style;
	return rc;
}

static int read_scheduler(const struct reader *r, struct mft_schedule *s)
{
	static const char *const steps[3] = {"num_iters", "num_steps"};
	int rc;

	if (mfs_value_is_none(r->doc, r->scheduler))
		return 0;
	rc = read_rates(r, s);
	if (!rc)
		rc = read_steps(r, s);
	if (!rc)
		rc = read_styles(r, s);
	return rc ? rc : read_count(r, scheduler_value(r, steps), "num_steps", &s->num_steps);
}

/* ---- optimizer ---- */

static int read_scaler(const struct reader *r, const struct mfs_optim_info *info,
		       struct mft_loss_scaler *s)
{
	mfs_value scale;
	int rc;

	if (!s->dynamic || !info->scaler)
		return 0;
	scale = mfs_value_get(info->scaler_doc, info->scaler, "scale");
	if (mfs_value_is_none(info->scaler_doc, scale))
		return 0; /* of a constant scale */
	rc = mfs_torch_number(info->scaler_file, scale, &s->scale, r->err);
	if (rc) {
		mfs_fail_in(r->err, "%s: the loss scale", mfs_ckpt_dir(r->load->ckpt));
		return rc;
	}
	mfs_value_int(info->scaler_doc,
		      mfs_value_get(info->scaler_doc, info->scaler, "growth_tracker"),
		      &s->growth_tracker);
	mfs_value_int(info->scaler_doc,
		      mfs_value_get(info->scaler_doc, info->scaler, "hysteresis_tracker"),
		      &s->hysteresis_tracker);
	return 0;
}

static int read_optimizer(const struct reader *r, struct mft_progress *p)
{
	const struct mfs_optim_info *info = mfs_optim_info(r->load->ckpt);

	if (!info->has_step && mft_optimizer_counts(mft_optimizer_kind(r->config->optimizer)))
		return mfs_fail(r->err, -ENODATA, "%s: its optimizer has no step",
				mfs_ckpt_dir(r->load->ckpt));
	if (!(info->step >= 0 && info->step < 9e18))
		return bad(r, "step", "no count");
	p->optimizer_step = (uint64_t)info->step;
	return read_scaler(r, info, &p->scaler);
}

/* ---- the whole ---- */

static int read_counts(const struct reader *r, mfs_value root, struct mft_progress *p)
{
	static const char iteration[] = "iteration";
	mfs_value args = mfs_value_get(r->doc, root, "args");
	const struct {
		const char *name;
		uint64_t *to;
	} counts[] = {
		{"consumed_train_samples", &p->consumed_train_samples},
		{"consumed_valid_samples", &p->consumed_valid_samples},
		{"skipped_train_samples", &p->skipped_train_samples},
		{"sft_samples", &p->sft_samples},
		{"sft_order", &p->sft_order},
	};
	int rc;

	if (!mfs_value_has(r->doc, root, iteration))
		return bad(r, iteration, "missing");
	rc = read_count(r, mfs_value_get(r->doc, root, iteration), iteration, &p->iteration);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(counts) && !rc; i++) {
		*counts[i].to = 0;
		rc = read_count(r, mfs_value_attr(r->doc, args, counts[i].name), counts[i].name,
				counts[i].to);
	}
	return rc;
}

int mft_load_progress(const struct mft_load *l, const struct mft_train_config *config,
		      struct mft_progress *ret, struct mfs_error *err)
{
	const struct mfs_ckpt_common *state = mfs_ckpt_common(l->ckpt);
	struct reader r = {.load = l, .config = config, .err = err};
	struct mft_progress p = *ret;
	int rc;

	if (!state)
		return mfs_fail(err, -ENODATA, "%s: it has no common state; --finetune begins anew",
				mfs_ckpt_dir(l->ckpt));
	r.doc = state->archive.doc;
	r.scheduler = mfs_value_get(r.doc, state->root, "opt_param_scheduler");
	rc = read_counts(&r, state->root, &p);
	mfs_value_float(r.doc,
			mfs_value_get(r.doc, state->root, "num_floating_point_operations_so_far"),
			&p.floating_point_operations);
	/* The scheduler is the optimizer's: without the one there is none of the other. */
	if (!rc && l->optimizer)
		rc = read_scheduler(&r, &p.schedule);
	if (!rc && l->optimizer)
		rc = read_optimizer(&r, &p);
	if (!rc)
		*ret = p;
	return rc;
}
