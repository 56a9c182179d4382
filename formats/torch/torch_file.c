#include "formats/torch/torch_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "formats/base/bytes.h"
#include "formats/torch/torch_stream.h"

#define MAX_WRAPPERS 4 /* Parameter around from_type around a tensor: never more in practice */

/* Entry "PREFIX/name", where PREFIX is the archive's one top directory. */
static const struct mfs_zip_entry *record(const struct mfs_torch_file *f, const char *prefix,
					  size_t prefix_len, const char *name)
{
	char path[512];

	if ((size_t)snprintf(path, sizeof(path), "%.*s/%s", (int)prefix_len, prefix, name) >=
	    sizeof(path))
		return NULL;
	return mfs_zip_find(&f->zip, path);
}

const struct mfs_zip_entry *mfs_torch_file_record(const struct mfs_torch_file *f, const char *name)
{
	const char *first = f->zip.entries[0].name;

	return record(f, first, strcspn(first, "/"), name);
}

/* The pickle says which bytes are which tensor, so a flipped bit in it must not pass unnoticed. */
static int check_crc(const struct mfs_torch_file *f, const struct mfs_zip_entry *e,
		     const void *bytes, struct mfs_error *err)
{
	const uint32_t crc = (uint32_t)crc32_z(0, bytes, e->size);
	const char *slash = strchr(e->name, '/');

	if (!e->crc || e->crc == crc)
		return 0;
	return mfs_fail(err, -EINVAL, "%s: damaged: %s has CRC-32 %08x, expected %08x",
			f->zip.src.name, slash ? slash + 1 : e->name, crc, e->crc);
}

const struct mfs_zip_entry *mfs_torch_file_storage(const struct mfs_torch_file *f, const char *key,
						   size_t key_len)
{
	char name[96];

	if (key_len > 64 || memchr(key, 0, key_len))
		return NULL;
	snprintf(name, sizeof(name), "data/%.*s", (int)key_len, key);
	return mfs_torch_file_record(f, name);
}

int mfs_torch_file_read(const struct mfs_torch_file *f, const struct mfs_zip_entry *e,
			struct mfs_arena *arena, void **ret, struct mfs_error *err)
{
	uint64_t at;
	void *bytes = mfs_arena_alloc(arena, e->size + 1); /* also of nothing */
	int rc;

	if (!bytes)
		return mfs_fail_nomem(err);
	rc = mfs_zip_locate(&f->zip.src, e, &at, err);
	if (!rc)
		rc = mfs_source_read(&f->zip.src, at, bytes, e->size, err);
	if (!rc)
		rc = check_crc(f, e, bytes, err);
	if (rc)
		return rc;
	*ret = bytes;
	return 0;
}

/* torch takes the prefix from the first record; any record will do, since all must share it. */
static int find_prefix(const struct mfs_torch_file *f, const char **ret, size_t *ret_len,
		       struct mfs_error *err)
{
	const struct mfs_zip *zip = &f->zip;
	const char *first = zip->count ? zip->entries[0].name : "";
	const char *slash = strchr(first, '/');
	size_t len = slash ? (size_t)(slash - first) : 0;

	for (uint32_t i = 0; i < zip->count; i++)
		if (!slash || strncmp(zip->entries[i].name, first, len + 1))
			return mfs_fail(
				err, -EINVAL,
				"%s: not a torch.save archive: entry '%s' is outside '%.*s/'",
				zip->src.name, zip->entries[i].name, (int)len, first);
	if (!zip->count || !record(f, first, len, "data.pkl"))
		return mfs_fail(err, -EINVAL, "%s: not a torch.save archive: no data.pkl",
				zip->src.name);
	*ret = first;
	*ret_len = len;
	return 0;
}

static int check_kind(const struct mfs_torch_file *f, const char *prefix, size_t len,
		      struct mfs_error *err)
{
	const struct mfs_zip_entry *order = record(f, prefix, len, "byteorder");
	char text[8] = "";
	uint64_t at;
	int rc;

	if (record(f, prefix, len, "constants.pkl"))
		return mfs_fail(err, -ENOTSUP, "%s: a TorchScript archive, not a checkpoint",
				f->zip.src.name);
	if (!order)
		return 0;
	rc = mfs_zip_locate(&f->zip.src, order, &at, err);
	if (!rc)
		rc = mfs_source_read(&f->zip.src, at, text, mfs_min_u64(order->size, 6), err);
	if (!rc && strcmp(text, "little"))
		return mfs_fail(err, -ENOTSUP, "%s: written on a big-endian machine ('%s')",
				f->zip.src.name, text);
	return rc;
}

static int read_pickle(struct mfs_torch_file *f, const struct mfs_zip_entry *e,
		       struct mfs_error *err)
{
	uint64_t at;
	int rc;

	rc = mfs_zip_locate(&f->zip.src, e, &at, err);
	if (!rc)
		rc = mfs_source_slurp(&f->zip.src, at, e->size, &f->pickle_bytes, err);
	if (!rc)
		rc = check_crc(f, e, f->pickle_bytes, err);
	if (!rc)
		rc = mfs_pickle_parse(f->pickle_bytes, e->size, f->zip.src.name, NULL, &f->doc,
				      err);
	return rc;
}

int mfs_torch_file_open(const struct mfs_source *src, struct mfs_torch_file *ret,
			struct mfs_error *err)
{
	struct mfs_torch_file f = {0};
	const char *prefix;
	size_t len;
	int rc;

	if (mfs_torch_is_stream(src)) {
		rc = mfs_torch_stream_open(src, &f.zip, &f.pickle_bytes, &f.doc, err);
		if (!rc)
			*ret = f;
		return rc;
	}
	rc = mfs_zip_open(src, &f.zip, err);
	if (rc)
		return rc;
	rc = find_prefix(&f, &prefix, &len, err);
	if (!rc)
		rc = check_kind(&f, prefix, len, err);
	if (!rc)
		rc = read_pickle(&f, record(&f, prefix, len, "data.pkl"), err);
	if (rc) {
		mfs_torch_file_release(&f);
		return rc;
	}
	*ret = f;
	return 0;
}

void mfs_torch_file_release(struct mfs_torch_file *f)
{
	mfs_pickle_free(f->doc);
	free(f->pickle_bytes);
	mfs_zip_release(&f->zip);
	*f = (struct mfs_torch_file){0};
}

/* A call as it will be made after wrappers are taken off. */
struct rebuild {
	mfs_value callable, args;
};

/* Parameter(data), _rebuild_parameter(data, ...), _rebuild_from_type_v2(func, type, args,
 * state). */
static struct rebuild unwrap(const struct mfs_pickle *doc, mfs_value v)
{
	struct rebuild r = {mfs_value_callable(doc, v), mfs_value_args(doc, v)};

	for (int i = 0; i < MAX_WRAPPERS; i++) {
		if (mfs_value_is_global(doc, r.callable, "torch._utils", "_rebuild_parameter") ||
		    mfs_value_is_global(doc, r.callable, "torch._utils",
					"_rebuild_parameter_with_state") ||
		    mfs_value_is_global(doc, r.callable, "torch.nn.parameter", "Parameter")) {
			mfs_value data = mfs_value_at(doc, r.args, 0);

			r = (struct rebuild){mfs_value_callable(doc, data),
					     mfs_value_args(doc, data)};
		} else if (mfs_value_is_global(doc, r.callable, "torch._tensor",
					       "_rebuild_from_type_v2") ||
			   mfs_value_is_global(doc, r.callable, "torch._tensor",
					       "_rebuild_from_type")) {
			mfs_value args = r.args;

			r = (struct rebuild){mfs_value_at(doc, args, 0),
					     mfs_value_at(doc, args, 2)};
		} else {
			break;
		}
	}
	return r;
}

enum rebuild_kind { NOT_A_TENSOR, TENSOR_V1, TENSOR_V2, TENSOR_V3, TENSOR_OTHER };

static enum rebuild_kind kind_of(const struct mfs_pickle *doc, mfs_value callable)
{
	size_t len;
	const char *name = mfs_value_class(doc, callable, &len);

	if (mfs_value_is_global(doc, callable, "torch._utils", "_rebuild_tensor"))
		return TENSOR_V1;
	if (mfs_value_is_global(doc, callable, "torch._utils", "_rebuild_tensor_v2"))
		return TENSOR_V2;
	if (mfs_value_is_global(doc, callable, "torch._utils", "_rebuild_tensor_v3"))
		return TENSOR_V3;
	return len > 9 && !memcmp(name, "_rebuild_", 9) ? TENSOR_OTHER : NOT_A_TENSOR;
}

bool mfs_torch_is_tensor(const struct mfs_torch_file *f, mfs_value v)
{
	struct rebuild r = unwrap(f->doc, v);

	return kind_of(f->doc, r.callable) != NOT_A_TENSOR;
}

static int read_dims(const struct mfs_pickle *doc, const char *name, mfs_value dims, uint64_t *ret,
		     uint32_t count, struct mfs_error *err)
{
	for (uint32_t i = 0; i < count; i++) {
		int64_t v;

		if (!mfs_value_int(doc, mfs_value_at(doc, dims, i), &v) || v < 0)
			return mfs_fail(err, -EINVAL,
					"%s: a tensor's size or stride is not a natural number",
					name);
		ret[i] = (uint64_t)v;
	}
	return 0;
}

/* ('storage', class, key, location, numel): finds the record and checks its size. */
static int read_storage(const struct mfs_torch_file *f, mfs_value storage, enum mfs_dtype dtype,
			struct mfs_torch_tensor *t, uint64_t *ret_numel, struct mfs_error *err)
{
	const struct mfs_pickle *doc = f->doc;
	mfs_value id = mfs_value_persid(doc, storage);
	const char *name, *key;
	size_t name_len, key_len;
	char class_name[64];
	uint64_t bytes;
	int64_t numel;

	name = mfs_value_class(doc, mfs_value_at(doc, id, 1), &name_len);
	if (!mfs_value_is_str(doc, mfs_value_at(doc, id, 0), "storage") ||
	    !mfs_value_str(doc, mfs_value_at(doc, id, 2), &key, &key_len) ||
	    !mfs_value_int(doc, mfs_value_at(doc, id, 4), &numel) || numel < 0)
		return mfs_fail(err, -EINVAL, "%s: a tensor without a storage", f->zip.src.name);
	snprintf(class_name, sizeof(class_name), "%.*s", (int)mfs_min_u64(name_len, 63), name);
	t->record = mfs_torch_file_storage(f, key, key_len);
	if (!t->record)
		return mfs_fail(err, -EINVAL, "%s: record 'data/%.*s' of a tensor is missing",
				f->zip.src.name, (int)mfs_min_u64(key_len, 48), key);
	if (!strcmp(class_name, "UntypedStorage")) {
		t->dtype = dtype;
		bytes = (uint64_t)numel; /* an untyped storage counts bytes */
		numel = dtype ? numel / mfs_dtype_size(dtype) : 0;
	} else {
		t->dtype = mfs_dtype_from_storage(class_name);
		if (mfs_mul_overflows((uint64_t)numel, mfs_dtype_size(t->dtype), &bytes))
			bytes = UINT64_MAX;
	}
	if (!t->dtype)
		return mfs_fail(err, -ENOTSUP, "%s: tensor of unsupported element type (%s)",
				f->zip.src.name, class_name);
	if (bytes != t->record->size)
		return mfs_fail(err, -EINVAL,
				"%s: record 'data/%.*s': expected %llu bytes, found %llu",
				f->zip.src.name, (int)key_len, key, (unsigned long long)bytes,
				(unsigned long long)t->record->size);
	*ret_numel = (uint64_t)numel;
	return 0;
}

mfs_value mfs_torch_size(const struct mfs_pickle *doc, mfs_value v)
{
	if (mfs_value_is_object_of(doc, v, "Size"))
		return mfs_value_at(doc, mfs_value_args(doc, v), 0);
	return v;
}

enum mfs_dtype mfs_torch_dtype(const struct mfs_pickle *doc, mfs_value v)
{
	char name[64];
	size_t len;
	const char *text = mfs_value_class(doc, v, &len);

	snprintf(name, sizeof(name), "%.*s", (int)mfs_min_u64(len, sizeof(name) - 1), text);
	return mfs_dtype_from_torch(name);
}

/* The last element that a tensor touches must lie in its storage. */
static bool view_fits(const struct mfs_torch_tensor *t, uint64_t numel)
{
	uint64_t last = t->offset, reach;

	for (unsigned i = 0; i < t->ndim; i++) {
		if (!t->shape[i])
			return true;
		if (mfs_mul_overflows(t->shape[i] - 1, t->stride[i], &reach) ||
		    mfs_add_overflows(last, reach, &last))
			return false;
	}
	return last < numel;
}

int mfs_torch_view(const struct mfs_pickle *doc, const char *name, mfs_value v,
		   struct mfs_torch_view *ret, struct mfs_error *err)
{
	struct rebuild r = unwrap(doc, v);
	enum rebuild_kind kind = kind_of(doc, r.callable);
	struct mfs_torch_tensor t = {0};
	int64_t offset;
	mfs_value size = mfs_torch_size(doc, mfs_value_at(doc, r.args, 2));
	mfs_value stride = mfs_torch_size(doc, mfs_value_at(doc, r.args, 3));
	uint32_t ndim = mfs_value_count(doc, size);
	int rc;

	if (kind == NOT_A_TENSOR || kind == TENSOR_OTHER)
		return mfs_fail(err, -ENOTSUP, "%s: not a plain strided tensor", name);
	if (ndim > MFS_MAX_DIMS || mfs_value_count(doc, stride) != ndim)
		return mfs_fail(err, -EINVAL, "%s: a tensor with %u axes and %u strides", name,
				ndim, mfs_value_count(doc, stride));
	if (kind == TENSOR_V3)
		t.dtype = mfs_torch_dtype(doc, mfs_value_at(doc, r.args, 6));
	t.ndim = (uint8_t)ndim;
	rc = read_dims(doc, name, size, t.shape, ndim, err);
	if (!rc)
		rc = read_dims(doc, name, stride, t.stride, ndim, err);
	if (rc)
		return rc;
	if (!mfs_value_int(doc, mfs_value_at(doc, r.args, 1), &offset) || offset < 0)
		return mfs_fail(err, -EINVAL, "%s: a tensor's offset is not a natural number",
				name);
	t.offset = (uint64_t)offset;
	*ret = (struct mfs_torch_view){.tensor = t, .storage = mfs_value_at(doc, r.args, 0)};
	return 0;
}

int mfs_torch_view_over(const struct mfs_torch_file *f, mfs_value storage,
			const struct mfs_torch_view *view, struct mfs_torch_tensor *ret,
			struct mfs_error *err)
{
	struct mfs_torch_tensor t = view->tensor;
	uint64_t numel = 0, count;
	int rc = read_storage(f, storage, view->tensor.dtype, &t, &numel, err);

	if (rc)
		return rc;
	/* It has more elements than its storage: it is expanded, or overlaps itself. No weight
	 * does. */
	if (!mfs_shape_count(t.shape, t.ndim, &count) || count > numel || !view_fits(&t, numel))
		return mfs_fail(err, -EINVAL, "%s: a tensor reaches beyond its record '%s'",
				f->zip.src.name, t.record->name);
	*ret = t;
	return 0;
}

int mfs_torch_tensor(const struct mfs_torch_file *f, mfs_value v, struct mfs_torch_tensor *ret,
		     struct mfs_error *err)
{
	struct mfs_torch_view view;
	int rc = mfs_torch_view(f->doc, f->zip.src.name, v, &view, err);

	return rc ? rc : mfs_torch_view_over(f, view.storage, &view, ret, err);
}
