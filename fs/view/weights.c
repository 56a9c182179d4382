#include "fs/view/weights.h"

#include <stdlib.h>

#include "fs/view/build.h"

static int add_shards(struct mfs_view *v, const struct mfs_hf_weights *w,
		      const struct mfs_hf_container *container, const struct mfs_hf_shard *shards,
		      uint32_t count, struct mfs_error *err)
{
	char name[MFS_HF_SHARD_NAME_SIZE];
	struct mfs_vfile *f;
	int rc = 0;

	for (uint32_t i = 0; i < count && !rc; i++) {
		mfs_hf_shard_name(name, container, i, count);
		rc = container->file(w, &shards[i], &f, err);
		if (!rc)
			rc = mfs_view_add(v, name, f, err);
	}
	if (rc || count == 1)
		return rc;
	rc = mfs_hf_index_file(w, container, shards, count, name, &f, err);
	return rc ? rc : mfs_view_add(v, name, f, err);
}

int mfs_view_add_weights(struct mfs_view *v, const struct mfs_hf_weights *w,
			 const struct mfs_hf_container *container,
			 const struct mfs_view_options *options, struct mfs_error *err)
{
	const uint64_t limit = options->shard_size ? options->shard_size : MFS_SHARD_SIZE;
	struct mfs_hf_shard *shards;
	uint32_t count;
	int rc = mfs_hf_cut_shards(w, limit, &shards, &count, err);

	if (rc)
		return rc;
	rc = add_shards(v, w, container, shards, count, err);
	free(shards);
	v->tensor_count = w->count;
	return rc;
}
