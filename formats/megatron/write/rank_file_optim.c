/*
 * 'optimizer' of a rank's state dict: optimizer/optimizer.py: Float16OptimizerWithFloat16Params and
 * FP32Optimizer.state_dict, ChainedOptimizer.state_dict; distrib_optimizer.py:
 * DistributedOptimizer. state_dict, whose tensors are in distrib_optim.pt.
 */
#include <errno.h>
#include <stdlib.h>

#include "formats/optim/rules/settings.h"
#include "formats/optim/rules/state_dict.h"
#include "formats/megatron/write/copy_values.h"
#include "formats/megatron/write/rank_file_i.h"

/* A parameter group that is being copied from the source. */
struct group_copy {
	const struct mfs_optim_info *info;
	const struct mfs_pickle *doc; /* of dict */
	const struct mfs_optim *optim;
	const struct mfs_optim_group *group;
	uint32_t number; /* of its optimizer */
	mfs_value dict;
	bool ids; /* write 'params' */
};

static bool group_flag(const struct mfs_pickle *doc, mfs_value dict, const char *key)
{
	bool value = false;

	mfs_value_bool(doc, mfs_value_get(doc, dict, key), &value);
	return value;
}

/* In a run with an optimizer of matrices, and with another one. */
static bool is_of_matrices(const struct mfs_pickle *doc, mfs_value dict,
			   const struct mfs_optim_rules *rules)
{
	return rules->kept.matrices & MFS_OPTIM_STATE(MOMENTUM)
		       ? mfs_optim_group_has_momentum(doc, dict)
		       : mfs_optim_group_is_lion(doc, dict);
}

static bool is_like(const struct mfs_pickle *doc, mfs_value dict, const struct mfs_optim *o,
		    const struct mfs_optim_group *g)
{
	double wd_mult = 1;

	mfs_value_float(doc, mfs_value_get(doc, dict, "wd_mult"), &wd_mult);
	return (wd_mult != 0) == g->decay &&
	       (!o->chain.muon || is_of_matrices(doc, dict, &o->rules) == g->muon) &&
	       group_flag(doc, dict, "is_decoupled_lr") == g->decoupled;
}

/* The source's group of the same parameters. It may be in another optimizer, since the layout
 * decides whether experts have one of their own. 0: the source has none. */
static mfs_value find_group(const struct mfs_optim_info *info, const struct mfs_optim *o,
			    const struct mfs_optim_group *g, const struct mfs_pickle **ret_doc)
{
	for (unsigned i = 0; i < MFS_OPTIM_CHAIN; i++) {
		const unsigned number = g->optimizer ^ i;
		const struct mfs_pickle *doc = info->groups_doc[number];
		const mfs_value list = info->groups[number];

		for (uint32_t k = 0; doc && k < mfs_value_count(doc, list); k++) {
			mfs_value dict = mfs_value_at(doc, list, k);

			*ret_doc = doc;
			if (is_like(doc, dict, o, g))
				return dict;
		}
	}
	return 0;
}

/* Transformer Engine's step is a tensor if a CUDA graph captures it. */
static bool is_tensor_step(const struct group_copy *c, const char *key, size_t len, mfs_value value)
{
	double number;

	return mfs_copy_is_key(key, len, "step") && c->info->has_step &&
	       !mfs_value_float(c->doc, value, &number);
}

static int change_pair(void *arg, struct mfs_pickle_writer *w, mfs_value dict, const char *key,
		       size_t key_len, mfs_value value, struct mfs_error *err)
{
	const struct group_copy *c = arg;

	(void)err;
	if (dict != c->dict)
		return 0;
	if (mfs_copy_is_key(key, key_len, "params"))
		return 1;
	if (is_tensor_step(c, key, key_len, value)) {
		mfs_copy_step(w, c->info->step);
		return 1;
	}
	if (!mfs_copy_is_key(key, key_len, "is_expert_parallel"))
		return 0;
	mfs_pickle_name(w, "is_expert_parallel");
	mfs_pickle_bool(w, c->group->experts);
	return 1;
}

static int add_params(void *arg, struct mfs_pickle_writer *w, mfs_value dict, struct mfs_error *err)
{
	const struct group_copy *c = arg;

	(void)err;
	if (dict != c->dict || !c->ids)
		return 0;
	mfs_pickle_name(w, "params");
	mfs_pickle_list_begin(w);
	for (uint32_t i = 0; i < c->optim->count; i++) {
		const struct mfs_optim_param *p = &c->optim->params[i];

		if (p->optimizer == c->group->optimizer && p->group == c->number)
			mfs_pickle_int(w, p->id);
	}
	mfs_pickle_list_end(w);
	return 0;
}

static int write_groups(struct mfs_rank_writer *r, uint32_t optimizer, bool ids)
{
	const struct mfs_optim_info *info = mfs_optim_info(r->options->ckpt);
	const struct mfs_optim *o = r->file->optim;
	int rc = 0;

	mfs_pickle_name(r->w, "param_groups");
	mfs_pickle_list_begin(r->w);
	for (uint32_t i = 0; i < o->group_count[optimizer] && !rc; i++) {
		struct group_copy c = {.info = info,
				       .optim = o,
				       .group = &o->groups[o->first_group[optimizer] + i],
				       .number = i,
				       .ids = ids};
		const struct mfs_pickle_hooks hooks = {.arg = &c,
						       .limit = MFS_OPTIM_GROUP_LIMIT,
						       .pair = change_pair,
						       .pairs_end = add_params,
						       .storage = mfs_copy_refuse};

		c.dict = find_group(info, o, c.group, &c.doc);
		if (!c.dict)
			return mfs_fail(r->err, -ENOTSUP,
					"%s: the optimizer has no parameter group %s weight decay",
					mfs_ckpt_dir(r->options->ckpt),
					c.group->decay ? "with" : "without");
		rc = mfs_pickle_copy(r->w, c.doc, c.dict, &hooks, r->err);
		if (rc)
			mfs_fail_in(r->err, "%s", mfs_ckpt_dir(r->options->ckpt));
	}
	mfs_pickle_list_end(r->w);
	return rc;
}

/* ---- torch's own optimizer: a state for each parameter ---- */

/* The step of torch.optim.AdamW is a tensor without axes. */
static int write_step(struct mfs_rank_writer *r)
{
	const struct mfs_optim_info *info = mfs_optim_info(r->options->ckpt);
	float *step = mfs_arena_alloc(&r->file->arena, sizeof(*step));
	struct mfs_rank_storage s = {.size = sizeof(*step), .bytes = step};
	uint32_t number;
	int rc;

	if (!step)
		return mfs_fail_nomem(r->err);
	*step = (float)info->step;
	rc = mfs_rank_add_storage(r, &s, &number);
	mfs_pickle_name(r->w, "step");
	if (!rc)
		mfs_pickle_tensor(r->w, number, MFS_F32, NULL, 0);
	return rc;
}

static int write_param_state(struct mfs_rank_writer *r, const struct mfs_optim_param *p)
{
	const struct mfs_optim_info *info = mfs_optim_info(r->options->ckpt);
	char name[MFS_CKPT_NAME_SIZE];
	unsigned kept;
	int rc = 0;

	mfs_rank_tensor_name(p->tensor, name, sizeof(name));
	kept = mfs_optim_kept(&r->file->optim->rules, name, p->tensor->base.ndim);
	mfs_pickle_int(r->w, p->id);
	mfs_pickle_dict_begin(r->w);
	if (info->has_step && !mfs_optim_groups_have_step(info) &&
	    (kept & MFS_OPTIM_STATE(EXP_AVG_SQ)))
		rc = write_step(r);
	for (enum mfs_state s = MFS_STATE_EXP_AVG; s < MFS_STATE_COUNT && !rc; s++) {
		if (!(kept >> s & 1))
			continue;
		mfs_pickle_name(r->w, mfs_state_name(s));
		rc = mfs_rank_write_state(r, p->tensor, s);
	}
	mfs_pickle_dict_end(r->w);
	return rc;
}

/* An optimizer's parameters, ordered by torch's numbers. NULL after the last. */
static const struct mfs_optim_param **by_id(struct mfs_rank_writer *r, uint32_t optimizer)
{
	const struct mfs_optim *o = r->file->optim;
	const struct mfs_optim_param **list =
		mfs_arena_array(&r->file->arena, o->count + 1, sizeof(*list));

	for (uint32_t i = 0; list && i < o->count; i++)
		if (o->params[i].optimizer == optimizer)
			list[o->params[i].id] = &o->params[i];
	return list;
}

static int write_torch_state(struct mfs_rank_writer *r, uint32_t optimizer)
{
	const struct mfs_optim_param **params = by_id(r, optimizer);
	int rc = params ? 0 : mfs_fail_nomem(r->err);

	mfs_pickle_dict_begin(r->w);
	mfs_pickle_name(r->w, "state");
	mfs_pickle_dict_begin(r->w);
	for (uint32_t id = 0; !rc && params[id]; id++)
		rc = write_param_state(r, params[id]);
	mfs_pickle_dict_end(r->w);
	if (!rc)
		rc = write_groups(r, optimizer, true);
	mfs_pickle_dict_end(r->w);
	return rc;
}

static int write_mains(struct mfs_rank_writer *r, uint32_t optimizer)
{
	const struct mfs_optim *o = r->file->optim;
	int rc = 0;

	mfs_pickle_name(r->w, "fp32_from_fp16_params");
	mfs_pickle_list_begin(r->w);
	for (uint32_t g = 0; g < o->group_count[optimizer] && !rc; g++) {
		mfs_pickle_list_begin(r->w);
		for (uint32_t i = 0; i < o->count && !rc; i++) {
			const struct mfs_optim_param *p = &o->params[i];

			if (p->optimizer == optimizer && p->group == g && p->has_main)
				rc = mfs_rank_write_state(r, p->tensor, MFS_STATE_MAIN);
		}
		mfs_pickle_list_end(r->w);
	}
	mfs_pickle_list_end(r->w);
	return rc;
}

static int write_scaler(struct mfs_rank_writer *r)
{
	const struct mfs_optim_info *info = mfs_optim_info(r->options->ckpt);

	if (!info->scaler)
		return 0;
	mfs_pickle_name(r->w, "grad_scaler");
	return mfs_rank_copy(r, info->scaler_file, info->scaler);
}

static int write_float16(struct mfs_rank_writer *r, uint32_t optimizer)
{
	int rc;

	if (!mfs_optim_info(r->options->ckpt)->has_main)
		return write_torch_state(r, optimizer); /* FP32Optimizer */
	mfs_pickle_dict_begin(r->w);
	mfs_pickle_name(r->w, "optimizer");
	rc = write_torch_state(r, optimizer);
	if (!rc)
		rc = write_scaler(r);
	if (!rc)
		rc = write_mains(r, optimizer);
	mfs_pickle_dict_end(r->w);
	return rc;
}

static int write_distributed(struct mfs_rank_writer *r, uint32_t optimizer)
{
	int rc;

	mfs_pickle_dict_begin(r->w);
	mfs_pickle_name(r->w, "optimizer");
	mfs_pickle_dict_begin(r->w);
	rc = write_groups(r, optimizer, false);
	mfs_pickle_dict_end(r->w);
	if (!rc)
		rc = write_scaler(r);
	mfs_pickle_dict_end(r->w);
	return rc;
}

int mfs_rank_write_optimizer(struct mfs_rank_writer *r)
{
	const bool distributed = mfs_optim_info(r->options->ckpt)->kind == MFS_OPTIM_DISTRIBUTED;
	const uint32_t count = r->file->optim->chain.count;
	int rc = 0;

	if (count > 1)
		mfs_pickle_list_begin(r->w);
	for (uint32_t o = 0; o < count && !rc; o++)
		rc = distributed ? write_distributed(r, o) : write_float16(r, o);
	if (count > 1)
		mfs_pickle_list_end(r->w);
	return rc;
}
