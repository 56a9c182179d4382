/* Opens a checkpoint with its optimizer, in whichever form that was saved. */
#include "formats/optim/read/optim_open.h"

#include <errno.h>
#include <string.h>

#include "formats/ckpt/read/ckpt_open.h"
#include "formats/ckpt/read/reader.h"
#include "formats/optim/read/optim_i.h"
#include "formats/optim/rules/optim_rules.h"

/* Keys of an optimizer that none of the readers knows. */
static const char *unknown_key(const struct mfs_dcp *dcp)
{
	for (uint32_t i = 0; i < dcp->tensor_count; i++)
		if (!strncmp(dcp->tensors[i].key, "optimizer.", 10) ||
		    !strncmp(dcp->tensors[i].key, "chained_", 8))
			return dcp->tensors[i].key;
	return NULL;
}

static int read_flat(struct mfs_dist_reader *r, enum mfs_optim_kind *ret)
{
	const char *key;

	*ret = MFS_OPTIM_DISTRIBUTED;
	if (mfs_optim_has_buckets(&r->dcp))
		return mfs_optim_read_buckets(r);
	if (mfs_optim_has_gathered(&r->dcp))
		return mfs_optim_read_gathered(r);
	*ret = MFS_OPTIM_NONE;
	key = unknown_key(&r->dcp);
	return key ? mfs_fail(r->err, -ENOTSUP,
			      "%s/%s: '%.120s': an unknown kind of optimizer state", r->ckpt->dir,
			      r->index, key)
		   : 0;
}

/* Checks what was found; r: NULL of legacy files. */
static int finish(struct mfs_ckpt *ckpt, const struct mfs_dist_reader *r, enum mfs_optim_kind kind,
		  bool fully_reshardable, struct mfs_error *err)
{
	bool has_main = false, flat;
	int rc = mfs_optim_check_read(ckpt, err);

	if (!rc)
		rc = mfs_ckpt_group(ckpt, err);
	if (!rc && kind != MFS_OPTIM_NONE)
		rc = mfs_optim_check_whole(ckpt, &has_main, err);
	flat = kind != MFS_OPTIM_NONE &&
	       (r ? mfs_optim_has_buckets(&r->dcp) || r->ckpt->format->is_plain
		  : mfs_optim_run_is_layer_wise(ckpt));
	/* Thousands of headers and samples are read. */
	mfs_fileset_keep_open(mfs_ckpt_files(ckpt), true);
	if (!rc && (fully_reshardable || flat))
		rc = mfs_optim_check_corrupt(ckpt, flat, err);
	mfs_fileset_keep_open(mfs_ckpt_files(ckpt), false);
	return rc ? rc : mfs_optim_read_settings(ckpt, r, kind, has_main, err);
}

int mfs_optim_open_legacy(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	enum mfs_optim_kind kind;
	int rc = mfs_optim_read_legacy(ckpt, &kind, err);

	return rc ? rc : finish(ckpt, NULL, kind, false, err);
}

/* Without a state nothing says what an optimizer is: such checkpoints are weights here. */
static int read_state(struct mfs_dist_reader *r, enum mfs_optim_kind *ret, bool *fully_reshardable)
{
	int rc;

	*ret = MFS_OPTIM_NONE;
	*fully_reshardable = false;
	if (!r->ckpt->has_state)
		return 0;
	if (r->ckpt->format->is_plain)
		return mfs_optim_read_plain(r, ret);
	rc = mfs_optim_read_named(r, ret, fully_reshardable);
	if (rc || *ret == MFS_OPTIM_NONE)
		return rc ? rc : read_flat(r, ret);
	if (!mfs_optim_has_buckets(&r->dcp))
		return 0;
	*ret = MFS_OPTIM_LAYER_WISE;
	return mfs_optim_read_buckets(r);
}

int mfs_optim_open_dist(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_dist_reader r;
	enum mfs_optim_kind kind;
	bool fully_reshardable;
	int rc = mfs_dist_read(ckpt, &r, err);

	if (!rc)
		rc = mfs_ckpt_group(ckpt, err);
	if (!rc)
		rc = read_state(&r, &kind, &fully_reshardable);
	if (!rc)
		rc = finish(ckpt, &r, kind, fully_reshardable, err);
	mfs_dist_release(&r);
	return rc;
}

#define OPEN(name, optim) mfs_optim_open_##optim,

static int (*const open_with[])(struct mfs_ckpt *ckpt,
				struct mfs_error *err) = {MFS_CKPT_READERS(OPEN)};

int mfs_optim_open_told(const char *dir, const struct mfs_ckpt_told *told, struct mfs_ckpt **ret,
			struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = mfs_ckpt_begin(dir, MFS_CKPT_COMMON, &ckpt, err);

	if (rc)
		return rc;
	ckpt->told = told;
	for (size_t i = 0; i < MFS_CKPT_READER_END; i++)
		if (mfs_ckpt_readers[i] == ckpt->reader)
			rc = open_with[i](ckpt, err);
	if (!rc)
		rc = mfs_ckpt_check_told(ckpt, err);
	return mfs_ckpt_end(ckpt, rc, ret);
}

int mfs_optim_open(const char *dir, struct mfs_ckpt **ret, struct mfs_error *err)
{
	return mfs_optim_open_told(dir, NULL, ret, err);
}
