/*
 * common.pt of a run that saves itself: the state that is no tensor of model or optimizer.
 *
 * Sources: megatron/training/checkpointing.py: generate_state_dict, save_checkpoint;
 * core/optimizer_param_scheduler.py: state_dict; core/optimizer/__init__.py: _get_param_groups;
 * optimizer.py: Float16OptimizerWithFloat16Params.sharded_state_dict; distrib_optimizer.py;
 * grad_scaler.py.
 */
#include <errno.h>
#include <math.h>

#include "formats/args/namespace.h"
#include "formats/megatron/write/copy_values.h"
#include "formats/megatron/write/dist_archive.h"
#include "trainer/ckpt/save_i.h"
#include "trainer/config/precision.h"
#include "trainer/config/run_namespace.h"

struct common {
	const struct mft_train_config *config;
	const struct mft_params *params;
	const struct mft_progress *progress;
	struct mfs_dist_archive archive;
	struct mfs_error *err;
};

static struct mfs_pickle_writer *out(struct common *c)
{
	return &c->archive.w;
}

/* ---- pairs ---- */

static void real(struct common *c, const char *name, double value)
{
	mfs_pickle_name(out(c), name);
	mfs_pickle_float(out(c), value);
}

static void count(struct common *c, const char *name, uint64_t value)
{
	mfs_pickle_name(out(c), name);
	mfs_pickle_uint(out(c), value);
}

/* Samples: an int in Megatron, too, unless a fraction made them. */
static void steps(struct common *c, const char *name, double value)
{
	mfs_pickle_name(out(c), name);
	if (value >= 0 && value < 0x1p53 && value == trunc(value))
		mfs_pickle_int(out(c), (int64_t)value);
	else
		mfs_pickle_float(out(c), value);
}

static void flag(struct common *c, const char *name, bool value)
{
	mfs_pickle_name(out(c), name);
	mfs_pickle_bool(out(c), value);
}

static void text(struct common *c, const char *name, const char *value)
{
	mfs_pickle_name(out(c), name);
	mfs_pickle_str(out(c), value);
}

/* ---- parameter groups ---- */

/* An optimizer of the run, which may be several in a chain. */
struct optimizer {
	const struct mft_optimizer_kind *kind;
	bool expert; /* of routed experts alone, in runs that divide these */
};

/* torch's Adam has its step in each parameter's state, others in the group. A run without
 * Transformer Engine has torch's. */
static bool steps_in_groups(const struct common *c, const struct optimizer *o)
{
	return o->kind->counts_updates &&
	       (c->config->use_distributed_optimizer || !c->config->model.local_spec);
}

/* Parameter groups of one kind. */
struct group {
	bool decays, decoupled, mup;
};

/* optimizer/__init__.py: get_megatron_optimizer: parameters that are not added up over all of the
 * data-parallel processes have an optimizer of their own. */
static bool has_two(const struct common *c)
{
	const struct mfs_megatron_args *a = &c->config->model;

	return a->expert_model_parallel_size > 1 && a->moe_layers &&
	       !mft_optimizer_is_layer_wise(c->config);
}

static void write_group(struct common *c, const struct optimizer *o, struct group g)
{
	const bool decays = g.decays, decoupled = g.decoupled;
	const struct mft_schedule *s = &c->progress->schedule;
	const double wd = mft_schedule_weight_decay(s), mult = g.mup ? s->mup_mult : 1;

	mfs_pickle_dict_begin(out(c));
	real(c, "wd_mult", decays ? 1.0 : 0.0);
	real(c, "lr_mult", 1.0);
	flag(c, "is_expert_parallel", o->expert);
	flag(c, "is_decoupled_lr", decoupled);
	flag(c, "default_config", !decoupled && !g.mup);
	real(c, "max_lr", decoupled ? s->decoupled_lr : s->max_lr * mult);
	real(c, "min_lr",
	     decoupled && s->decoupled_min_lr >= 0 ? s->decoupled_min_lr : s->min_lr * mult);
	real(c, "lr",
	     decoupled ? mft_schedule_decoupled_lr(s)
	     : g.mup   ? mft_schedule_mup_lr(s)
		       : mft_schedule_lr(s));
	real(c, "weight_decay", decays ? wd : 0.0);
	o->kind->save_group(out(c), c->config, g.mup);
	if (steps_in_groups(c, o))
		count(c, "step", c->progress->optimizer_step);
	mfs_pickle_dict_end(out(c));
}

static bool mup_of_matrices(const struct common *c)
{
	const struct mfs_mup *mup = &c->config->model.mup;

	return mup->on && mup->width != 1 && !c->params->optimizer->mup_of_vectors;
}

/* The first stage may have no experts, whose weights decay. */
static bool has_group(const struct common *c, const struct optimizer *o, struct group g)
{
	for (uint32_t i = 0; i < c->params->count; i++) {
		const struct mft_param *p = &c->params->list[i];

		if (p->decays == g.decays && p->decoupled == g.decoupled && p->mup == g.mup &&
		    p->optimizer == o->kind && (has_two(c) && p->is_expert) == o->expert)
			return true;
	}
	return o->expert && g.decays && !g.decoupled && g.mup == mup_of_matrices(c);
}

/* Groups are sorted by what they override. Those with decay come first. Among these, and among the
 * others, muP's come after the plain ones, and the decoupled ones after both (optim/buffers:
 * mfs_optim.groups). */
static void write_groups(struct common *c, const struct optimizer *o)
{
	mfs_pickle_name(out(c), "param_groups");
	mfs_pickle_list_begin(out(c));
	for (int decays = 1; decays >= 0; decays--)
		for (int rate = 0; rate < 3; rate++) {
			const struct group g = {decays, rate == 2, rate == 1};

			if (has_group(c, o, g))
				write_group(c, o, g);
		}
	mfs_pickle_list_end(out(c));
}

/* ---- optimizer ---- */

/* The dict of torch's optimizer, or its like. */
static int write_torch(struct common *c, const struct optimizer *o)
{
	int rc = 0;

	mfs_pickle_dict_begin(out(c));
	write_groups(c, o);
	if (!c->config->use_distributed_optimizer) {
		mfs_pickle_name(out(c), "state");
		mfs_pickle_dict_begin(out(c));
		if (o->kind->counts_updates && !steps_in_groups(c, o)) {
			mfs_pickle_name(out(c), "common_step");
			rc = mfs_dist_archive_scalar(&c->archive,
						     (float)c->progress->optimizer_step, c->err);
		}
		mfs_pickle_dict_end(out(c));
	}
	mfs_pickle_dict_end(out(c));
	return rc;
}

/* DynamicGradScaler's; a constant one has an empty state. */
static int write_scaler(struct common *c)
{
	const struct mft_loss_scaler *s = &c->progress->scaler;
	int rc;

	if (!mft_precision_needs_scale(c->config->params_dtype))
		return 0;
	mfs_pickle_name(out(c), "grad_scaler");
	mfs_pickle_dict_begin(out(c));
	if (s->dynamic) {
		mfs_pickle_name(out(c), "scale");
		rc = mfs_dist_archive_number(&c->archive, (float)s->scale, c->err);
		if (rc)
			return rc;
		mfs_pickle_name(out(c), "growth_tracker");
		mfs_pickle_int(out(c), s->growth_tracker);
		mfs_pickle_name(out(c), "hysteresis_tracker");
		mfs_pickle_int(out(c), s->hysteresis_tracker);
	}
	mfs_pickle_dict_end(out(c));
	return 0;
}

static int write_one(struct common *c, const struct optimizer *o)
{
	const bool distributed = c->config->use_distributed_optimizer;
	int rc;

	if (!distributed && mft_precision_is_main(c->config->params_dtype))
		return write_torch(c, o); /* FP32Optimizer */
	mfs_pickle_dict_begin(out(c));
	mfs_pickle_name(out(c), "optimizer");
	rc = write_torch(c, o);
	if (!rc)
		rc = write_scaler(c);
	if (!rc && distributed)
		text(c, "param_state_sharding_type", "fully_reshardable");
	mfs_pickle_dict_end(out(c));
	return rc;
}

#define OPTIMIZERS 3

/* Lists the optimizers in the order of ChainedOptimizer: first that of the other parameters, then
 * that of routed experts, and last that of parameters which these two do not take (muon.py). The
 * experts are matrices. */
static unsigned list_optimizers(const struct common *c, struct optimizer list[OPTIMIZERS])
{
	const struct mft_optimizer_kind *kind = c->params->optimizer;
	unsigned count = 0;

	list[count++] = (struct optimizer){.kind = kind};
	if (has_two(c))
		list[count++] = (struct optimizer){.kind = kind, .expert = true};
	if (kind->others)
		list[count++] = (struct optimizer){.kind = kind->others};
	return count;
}

/* ChainedOptimizer, or the only one. */
static int write_optimizer(struct common *c)
{
	struct optimizer list[OPTIMIZERS];
	const unsigned count = list_optimizers(c, list);
	int rc = 0;

	mfs_pickle_name(out(c), "optimizer");
	if (count == 1)
		return write_one(c, &list[0]);
	mfs_pickle_dict_begin(out(c));
	for (unsigned i = 0; i < count && !rc; i++) {
		mfs_pickle_int(out(c), i);
		rc = write_one(c, &list[i]);
	}
	mfs_pickle_dict_end(out(c));
	return rc;
}

static void write_scheduler(struct common *c)
{
	const struct mft_schedule *s = &c->progress->schedule;

	mfs_pickle_name(out(c), "opt_param_scheduler");
	mfs_pickle_dict_begin(out(c));
	real(c, "max_lr", s->max_lr);
	steps(c, "lr_warmup_steps", s->warmup_steps);
	steps(c, "num_steps", s->num_steps);
	text(c, "lr_decay_style", mft_lr_decay_names[s->style]);
	steps(c, "lr_decay_steps", s->decay_steps);
	real(c, "min_lr", s->min_lr);
	real(c, "start_wd", s->start_wd);
	real(c, "end_wd", s->end_wd);
	text(c, "wd_incr_style", mft_wd_incr_names[s->wd_style]);
	steps(c, "wd_incr_steps", s->wd_incr_steps);
	mfs_pickle_dict_end(out(c));
}

/* ---- the whole ---- */

static int write_args(struct common *c)
{
	const struct mft_namespace_extra extra = {
		.iteration = c->progress->iteration,
		.consumed_train_samples = c->progress->consumed_train_samples,
		.consumed_valid_samples = c->progress->consumed_valid_samples,
		.skipped_train_samples = c->progress->skipped_train_samples,
		.sft_samples = c->progress->sft_samples,
		.sft_order = c->progress->sft_order};

	mfs_pickle_name(out(c), "args");
	return mft_train_namespace_write(out(c), c->config, &extra);
}

static int write_all(struct common *c)
{
	int rc;

	mfs_pickle_dict_begin(out(c));
	rc = write_args(c);
	real(c, "checkpoint_version", 3.0);
	count(c, "iteration", c->progress->iteration);
	real(c, "num_floating_point_operations_so_far", c->progress->floating_point_operations);
	if (!rc && !c->config->no_save_optim) {
		write_scheduler(c);
		rc = write_optimizer(c);
	}
	mfs_megatron_dist_content(out(c), !c->config->no_save_optim &&
						  c->config->use_distributed_optimizer);
	mfs_pickle_dict_end(out(c));
	return rc;
}

int mft_save_common(const struct mft_train_config *config, const struct mft_params *params,
		    const struct mft_progress *progress, struct mfs_buf *buf, struct mfs_error *err)
{
	struct common c = {.config = config, .params = params, .progress = progress, .err = err};

	mfs_dist_archive_begin(&c.archive);
	return mfs_dist_archive_end(&c.archive, "common", write_all(&c), buf, err);
}
