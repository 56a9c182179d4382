#include "formats/megatron/write/dist_archive.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/megatron/write/copy_values.h"

void mfs_dist_archive_begin(struct mfs_dist_archive *a)
{
	*a = (struct mfs_dist_archive){0};
	mfs_pickle_begin(&a->w, &a->pickle, 2);
}

int mfs_dist_archive_end(struct mfs_dist_archive *a, const char *prefix, int rc,
			 struct mfs_buf *out, struct mfs_error *err)
{
	if (rc)
		mfs_pickle_abandon(&a->w);
	else
		rc = mfs_pickle_end(&a->w, err);
	if (!rc)
		rc = mfs_torch_save(prefix, a->pickle.data, a->pickle.len, a->payloads, a->count,
				    out, err);
	mfs_buf_release(&a->pickle);
	free(a->payloads);
	mfs_arena_release(&a->arena);
	return rc;
}

/* bytes lie in the arena. */
static int add_storage(struct mfs_dist_archive *a, const void *bytes, uint64_t size, uint32_t *ret,
		       struct mfs_error *err)
{
	if (mfs_grow(&a->payloads, a->count))
		return mfs_fail_nomem(err);
	a->payloads[a->count] = (struct mfs_torch_payload){size, bytes};
	*ret = a->count++;
	return 0;
}

int mfs_dist_archive_bytes(struct mfs_dist_archive *a, const void *bytes, uint64_t size,
			   struct mfs_error *err)
{
	void *copy = mfs_arena_alloc(&a->arena, size);
	uint32_t storage;
	int rc;

	if (!copy)
		return mfs_fail_nomem(err);
	memcpy(copy, bytes, size);
	rc = add_storage(a, copy, size, &storage, err);
	if (!rc)
		mfs_pickle_tensor(&a->w, storage, MFS_U8, &size, 1);
	return rc;
}

static int add_number(struct mfs_dist_archive *a, float value, unsigned ndim, struct mfs_error *err)
{
	static const uint64_t one[] = {1};
	float *bytes = mfs_arena_alloc(&a->arena, sizeof(*bytes));
	uint32_t storage;
	int rc;

	if (!bytes)
		return mfs_fail_nomem(err);
	*bytes = value;
	rc = add_storage(a, bytes, sizeof(*bytes), &storage, err);
	if (rc)
		return rc;
	mfs_pickle_tensor(&a->w, storage, MFS_F32, one, ndim);
	return 0;
}

int mfs_dist_archive_scalar(struct mfs_dist_archive *a, float value, struct mfs_error *err)
{
	return add_number(a, value, 0, err);
}

int mfs_dist_archive_number(struct mfs_dist_archive *a, float value, struct mfs_error *err)
{
	return add_number(a, value, 1, err);
}

static int add_copied(void *arg, const void *bytes, uint64_t size, uint32_t *ret,
		      struct mfs_error *err)
{
	return add_storage(arg, bytes, size, ret, err);
}

int mfs_dist_archive_copy(struct mfs_dist_archive *a, const struct mfs_torch_file *src,
			  mfs_value value, struct mfs_error *err)
{
	const struct mfs_copy_sink to = {
		.w = &a->w, .arena = &a->arena, .add = add_copied, .arg = a};

	return mfs_copy_value(&to, src, value, err);
}
