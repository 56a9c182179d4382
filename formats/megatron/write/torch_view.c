/*
 * Legacy `torch` views: mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt for each rank, with a
 * distrib_optim.pt in the same directory if the run's optimizer was distributed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "formats/megatron/write/files.h"
#include "formats/megatron/write/rank_file.h"
#include "formats/optim/buffers/layer_wise.h"
#include "formats/optim/rules/settings.h"

/* A lazy file. A view of a thousand ranks has a thousand of these. */
struct rank_entry {
	const struct mfs_megatron_options *options;
	struct mfs_rank_file_id id;
	struct rank_entry *next;
};

struct mfs_megatron_torch {
	struct mfs_megatron_options options;
	struct rank_entry *entries;
};

static void release_file(void *file)
{
	mfs_rank_file_free(file);
}

static int build(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	const struct rank_entry *e = arg;
	struct mfs_rank_file *file;
	int rc = mfs_rank_file_new(e->options, &e->id, parts, &file, err);

	if (!rc && file)
		mfs_vfile_keep(parts, file, release_file);
	return rc;
}

/* Makes the file once, for its size, and so that errors are found now. 0: there is no such file. */
static int measure(struct rank_entry *e, uint64_t *ret, struct mfs_error *err)
{
	struct mfs_vfile *parts;
	int rc = mfs_vfile_new(&parts, err);

	if (rc)
		return rc;
	rc = build(e, parts, err);
	*ret = mfs_vfile_size(parts);
	mfs_vfile_free(parts);
	return rc;
}

static int new_entry(struct mfs_megatron_torch *t, const struct mfs_rank_file_id *id,
		     struct rank_entry **ret, struct mfs_error *err)
{
	struct rank_entry *e = calloc(1, sizeof(*e));

	if (!e)
		return mfs_fail_nomem(err);
	*e = (struct rank_entry){&t->options, *id, t->entries};
	t->entries = e;
	*ret = e;
	return 0;
}

static int add_file(struct mfs_megatron_torch *t, const struct mfs_rank_file_id *id,
		    const struct mfs_file_sink *sink, struct mfs_error *err)
{
	char dir[64], path[128], stem[MFS_RANK_FILE_STEM];
	struct mfs_vfile *data;
	struct rank_entry *e;
	uint64_t size = 0;
	int rc = new_entry(t, id, &e, err);

	if (!rc)
		rc = measure(e, &size, err);
	if (rc || !size)
		return rc;
	rc = mfs_vfile_new_lazy(size, build, e, &data, err);
	if (rc)
		return rc;
	snprintf(path, sizeof(path), "%s/%s.pt",
		 mfs_rank_dir_name(&t->options.layout, &id->rank, dir),
		 mfs_rank_file_stem(id, stem));
	return sink->add(sink->arg, path, data, err);
}

static int add_rank(struct mfs_megatron_torch *t, const struct mfs_rank *rank,
		    const struct mfs_file_sink *sink, struct mfs_error *err)
{
	const uint32_t shares = mfs_rank_file_shares(&t->options);
	struct mfs_rank_file_id id = {.rank = *rank, .kind = MFS_RANK_FILE_MODEL};
	int rc = add_file(t, &id, sink, err);

	id.kind = MFS_RANK_FILE_SHARE;
	for (id.number = rank->ep; id.number < shares && !rc; id.number += t->options.layout.ep)
		rc = add_file(t, &id, sink, err);
	if (rc || !t->options.optimizer ||
	    mfs_optim_info(t->options.ckpt)->kind != MFS_OPTIM_DISTRIBUTED)
		return rc;
	id.kind = MFS_RANK_FILE_OPTIMIZER;
	return add_file(t, &id, sink, err);
}

/* A file for each data-parallel rank. */
static int check_shares(const struct mfs_megatron_options *options, struct mfs_error *err)
{
	const uint32_t shares = mfs_rank_file_shares(options);

	return shares <= MFS_LEGACY_MAX_DP
		       ? 0
		       : mfs_fail(err, -EINVAL,
				  "%s: data_parallel_size: expected 1 to %u, of which each has a "
				  "file of its optimizer, found %u",
				  mfs_ckpt_dir(options->ckpt), MFS_LEGACY_MAX_DP, shares);
}

int mfs_megatron_torch_new(const struct mfs_megatron_options *options,
			   const struct mfs_file_sink *sink, struct mfs_megatron_torch **ret,
			   struct mfs_error *err)
{
	struct mfs_megatron_torch *t = calloc(1, sizeof(*t));
	struct mfs_rank rank;
	int rc = t ? check_shares(options, err) : mfs_fail_nomem(err);

	if (!rc)
		t->options = *options;
	for (uint32_t i = 0; !rc && mfs_rank_at(&options->layout, i, &rank); i++)
		rc = add_rank(t, &rank, sink, err);
	/* Also on failure, since files that the sink has taken point to it. */
	*ret = t;
	return rc;
}

void mfs_megatron_torch_free(struct mfs_megatron_torch *t)
{
	struct rank_entry *e;

	while (t && (e = t->entries)) {
		t->entries = e->next;
		free(e);
	}
	free(t);
}
