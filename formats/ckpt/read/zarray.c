#include "formats/ckpt/read/zarray.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/base/str.h"

/* Numpy's names. Megatron writes "bfloat16" in place of "<V2", two bytes of which numpy alone does
 * not know more. */
static const struct {
	const char *name;
	enum mfs_dtype dtype;
} types[] = {{"bfloat16", MFS_BF16}, {"<V2", MFS_BF16}, {"|V2", MFS_BF16}, {"<f2", MFS_F16},
	     {"<f4", MFS_F32},	     {"<f8", MFS_F64},	{"|b1", MFS_BOOL}, {"|u1", MFS_U8},
	     {"|i1", MFS_I8},	     {"<i2", MFS_I16},	{"<i4", MFS_I32},  {"<i8", MFS_I64}};

static int parse_dtype(const json_t *root, const char *name, struct mfs_zarray *a,
		       struct mfs_error *err)
{
	const char *dtype = json_string_value(json_object_get(root, "dtype"));

	for (size_t i = 0; dtype && i < MFS_ARRAY_SIZE(types); i++)
		if (!strcmp(types[i].name, dtype)) {
			a->dtype = types[i].dtype;
			return 0;
		}
	return mfs_fail(err, dtype ? -ENOTSUP : -EINVAL,
			"%s: dtype is '%.40s', expected bfloat16, <f4 or another of torch's types",
			name, dtype ? dtype : "");
}

static int parse_axes(const json_t *root, const char *key, const char *name, uint64_t *axes,
		      size_t *ret_count, struct mfs_error *err)
{
	const json_t *list = json_object_get(root, key);

	*ret_count = json_array_size(list);
	if (!json_is_array(list) || *ret_count > MFS_MAX_DIMS)
		return mfs_fail(err, -EINVAL, "%s: '%s' is not a list of at most %d sizes", name,
				key, MFS_MAX_DIMS);
	for (size_t i = 0; i < *ret_count; i++) {
		const json_t *axis = json_array_get(list, i);

		if (!json_is_integer(axis) || json_integer_value(axis) < 1)
			return mfs_fail(err, -EINVAL, "%s: '%s' has a size that is not positive",
					name, key);
		axes[i] = (uint64_t)json_integer_value(axis);
	}
	return 0;
}

static uint64_t steps(const struct mfs_zarray *a, unsigned axis)
{
	return (a->shape[axis] - 1) / a->chunk[axis] + 1;
}

static int measure(struct mfs_zarray *a, const char *name, struct mfs_error *err)
{
	uint64_t elements;

	a->chunks = 1;
	for (unsigned d = 0; d < a->ndim; d++)
		if (mfs_mul_overflows(a->chunks, steps(a, d), &a->chunks))
			return mfs_fail(err, -EINVAL, "%s: its grid overflows", name);
	if (!mfs_shape_count(a->shape, a->ndim, &elements) ||
	    mfs_mul_overflows(elements, mfs_dtype_size(a->dtype), &elements) ||
	    !mfs_shape_count(a->chunk, a->ndim, &elements) ||
	    mfs_mul_overflows(elements, mfs_dtype_size(a->dtype), &a->chunk_bytes))
		return mfs_fail(err, -EINVAL, "%s: its size overflows", name);
	return 0;
}

static int parse_shape(const json_t *root, const char *name, struct mfs_zarray *a,
		       struct mfs_error *err)
{
	size_t ndim, chunk_ndim = 0;
	int rc = parse_axes(root, "shape", name, a->shape, &ndim, err);

	if (!rc)
		rc = parse_axes(root, "chunks", name, a->chunk, &chunk_ndim, err);
	if (!rc && ndim != chunk_ndim)
		rc = mfs_fail(err, -EINVAL, "%s: shape has %zu axes, chunks have %zu", name, ndim,
			      chunk_ndim);
	a->ndim = (uint8_t)ndim;
	return rc ? rc : measure(a, name, err);
}

/* What a chunk's bytes have gone through. Megatron writes them as they are. */
static int check_plain(const json_t *root, const char *name, struct mfs_error *err)
{
	const json_t *compressor = json_object_get(root, "compressor");
	const json_t *filters = json_object_get(root, "filters");
	const json_t *separator = json_object_get(root, "dimension_separator");
	const char *id = json_string_value(json_object_get(compressor, "id"));

	if (compressor && !json_is_null(compressor))
		return mfs_fail(err, -ENOTSUP,
				"%s: its chunks are compressed (%.40s), expected as Megatron "
				"writes them, with compressor null",
				name, id ? id : "of no name");
	if (filters && !json_is_null(filters) && json_array_size(filters) + json_is_object(filters))
		return mfs_fail(err, -ENOTSUP, "%s: its chunks are filtered, expected filters null",
				name);
	if (!mfs_str_is(json_string_value(json_object_get(root, "order")), "C"))
		return mfs_fail(err, -ENOTSUP, "%s: order is not 'C' (row-major)", name);
	if (separator && !mfs_str_is(json_string_value(separator), "."))
		return mfs_fail(err, -ENOTSUP, "%s: dimension_separator is not '.'", name);
	return 0;
}

static int parse(const json_t *root, const char *name, struct mfs_zarray *a, struct mfs_error *err)
{
	const json_t *format = json_object_get(root, "zarr_format");
	int rc;

	if (!json_is_integer(format) || json_integer_value(format) != 2)
		return mfs_fail(err, json_is_object(root) && format ? -ENOTSUP : -EINVAL,
				"%s: zarr_format is not 2", name);
	rc = check_plain(root, name, err);
	if (!rc)
		rc = parse_dtype(root, name, a, err);
	return rc ? rc : parse_shape(root, name, a, err);
}

int mfs_zarray_parse(const void *text, size_t len, const char *name, struct mfs_zarray *ret,
		     struct mfs_error *err)
{
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	int rc;

	*ret = (struct mfs_zarray){0};
	rc = root ? parse(root, name, ret, err)
		  : mfs_fail(err, -EINVAL, "%s: it is not JSON (cut short?)", name);
	json_decref(root);
	return rc;
}

/* A number as zarr writes it: without a sign or leading zeros. */
static bool parse_step(const char **at, uint64_t *ret)
{
	const char *from = *at;
	uint64_t v = 0;

	while (**at >= '0' && **at <= '9') {
		if (mfs_mul_overflows(v, 10, &v) ||
		    mfs_add_overflows(v, (uint64_t)(**at - '0'), &v))
			return false;
		(*at)++;
	}
	*ret = v;
	return *at > from && (*from != '0' || *at == from + 1);
}

bool mfs_zarray_chunk(const struct mfs_zarray *a, const char *name, uint64_t *ret_lo,
		      uint64_t *ret_size)
{
	uint64_t step;

	if (!a->ndim)
		return !strcmp(name, "0");
	for (unsigned d = 0; d < a->ndim; d++) {
		if (d && *name++ != '.')
			return false;
		if (!parse_step(&name, &step) || step >= steps(a, d))
			return false;
		ret_lo[d] = step * a->chunk[d];
		ret_size[d] = mfs_min_u64(a->chunk[d], a->shape[d] - ret_lo[d]);
	}
	return !*name;
}
