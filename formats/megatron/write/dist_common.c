/*
 * common.pt of a torch_dist view: the state that is no tensor and is the same on all ranks. Every
 * release of Megatron-core reads it; those since 0.19 prefer it to the item common_state/shard_0_1.
 *
 * 'optimizer' is what remains of sharded_state_dict() without its tensors (optimizer/optimizer.py:
 * Float16OptimizerWithFloat16Params, FP32Optimizer, ChainedOptimizer; distrib_optimizer.py). With
 * 'fully_reshardable' in content_metadata its tensors have the shapes of the parameters, so that a
 * run of any layout can load them.
 */
#include <errno.h>

#include "formats/optim/rules/settings.h"
#include "formats/optim/rules/state_dict.h"
#include "formats/megatron/write/copy_values.h"
#include "formats/megatron/write/dist_archive.h"
#include "formats/megatron/write/dist_view_i.h"
#include "formats/megatron/write/common.h"

struct common {
	const struct mfs_megatron_dist *d;
	const struct mfs_optim_info *info;
	struct mfs_dist_archive archive;
	struct mfs_error *err;
};

static struct mfs_pickle_writer *out(struct common *c)
{
	return &c->archive.w;
}

/* ---- parameter groups ---- */

static bool is_distributed(const struct common *c, uint32_t optimizer)
{
	return mfs_optim_is_distributed(c->info->kind, optimizer);
}

struct group_copy {
	const struct common *c;
	uint32_t optimizer;
	const struct mfs_pickle *doc;
	mfs_value dict;
};

/* Leaves out 'params': the run has its own. */
static int change_pair(void *arg, struct mfs_pickle_writer *w, mfs_value dict, const char *key,
		       size_t key_len, mfs_value value, struct mfs_error *err)
{
	const struct group_copy *g = arg;
	const struct mfs_pickle *doc = g->doc;
	double number;

	(void)w, (void)err;
	if (dict != g->dict)
		return 0;
	return mfs_copy_is_key(key, key_len, "params") ||
	       (mfs_copy_is_key(key, key_len, "step") && g->c->info->has_step &&
		!mfs_value_float(doc, value, &number));
}

/* True if 'step' is a number, which is copied. If it is a tensor or absent, it is written anew. */
static bool has_number(const struct group_copy *g)
{
	double number;

	return mfs_value_float(g->doc, mfs_value_get(g->doc, g->dict, "step"), &number);
}

static int add_step(void *arg, struct mfs_pickle_writer *w, mfs_value dict, struct mfs_error *err)
{
	const struct group_copy *g = arg;

	(void)err;
	if (dict == g->dict && g->c->info->has_step && !has_number(g) &&
	    !mfs_optim_group_has_momentum(g->doc, dict) && !mfs_optim_group_is_lion(g->doc, dict) &&
	    (is_distributed(g->c, g->optimizer) || mfs_optim_groups_have_step(g->c->info)))
		mfs_copy_step(w, g->c->info->step);
	return 0;
}

static int write_groups(struct common *c, uint32_t optimizer)
{
	const struct mfs_pickle *doc = c->info->groups_doc[optimizer];
	const mfs_value groups = c->info->groups[optimizer];
	int rc = 0;

	if (!doc)
		return mfs_fail(c->err, -ENOTSUP,
				"%s: the parameter groups of its optimizer are missing",
				mfs_ckpt_dir(c->d->options.ckpt));
	mfs_pickle_name(out(c), "param_groups");
	mfs_pickle_list_begin(out(c));
	for (uint32_t i = 0; i < mfs_value_count(doc, groups) && !rc; i++) {
		struct group_copy g = {c, optimizer, doc, mfs_value_at(doc, groups, i)};
		const struct mfs_pickle_hooks hooks = {.arg = &g,
						       .pair = change_pair,
						       .pairs_end = add_step,
						       .storage = mfs_copy_refuse,
						       .limit = MFS_OPTIM_GROUP_LIMIT};

		rc = mfs_pickle_copy(out(c), doc, g.dict, &hooks, c->err);
		if (rc)
			mfs_fail_in(c->err, "%s", mfs_ckpt_dir(c->d->options.ckpt));
	}
	mfs_pickle_list_end(out(c));
	return rc;
}

/* ---- optimizers ---- */

/* Of fp16 runs. */
static int write_scaler(struct common *c)
{
	if (!c->info->scaler)
		return 0;
	mfs_pickle_name(out(c), "grad_scaler");
	return mfs_dist_archive_copy(&c->archive, c->info->scaler_file, c->info->scaler, c->err);
}

/* torch's own optimizer: one step for all parameters, unless the groups have it. */
static int write_torch(struct common *c, uint32_t optimizer)
{
	int rc;

	mfs_pickle_dict_begin(out(c));
	rc = write_groups(c, optimizer);
	if (!rc && !is_distributed(c, optimizer)) {
		mfs_pickle_name(out(c), "state");
		mfs_pickle_dict_begin(out(c));
		if (c->info->has_step && !mfs_optim_groups_have_step(c->info)) {
			mfs_pickle_name(out(c), "common_step");
			rc = mfs_dist_archive_scalar(&c->archive, (float)c->info->step, c->err);
		}
		mfs_pickle_dict_end(out(c));
	}
	mfs_pickle_dict_end(out(c));
	return rc;
}

static int write_one(struct common *c, uint32_t optimizer)
{
	int rc;

	if (!is_distributed(c, optimizer) && !c->info->has_main)
		return write_torch(c, optimizer); /* FP32Optimizer */
	mfs_pickle_dict_begin(out(c));
	mfs_pickle_name(out(c), "optimizer");
	rc = write_torch(c, optimizer);
	if (!rc)
		rc = write_scaler(c);
	if (!rc && is_distributed(c, optimizer)) {
		mfs_pickle_name(out(c), "param_state_sharding_type");
		mfs_pickle_str(out(c), "fully_reshardable");
	}
	mfs_pickle_dict_end(out(c));
	return rc;
}

static int write_optimizer(struct common *c)
{
	int rc = 0;

	mfs_pickle_name(out(c), "optimizer");
	if (c->info->optimizers < 2)
		return write_one(c, 0);
	mfs_pickle_dict_begin(out(c));
	for (uint32_t i = 0; i < c->info->optimizers && !rc; i++) {
		mfs_pickle_int(out(c), i);
		rc = write_one(c, i);
	}
	mfs_pickle_dict_end(out(c));
	return rc;
}

/* ---- the whole ---- */

static void write_flag(struct mfs_pickle_writer *w, const char *name, bool value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_bool(w, value);
}

/* training/checkpointing.py: _build_sharded_state_dict_metadata. */
void mfs_megatron_dist_content(struct mfs_pickle_writer *w, bool distributed)
{
	mfs_pickle_name(w, "content_metadata");
	mfs_pickle_dict_begin(w);
	if (distributed) {
		mfs_pickle_name(w, "distrib_optim_sharding_type");
		mfs_pickle_str(w, "fully_reshardable");
		write_flag(w, "distrib_optim_fully_reshardable_mem_efficient", false);
	}
	write_flag(w, "singleton_local_shards", false);
	write_flag(w, "chained_optim_avoid_prefix", true);
	mfs_pickle_dict_end(w);
}

int mfs_dist_common(const struct mfs_megatron_dist *d, struct mfs_buf *ret, struct mfs_error *err)
{
	const struct mfs_common_options options = {.vocab = d->vocab,
						   .spec = d->options.spec,
						   .spec_given = d->options.spec_given,
						   .has_optimizer = d->options.optimizer,
						   .has_rng = d->rng_count > 0,
						   .hybrid = d->options.layout.hybrid,
						   .format = "torch_dist"};
	struct common c = {.d = d, .err = err};
	int rc;

	if (d->options.optimizer)
		c.info = mfs_optim_info(d->options.ckpt);
	mfs_dist_archive_begin(&c.archive);
	mfs_pickle_dict_begin(out(&c));
	rc = mfs_common_write(out(&c), d->options.ckpt, &options, d->options.number, err);
	if (!rc && d->options.optimizer)
		rc = write_optimizer(&c);
	mfs_megatron_dist_content(out(&c), d->options.optimizer && is_distributed(&c, 1));
	mfs_pickle_dict_end(out(&c));
	return mfs_dist_archive_end(&c.archive, "common", rc, ret, err);
}
