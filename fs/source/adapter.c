#include "fs/source/adapter.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

#include "formats/ckpt/delta.h"
#include "formats/ckpt/read/bridge_adapter.h"
#include "formats/ckpt/read/demand.h"
#include "formats/megatron/tracker.h"
#include "formats/model/peft.h"
#include "fs/source/iteration.h"

/* The iteration that a checkpoint root's tracker names. */
static int latest_of(const char *dir, char *path, size_t size, struct mfs_error *err)
{
	struct mfs_tracker tracker = {0};

	mfs_tracker_read(dir, &tracker);
	if (tracker.kind == MFS_TRACKER_NUMBER)
		snprintf(path, size, "%s/iter_%07lld", dir, (long long)tracker.number);
	else if (tracker.kind == MFS_TRACKER_RELEASE)
		snprintf(path, size, "%s/release", dir);
	else
		return mfs_fail(err, -ENODATA,
				"'%s' holds no adapter: looked for " MFS_PEFT_CONFIG
				" (PEFT), and for " MFS_TRACKER_FILE " or .metadata and "
				"metadata.json (Megatron-Bridge)",
				dir);
	return 0;
}

static int attach_bridge(struct mfs_ckpt *ckpt, const char *dir, struct mfs_error *err)
{
	char path[PATH_MAX];
	int rc;

	if (mfs_iteration_looks_like_one(dir))
		return mfs_ckpt_attach_bridge(ckpt, dir, err);
	rc = latest_of(dir, path, sizeof(path), err);
	return rc ? rc : mfs_ckpt_attach_bridge(ckpt, path, err);
}

int mfs_adapter_attach(struct mfs_ckpt *ckpt, const struct mfs_view_options *options,
		       struct mfs_error *err)
{
	const char *dir = options->adapter;
	int rc;

	if (!dir)
		return 0;
	rc = mfs_peft_looks_like_one(dir) ? mfs_peft_attach(ckpt, options->arch, dir, err)
					  : attach_bridge(ckpt, dir, err);
	return rc ? rc : mfs_ckpt_demand(mfs_ckpt_adapter(ckpt), options->verify, err);
}
