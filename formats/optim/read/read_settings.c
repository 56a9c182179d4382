/* What of an optimizer is no tensor (optim/rules/settings.h), from the state dict or from byte
 * items of a torch_dist save. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/optim/rules/state_dict.h"
#include "formats/optim/read/optim_i.h"

/* A step in any of its forms, if it is there and none has been found. */
static int try_step(struct mfs_optim_info *info, const struct mfs_torch_file *f, mfs_value v,
		    struct mfs_error *err)
{
	int rc = 0;

	if (info->has_step || mfs_value_is_none(f->doc, v))
		return 0;
	if (!mfs_value_float(f->doc, v, &info->step))
		rc = mfs_torch_number(f, v, &info->step, err);
	if (rc)
		mfs_fail_in(err, "the optimizer's step");
	info->has_step = !rc;
	return rc;
}

/* Adam's: of a group (Transformer Engine, Apex, and in flat saves), common to all parameters, or
 * (torch's Adam) the first parameter's. */
static int read_step(struct mfs_optim_info *info, const struct mfs_torch_file *f, mfs_value one,
		     struct mfs_error *err)
{
	mfs_value torch = mfs_optim_state_torch(f->doc, one);
	mfs_value groups = mfs_value_get(f->doc, torch, "param_groups");
	mfs_value state = mfs_value_get(f->doc, torch, "state");
	int rc = 0;

	for (uint32_t i = 0; i < mfs_value_count(f->doc, groups) && !rc; i++)
		rc = try_step(info, f,
			      mfs_value_get(f->doc, mfs_value_at(f->doc, groups, i), "step"), err);
	if (!rc)
		rc = try_step(info, f, mfs_value_get(f->doc, state, "common_step"), err);
	return rc ? rc
		  : try_step(info, f,
			     mfs_value_get(f->doc, mfs_value_item(f->doc, state, 0), "step"), err);
}

static int note_optimizer(struct mfs_optim_info *info, uint32_t i, const struct mfs_torch_file *f,
			  mfs_value one, struct mfs_error *err)
{
	mfs_value scaler = mfs_value_get(f->doc, one, "grad_scaler");

	info->groups_doc[i] = f->doc;
	info->groups[i] = mfs_optim_state_groups(f->doc, one);
	if (mfs_value_count(f->doc, info->groups[i]) > MFS_OPTIM_MAX_GROUPS)
		return mfs_fail(err, -ENOTSUP,
				"%s: an optimizer with %u parameter groups is not supported",
				f->zip.src.name, mfs_value_count(f->doc, info->groups[i]));
	if (!info->scaler && !mfs_value_is_none(f->doc, scaler)) {
		info->scaler_file = f;
		info->scaler_doc = f->doc;
		info->scaler = scaler;
	}
	return read_step(info, f, one, err);
}

/* ---- torch_dist with flat buffers: groups are byte items of each model-parallel rank ---- */

/* Opens the archive of a byte item, kept with the checkpoint; its root is [object]. */
static int open_item(const struct mfs_dist_reader *r, const char *key, struct mfs_torch_file **ret)
{
	struct mfs_ckpt *ckpt = r->ckpt;
	const struct mfs_dcp_bytes *b = mfs_dcp_bytes(&r->dcp, key);
	struct mfs_torch_file *f = &ckpt->optim_files[ckpt->optim_file_count];
	struct mfs_source src;
	int rc;

	*ret = NULL;
	if (!b || b->item.file == MFS_DCP_FILE_NONE)
		return 0;
	src = mfs_dist_item(r, &b->item);
	rc = mfs_torch_file_open(&src, f, r->err);
	if (!rc) {
		ckpt->optim_file_count++;
		*ret = f;
	}
	if (!rc && r->maker->rename_groups)
		rc = r->maker->rename_groups(f, key, r->err);
	return rc ? (mfs_fail_in(r->err, "%s: '%s'", ckpt->dir, key), rc) : 0;
}

static int read_item(const struct mfs_dist_reader *r, struct mfs_optim_info *info, uint32_t i,
		     const char *prefix)
{
	struct mfs_torch_file *f;
	mfs_value torch;
	char key[128];
	int rc;

	snprintf(key, sizeof(key), "%soptimizer.distributed.dp_group_idx_0.optimizer/shard_0_1",
		 prefix);
	rc = open_item(r, key, &f);
	if (rc || !f)
		return rc;
	torch = mfs_dist_object(r, f->doc);
	info->optimizers = i + 1;
	return note_optimizer(info, i, f, torch, r->err);
}

static int read_scaler(const struct mfs_dist_reader *r, struct mfs_optim_info *info,
		       const char *prefix)
{
	struct mfs_torch_file *f;
	char key[128];
	int rc;

	snprintf(key, sizeof(key), "%soptimizer.distributed.dp_group_idx_0.grad_scaler/shard_0_1",
		 prefix);
	rc = open_item(r, key, &f);
	if (rc || !f)
		return rc;
	info->scaler_file = f;
	info->scaler_doc = f->doc;
	info->scaler = mfs_dist_object(r, f->doc);
	return 0;
}

static int read_all_items(const struct mfs_dist_reader *r, struct mfs_optim_info *info)
{
	int rc = read_item(r, info, 0, "");
	const bool chained = !rc && !info->optimizers;

	if (chained)
		rc = read_item(r, info, 0, "chained_0.");
	if (!rc && chained)
		rc = read_item(r, info, 1, "chained_1.");
	return rc ? rc : read_scaler(r, info, chained ? "chained_0." : "");
}

static int read_items(const struct mfs_dist_reader *r, struct mfs_optim_info *info)
{
	if (info->optimizers) /* the matrices' are in the state */
		return read_item(r, info, 1, "chained_1.");
	return read_all_items(r, info);
}

/* ---- all ---- */

int mfs_optim_read_settings(struct mfs_ckpt *ckpt, const struct mfs_dist_reader *r,
			    enum mfs_optim_kind kind, bool has_main, struct mfs_error *err)
{
	struct mfs_optim_info *info = mfs_arena_alloc(&ckpt->arena, sizeof(*info));
	const struct mfs_torch_file *f = &ckpt->state.archive;
	mfs_value optimizer;
	int rc = 0;

	if (!info)
		return mfs_fail_nomem(err);
	info->kind = kind;
	info->has_main = has_main;
	ckpt->optim_info = info;
	if (kind == MFS_OPTIM_NONE)
		return 0;
	optimizer = ckpt->has_state ? mfs_value_get(f->doc, ckpt->state.root, "optimizer") : 0;
	for (uint32_t i = 0; i < MFS_OPTIM_CHAIN && !rc; i++) {
		mfs_value one = mfs_optim_state_at(f->doc, optimizer, i);

		if (!one || !mfs_optim_state_groups(f->doc, one))
			break;
		rc = note_optimizer(info, i, f, one, err);
		info->optimizers = i + 1;
	}
	if (!rc && r &&
	    (!info->optimizers || (kind == MFS_OPTIM_LAYER_WISE && info->optimizers == 1)))
		rc = read_items(r, info);
	if (!info->optimizers)
		info->optimizers = 1;
	return rc;
}
