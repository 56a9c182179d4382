/*
 * Legacy files: layer_wise_optimizer_N.pt, Muon's distributed optimizer. Data-parallel rank N has
 * the states of whole parameters (optim/buffers/layer_wise.h).
 *
 * Source: megatron/core/optimizer/layer_wise_optimizer.py: save_state_dict_to_file;
 * training/checkpointing.py: save_checkpoint. A run with
 * use_layer_wise_param_layout has no such files: its chain cannot be saved so.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/optim/read/legacy_i.h"
#include "formats/optim/rules/state_dict.h"

struct files {
	struct mfs_legacy_optim *all;
	struct mfs_torch_reader *r;
	const struct mfs_torch_rank *rank;
	const struct mfs_torch_source *model;
	struct mfs_layer_share share;
};

static int add_file(const struct files *f, uint32_t number, uint32_t *ret)
{
	char path[512];

	snprintf(path, sizeof(path), "%s/layer_wise_optimizer_%u.pt", f->rank->name, number);
	return mfs_fileset_add(f->r->ckpt->files, path, ret, f->r->err);
}

static int read_file(const struct files *f, struct mfs_torch_file *file, uint32_t number)
{
	const struct mfs_pickle *doc = file->doc;
	struct mfs_torch_source a = {.state = file, .file = number};
	struct mfs_legacy_source source = {.rank = f->rank,
					   .model = f->model,
					   .optim = &a,
					   .optimizer = mfs_pickle_root(doc),
					   .share = &f->share};
	int rc;

	source.count = mfs_optim_state_count(doc, source.optimizer);
	a.storages = calloc(file->zip.count, sizeof(*a.storages));
	rc = a.storages ? mfs_legacy_read_float16(f->all, f->r, &source)
			: mfs_fail_nomem(f->r->err);
	free(a.storages);
	return rc;
}

static int open_file(const struct files *f, uint32_t number)
{
	const struct mfs_source src = mfs_source_file(f->r->ckpt->files, number);
	struct mfs_torch_file file;
	int rc = mfs_torch_file_open(&src, &file, f->r->err);

	if (rc)
		return (mfs_fail_in(f->r->err, "%s", f->r->ckpt->dir), rc);
	rc = read_file(f, &file, number);
	mfs_torch_file_release(&file);
	return rc;
}

/* Which parameters are dealt to whom is known where each expert's ranks are as many. */
static int check_ranks(struct files *f, uint32_t found)
{
	const struct mfs_torch_reader *r = f->r;
	const int64_t world = r->ckpt->args.world_size;

	if ((world > 0 && (uint64_t)world != (uint64_t)r->tp * r->pp * f->share.ranks) ||
	    r->etp != r->tp)
		return mfs_fail(r->err, -ENOTSUP,
				"%s/%s: layer_wise_optimizer_N.pt: expected neither context "
				"parallelism, with which ranks overwrite each other's file, nor "
				"an expert tensor parallel size of its own",
				r->ckpt->dir, f->rank->name);
	if (!found) /* of a view of a run with Muon, whose state is that of all ranks */
		return -ENOENT;
	if ((uint64_t)found * r->ep != f->share.ranks)
		return mfs_fail(r->err, -ENODATA,
				"%s/%s: expected %u files layer_wise_optimizer_N.pt, found %u",
				r->ckpt->dir, f->rank->name, f->share.ranks / r->ep, found);
	f->share.expert_ranks = found;
	return 0;
}

/* The ranks of a directory are those with its experts. */
static int list_files(struct files *f, uint32_t *numbers, uint32_t *ranks)
{
	const struct mfs_torch_reader *r = f->r;
	uint32_t found = 0;
	int rc = 0;

	for (uint32_t i = 0; i < f->share.ranks && found * r->ep < f->share.ranks && !rc; i++) {
		rc = add_file(f, i, &numbers[found]);
		ranks[found] = i;
		found += !rc;
		rc = rc == -ENOENT ? 0 : rc;
	}
	return rc ? rc : check_ranks(f, found);
}

int mfs_legacy_read_layer_wise(struct mfs_legacy_optim *l, struct mfs_torch_reader *r,
			       const struct mfs_torch_rank *rank,
			       const struct mfs_torch_source *model)
{
	const int64_t dp = r->ckpt->args.data_parallel_size;
	struct files f = {.all = l, .r = r, .rank = rank, .model = model};
	uint32_t *numbers, *ranks;
	int rc;

	if (dp < 1 || dp > MFS_LEGACY_MAX_DP)
		return mfs_fail(r->err, -EINVAL,
				"%s/%s: data_parallel_size: expected 1 to %u, found %lld",
				r->ckpt->dir, rank->name, MFS_LEGACY_MAX_DP, (long long)dp);
	f.share.ranks = (uint32_t)dp;
	numbers = calloc(2 * (size_t)dp, sizeof(*numbers));
	if (!numbers)
		return mfs_fail_nomem(r->err);
	ranks = numbers + dp;
	rc = list_files(&f, numbers, ranks);
	for (uint32_t i = 0; i < f.share.expert_ranks && !rc; i++) {
		f.share.rank = ranks[i];
		f.share.expert_rank = i;
		rc = open_file(&f, numbers[i]);
	}
	free(numbers);
	return rc;
}
