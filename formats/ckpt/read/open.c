#include "formats/ckpt/read/open.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/ckpt/read/dist.h"
#include "formats/ckpt/read/torch.h"
#include "formats/ckpt/read/verl.h"
#include "formats/io/directory.h"

/* Which format: megatron/training/checkpointing.py:_get_checkpoint_format; NeMo 2's folders:
 * nemo/lightning/ckpt_utils.py. */

static bool exists(const char *dir, const char *name)
{
	char path[4096];
	struct stat st;

	return (size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) < sizeof(path) &&
	       !stat(path, &st);
}

static bool has_rank_dirs(const char *dir)
{
	DIR *d = mfs_opendir(dir);
	struct dirent *e;
	bool found = false;

	while (d && !found && (e = readdir(d)))
		found = !strncmp(e->d_name, "mp_rank_", 8);
	if (d)
		closedir(d);
	return found;
}

static int detect(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const char *dir = ckpt->dir;
	const struct mfs_verl *verl = mfs_verl_find(dir);
	char json[64];
	int rc;

	if (exists(dir, "metadata.json") || exists(dir, MFS_NEMO_WEIGHTS "/metadata.json")) {
		ckpt->format = MFS_CKPT_TORCH_DIST;
		return 0;
	}
	if (has_rank_dirs(dir)) {
		ckpt->format = MFS_CKPT_TORCH;
		return 0;
	}
	if (exists(dir, ".metadata")) {
		ckpt->format = MFS_CKPT_DCP;
		return 0;
	}
	if (verl) {
		snprintf(json, sizeof(json), "%s/metadata.json", verl->weights);
		ckpt->format = exists(dir, json) ? MFS_CKPT_TORCH_DIST : MFS_CKPT_DCP;
		return 0;
	}
	if (exists(dir, MFS_NEMO_WEIGHTS "/.metadata"))
		return mfs_fail(err, -ENODATA,
				"%s/" MFS_NEMO_WEIGHTS
				"/metadata.json is missing: the save did not finish",
				dir);
	if (exists(dir, ".metadata.tmp") || exists(dir, "common.pt"))
		return mfs_fail(err, -ENODATA, "%s: .metadata is missing: the save did not finish",
				dir);
	rc = mfs_verl_refuse(dir, err);
	return rc ? rc
		  : mfs_fail(err, -ENODATA,
			     "%s: neither metadata.json nor mp_rank_* directories: not a Megatron "
			     "checkpoint",
			     dir);
}

int mfs_ckpt_begin(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = mfs_ckpt_new(dir, what, MFS_CKPT_TORCH, &ckpt, err);

	return rc ? rc : mfs_ckpt_end(ckpt, detect(ckpt, err), ret);
}

static int read_dist(struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct mfs_dist_reader r;
	int rc = mfs_dist_read(ckpt, &r, err);

	mfs_dist_release(&r);
	return rc;
}

int mfs_ckpt_open_part(const char *dir, unsigned what, const struct mfs_ckpt_parts *parts,
		       const struct mfs_ckpt_told *told, struct mfs_ckpt **ret,
		       struct mfs_error *err)
{
	struct mfs_ckpt *ckpt;
	int rc = mfs_ckpt_begin(dir, what, &ckpt, err);

	if (rc)
		return rc;
	ckpt->parts = parts;
	ckpt->told = told;
	rc = ckpt->format == MFS_CKPT_TORCH ? mfs_torch_read(ckpt, NULL, NULL, err)
					    : read_dist(ckpt, err);
	if (!rc)
		rc = mfs_ckpt_group(ckpt, err);
	if (!rc)
		rc = mfs_ckpt_check_told(ckpt, err);
	return mfs_ckpt_end(ckpt, rc, ret);
}

int mfs_ckpt_open(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err)
{
	return mfs_ckpt_open_part(dir, what, NULL, NULL, ret, err);
}
