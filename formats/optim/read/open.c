/* Opens a checkpoint with its optimizer, in whichever form that was saved. */
#include <errno.h>
#include <string.h>

#include "formats/optim/rules/state.h"
#include "formats/optim/read/optim_i.h"

/* Keys of an optimizer that none of the readers knows. */
static const char *unknown_key(const struct mfs_dcp *dcp)
{
	for (uint32_t i = 0; i < dcp->tensor_count; i++)
		if (!strncmp(dcp->tensors[i].key, "optimizer.", 10) ||
		    !strncmp(dcp->tensors[i].key, "chained_", 8))
			return dcp->tensors[i].key;
	return NULL;
}

/* Flat buffers are read when the model's tensors are there: they say what lies in them. */
static int read_flat(struct mfs_ckpt *ckpt, bool *ret_found, struct mfs_error *err)
{
	const char *key;
	int rc;

	*ret_found = false;
	if (!ckpt->dcp || ckpt->optim != MFS_OPTIM_FORM_NONE)
		return 0;
	*ret_found = true;
	if (mfs_optim_has_buckets(ckpt->dcp))
		rc = mfs_optim_read_buckets(ckpt, err);
	else if (mfs_optim_has_param_state(ckpt->dcp))
		rc = mfs_optim_read_param_state(ckpt, err);
	else {
		*ret_found = false;
		key = unknown_key(ckpt->dcp);
		return key ? mfs_fail(err, -ENOTSUP,
				      "%s/" METADATA
				      ": '%.120s': an unknown kind of optimizer state",
				      ckpt->dir, key)
			   : 0;
	}
	return rc ? rc : mfs_ckpt_group(ckpt, err);
}

static enum mfs_optim_kind kind_of(const struct mfs_ckpt *ckpt, bool flat)
{
	switch (ckpt->optim) {
	case MFS_OPTIM_FORM_TORCH:
		return MFS_OPTIM_FLOAT16;
	case MFS_OPTIM_FORM_FLAT:
	case MFS_OPTIM_FORM_PARAM:
	case MFS_OPTIM_FORM_FLATTENED:
		return MFS_OPTIM_DISTRIBUTED;
	case MFS_OPTIM_FORM_SHARDED:
		return ckpt->args.use_distributed_optimizer ? MFS_OPTIM_DISTRIBUTED
							    : MFS_OPTIM_FLOAT16;
	case MFS_OPTIM_FORM_NONE:
		break;
	}
	return flat ? MFS_OPTIM_DISTRIBUTED : MFS_OPTIM_NONE;
}

static int read_optimizer(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	bool flat, has_main = false;
	enum mfs_optim_kind kind;
	int rc = read_flat(ckpt, &flat, err);

	kind = kind_of(ckpt, flat);
	if (!rc && kind != MFS_OPTIM_NONE)
		rc = mfs_optim_check(ckpt, &has_main, err);
	if (!rc && ckpt->optim == MFS_OPTIM_FORM_PARAM)
		rc = mfs_optim_check_param(ckpt, err);
	if (!rc)
		rc = mfs_optim_read_info(ckpt, kind, has_main, err);
	mfs_ckpt_drop_dcp(ckpt);
	return rc;
}

int mfs_optim_open(const char *dir, struct mfs_ckpt **ret, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = mfs_ckpt_open(dir, MFS_CKPT_OPTIMIZER, &ckpt, err);

	if (rc)
		return rc;
	rc = read_optimizer(ckpt, err);
	if (rc) {
		mfs_ckpt_free(ckpt);
		return rc;
	}
	*ret = ckpt;
	return 0;
}
