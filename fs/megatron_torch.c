/*
 * Legacy `torch` views: one mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt a rank, and distrib_optim.pt beside
 * it where the run's optimizer was distributed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/megatron_files.h"
#include "fs/megatron_rank_file.h"

struct mfs_megatron_torch {
	struct mfs_rank_file **files;
	uint32_t count, capacity;
};

static int keep(struct mfs_megatron_torch *t, struct mfs_rank_file *file, struct mfs_error *err)
{
	if (t->count == t->capacity) {
		uint32_t more = t->capacity ? t->capacity * 2 : 16;
		struct mfs_rank_file **grown = reallocarray(t->files, more, sizeof(*grown));

		if (!grown)
			return mfs_fail_nomem(err);
		t->files = grown;
		t->capacity = more;
	}
	t->files[t->count++] = file;
	return 0;
}

static int add_file(struct mfs_megatron_torch *t, const struct mfs_megatron_view *view,
		    const struct mfs_rank *rank, enum mfs_rank_file_kind kind,
		    const struct mfs_file_sink *sink, struct mfs_error *err)
{
	char dir[64], path[128];
	struct mfs_rank_file *file;
	struct mfs_vfile *data;
	int rc = mfs_rank_file_new(view, rank, kind, &file, &data, err);

	if (rc || !file)
		return rc;
	rc = keep(t, file, err);
	if (rc) {
		mfs_vfile_free(data);
		mfs_rank_file_free(file);
		return rc;
	}
	snprintf(path, sizeof(path), "%s/%s.pt", mfs_rank_dir_name(&view->layout, rank, dir),
		 mfs_rank_file_stem(kind));
	return sink->add(sink->arg, path, data, err);
}

static int add_rank(struct mfs_megatron_torch *t, const struct mfs_megatron_view *view,
		    const struct mfs_rank *rank, const struct mfs_file_sink *sink,
		    struct mfs_error *err)
{
	int rc = add_file(t, view, rank, MFS_RANK_FILE_MODEL, sink, err);

	if (rc || !view->optimizer || mfs_optim_info(view->ckpt)->kind != MFS_OPTIM_DISTRIBUTED)
		return rc;
	return add_file(t, view, rank, MFS_RANK_FILE_OPTIMIZER, sink, err);
}

int mfs_megatron_torch_new(const struct mfs_megatron_view *view, const struct mfs_file_sink *sink,
			   struct mfs_megatron_torch **ret, struct mfs_error *err)
{
	struct mfs_megatron_torch *t = calloc(1, sizeof(*t));
	struct mfs_rank rank;
	int rc = t ? 0 : mfs_fail_nomem(err);

	for (uint32_t i = 0; !rc && mfs_rank_at(&view->layout, i, &rank); i++)
		rc = add_rank(t, view, &rank, sink, err);
	if (rc) {
		mfs_megatron_torch_free(t);
		return rc;
	}
	*ret = t;
	return 0;
}

void mfs_megatron_torch_free(struct mfs_megatron_torch *t)
{
	if (!t)
		return;
	for (uint32_t i = 0; i < t->count; i++)
		mfs_rank_file_free(t->files[i]);
	free(t->files);
	free(t);
}
