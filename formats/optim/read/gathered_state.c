#include "formats/optim/read/gathered_state.h"

#include <errno.h>

/* The value under an integer key: there are a few buffers. */
static mfs_value numbered(const struct mfs_pickle *doc, mfs_value dict, uint32_t number)
{
	int64_t key;

	for (uint32_t i = 0; i < mfs_value_pairs(doc, dict); i++)
		if (mfs_value_int(doc, mfs_value_key(doc, dict, i), &key) && key == number)
			return mfs_value_item(doc, dict, i);
	return 0;
}

/* The type of a buffer's parameters: its key is (param dtype, grad dtype), or the first alone. */
static enum mfs_dtype dtype_of(const struct mfs_pickle *doc, mfs_value key)
{
	if (mfs_value_type(doc, key) == MFS_V_TUPLE)
		key = mfs_value_at(doc, key, 0);
	return mfs_torch_dtype(doc, key);
}

bool mfs_gathered_has_fp8(const struct mfs_pickle *doc, mfs_value state)
{
	for (uint32_t i = 0; i < mfs_value_pairs(doc, state); i++) {
		const mfs_value buffer = mfs_value_item(doc, state, i);

		if (mfs_value_pairs(doc, buffer) == 1 &&
		    dtype_of(doc, mfs_value_key(doc, buffer, 0)) == MFS_U8)
			return true;
	}
	return false;
}

int mfs_gathered_buffer(const struct mfs_pickle *doc, mfs_value state, uint32_t index,
			enum mfs_dtype dtype, const char *where, mfs_value *ret,
			struct mfs_error *err)
{
	mfs_value buffer = numbered(doc, state, index);
	enum mfs_dtype found;

	if (mfs_value_pairs(doc, buffer) != 1)
		return mfs_fail(err, -EINVAL, "%s: buffer %u: expected one element type, found %u",
				where, index, mfs_value_pairs(doc, buffer));
	found = dtype_of(doc, mfs_value_key(doc, buffer, 0));
	if (found != dtype)
		return mfs_fail(err, -EINVAL, "%s: buffer %u: expected parameters of %s, found %s",
				where, index, mfs_dtype_torch(dtype), mfs_dtype_torch(found));
	*ret = mfs_value_item(doc, buffer, 0);
	return 0;
}

int mfs_gathered_joined(const struct mfs_pickle *doc, mfs_value state, const char *where, bool *ret,
			struct mfs_error *err)
{
	*ret = false;
	mfs_value_bool(doc, mfs_value_get(doc, state, "buckets_coalesced"), ret);
	if (*ret || mfs_value_has(doc, state, "per_bucket_numel_unpadded"))
		return 0;
	return mfs_fail(err, -ENOTSUP,
			"%s: the layout from before 2024 is not read (Megatron converts it with "
			"--ckpt-convert-update-legacy-dist-opt-format)",
			where);
}

int mfs_gathered_tensor(const struct mfs_torch_file *f, mfs_value v, const char *where,
			struct mfs_torch_tensor *ret, struct mfs_error *err)
{
	int rc = mfs_torch_tensor(f, v, ret, err);

	if (rc) {
		mfs_fail_in(err, "%s", where);
		return rc;
	}
	if (ret->ndim != 1 || (ret->stride[0] != 1 && ret->shape[0] > 1))
		return mfs_fail(err, -EINVAL, "%s: a buffer is not a flat tensor", where);
	return 0;
}
