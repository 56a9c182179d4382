#include "formats/hf/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"

/* ---- writing ---- */

/* Dtype rank descending, then name: the reference writer's order, which keeps every tensor
 * aligned. */
static int by_reference_order(const void *a, const void *b)
{
	const struct mfs_safetensors_tensor *x = a, *y = b;

	if (x->dtype != y->dtype)
		return x->dtype > y->dtype ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int tensor_bytes(const struct mfs_safetensors_tensor *t, uint64_t *ret)
{
	uint64_t count;

	return mfs_shape_count(t->shape, t->ndim, &count) &&
			       !mfs_mul_overflows(count, mfs_dtype_size(t->dtype), ret)
		       ? 0
		       : -EINVAL;
}

int mfs_safetensors_layout(struct mfs_safetensors_tensor *tensors, uint32_t count,
			   struct mfs_error *err)
{
	uint64_t at = 0, bytes;

	if (count)
		qsort(tensors, count, sizeof(*tensors), by_reference_order);
	for (uint32_t i = 0; i < count; i++) {
		tensors[i].begin = at;
		if (tensor_bytes(&tensors[i], &bytes) || mfs_add_overflows(at, bytes, &at))
			return mfs_fail(err, -EINVAL, "tensor '%s': its size overflows",
					tensors[i].name);
		tensors[i].end = at;
	}
	return 0;
}

static void add_tensor(const struct mfs_safetensors_tensor *t, struct mfs_buf *out)
{
	mfs_buf_adds(out, ",");
	mfs_buf_add_json(out, t->name);
	mfs_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", mfs_dtype_name(t->dtype));
	for (unsigned d = 0; d < t->ndim; d++)
		mfs_buf_printf(out, "%s%llu", d ? "," : "", (unsigned long long)t->shape[d]);
	mfs_buf_printf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->begin,
		       (unsigned long long)t->end);
}

void mfs_safetensors_header(const struct mfs_safetensors_tensor *tensors, uint32_t count,
			    struct mfs_buf *out)
{
	const size_t start = out->len;
	uint8_t length[8] = {0};

	mfs_buf_add(out, length, sizeof(length));
	mfs_buf_adds(out, "{\"__metadata__\":{\"format\":\"pt\"}");
	for (uint32_t i = 0; i < count; i++)
		add_tensor(&tensors[i], out);
	mfs_buf_adds(out, "}");
	while (!out->failed && (out->len - start) % 8)
		mfs_buf_adds(out, " ");
	if (!out->failed)
		mfs_put_le64(out->data + start, out->len - start - sizeof(length));
}

/* ---- reading ---- */

static bool natural(const json_t *v, uint64_t *ret)
{
	if (!json_is_integer(v) || json_integer_value(v) < 0)
		return false;
	*ret = (uint64_t)json_integer_value(v);
	return true;
}

static int bad_tensor(const struct mfs_source *src, const char *name, const char *what,
		      struct mfs_error *err)
{
	return mfs_fail(err, -EINVAL, "%s: tensor '%s': %s", src->name, name, what);
}

static int read_tensor(const struct mfs_source *src, const json_t *v,
		       struct mfs_safetensors_tensor *t, struct mfs_error *err)
{
	const char *dtype = json_string_value(json_object_get(v, "dtype"));
	const json_t *shape = json_object_get(v, "shape");
	const json_t *offsets = json_object_get(v, "data_offsets");
	uint64_t bytes;

	if (!dtype || !json_is_array(shape) || json_array_size(offsets) != 2 ||
	    !natural(json_array_get(offsets, 0), &t->begin) ||
	    !natural(json_array_get(offsets, 1), &t->end) || t->begin > t->end)
		return bad_tensor(src, t->name, "dtype, shape or data_offsets is missing", err);
	t->dtype = mfs_dtype_from_safetensors(dtype);
	if (!t->dtype)
		return mfs_fail(err, -ENOTSUP, "%s: tensor '%s': unsupported dtype '%.20s'",
				src->name, t->name, dtype);
	if (json_array_size(shape) > MFS_MAX_DIMS)
		return bad_tensor(src, t->name, "more than 8 axes", err);
	t->ndim = (uint8_t)json_array_size(shape);
	for (unsigned d = 0; d < t->ndim; d++)
		if (!natural(json_array_get(shape, d), &t->shape[d]))
			return bad_tensor(src, t->name, "a size is not a natural number", err);
	if (tensor_bytes(t, &bytes) || bytes != t->end - t->begin)
		return bad_tensor(src, t->name, "its shape and its data_offsets disagree", err);
	return 0;
}

static int by_begin(const void *a, const void *b)
{
	const struct mfs_safetensors_tensor *x = a, *y = b;

	if (x->begin != y->begin)
		return x->begin < y->begin ? -1 : 1;
	return (x->end > y->end) - (x->end < y->end);
}

/* The reference refuses holes, overlaps and trailing bytes alike. */
static int check_tiling(const struct mfs_source *src, struct mfs_safetensors *st,
			struct mfs_error *err)
{
	uint64_t at = 0;

	if (st->count)
		qsort(st->tensors, st->count, sizeof(*st->tensors), by_begin);
	for (uint32_t i = 0; i < st->count; i++) {
		if (st->tensors[i].begin != at)
			return bad_tensor(src, st->tensors[i].name,
					  "there is a hole or an overlap in front of it", err);
		at = st->tensors[i].end;
	}
	if (at != src->size - st->data)
		return mfs_fail(err, -EINVAL, "%s: expected %llu bytes of tensors, found %llu",
				src->name, (unsigned long long)at,
				(unsigned long long)(src->size - st->data));
	return 0;
}

static int read_metadata(const struct mfs_source *src, json_t *metadata, struct mfs_safetensors *st,
			 struct mfs_error *err)
{
	const char *key;
	json_t *v;

	if (!json_is_object(metadata))
		return mfs_fail(err, -EINVAL, "%s: __metadata__ is not an object", src->name);
	st->metadata =
		mfs_arena_array(&st->arena, json_object_size(metadata) + 1, sizeof(*st->metadata));
	if (!st->metadata)
		return mfs_fail_nomem(err);
	json_object_foreach(metadata, key, v)
	{
		struct mfs_safetensors_text *t = &st->metadata[st->metadata_count++];

		if (!json_is_string(v))
			return mfs_fail(err, -EINVAL, "%s: __metadata__ '%s' is not a string",
					src->name, key);
		t->key = mfs_arena_strndup(&st->arena, key, strlen(key));
		t->value =
			mfs_arena_strndup(&st->arena, json_string_value(v), json_string_length(v));
		if (!t->key || !t->value)
			return mfs_fail_nomem(err);
	}
	return 0;
}

static int read_tensors(const struct mfs_source *src, json_t *header, struct mfs_safetensors *st,
			struct mfs_error *err)
{
	const char *name;
	json_t *v;
	int rc = 0;

	st->tensors = mfs_arena_array(&st->arena, json_object_size(header), sizeof(*st->tensors));
	if (!st->tensors)
		return mfs_fail_nomem(err);
	json_object_foreach(header, name, v)
	{
		struct mfs_safetensors_tensor *t = &st->tensors[st->count];

		if (!strcmp(name, "__metadata__")) {
			rc = read_metadata(src, v, st, err);
		} else {
			t->name = mfs_arena_strndup(&st->arena, name, strlen(name));
			rc = t->name ? read_tensor(src, v, t, err) : mfs_fail_nomem(err);
			st->count++;
		}
		if (rc)
			return rc;
	}
	return check_tiling(src, st, err);
}

static int read_header(const struct mfs_source *src, json_t **ret, uint64_t *ret_data,
		       struct mfs_error *err)
{
	uint8_t length[8];
	json_error_t why;
	uint64_t len;
	void *text;
	int rc = mfs_source_read(src, 0, length, sizeof(length), err);

	if (rc)
		return rc;
	len = mfs_le64(length);
	if (len > MFS_SAFETENSORS_MAX_HEADER || len > src->size - sizeof(length))
		return mfs_fail(err, -EINVAL, "%s: its header cannot have %llu bytes", src->name,
				(unsigned long long)len);
	rc = mfs_source_slurp(src, sizeof(length), len, &text, err);
	if (rc)
		return rc;
	*ret = len && *(char *)text == '{' ? json_loadb(text, len, JSON_REJECT_DUPLICATES, &why)
					   : NULL;
	free(text);
	if (!json_is_object(*ret))
		return mfs_fail(err, -EINVAL, "%s: its header is not a JSON object", src->name);
	*ret_data = sizeof(length) + len;
	return 0;
}

int mfs_safetensors_open(const struct mfs_source *src, struct mfs_safetensors *ret,
			 struct mfs_error *err)
{
	struct mfs_safetensors st = {0};
	json_t *header = NULL;
	int rc = read_header(src, &header, &st.data, err);

	if (!rc)
		rc = read_tensors(src, header, &st, err);
	json_decref(header);
	if (rc) {
		mfs_safetensors_release(&st);
		return rc;
	}
	*ret = st;
	return 0;
}

void mfs_safetensors_release(struct mfs_safetensors *st)
{
	mfs_arena_release(&st->arena);
	*st = (struct mfs_safetensors){0};
}
