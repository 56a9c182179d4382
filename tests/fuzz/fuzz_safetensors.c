#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/hf/safetensors.h"

/* Tensors without holes, in file order, filling the source. */
static void check_order(const struct mfs_safetensors *st, uint64_t len)
{
	uint64_t at = 0, count, bytes;

	for (uint32_t i = 0; i < st->count; i++) {
		const struct mfs_safetensors_tensor *t = &st->tensors[i];

		fuzz_require(t->begin == at && t->end >= t->begin && t->ndim <= MFS_MAX_DIMS);
		fuzz_require(mfs_shape_count(t->shape, t->ndim, &count));
		fuzz_require(!mfs_mul_overflows(count, mfs_dtype_size(t->dtype), &bytes));
		fuzz_require(bytes == t->end - t->begin);
		at = t->end;
	}
	fuzz_require(mfs_range_ok(st->data, at, len) && st->data + at == len);
}

static const struct mfs_safetensors_tensor *find(const struct mfs_safetensors *st, const char *name)
{
	for (uint32_t i = 0; i < st->count; i++)
		if (!strcmp(st->tensors[i].name, name))
			return &st->tensors[i];
	return NULL;
}

/* What our writer makes of these tensors reads back as the same tensors. */
static void check_rewritten(const struct mfs_safetensors *st)
{
	struct mfs_safetensors_tensor *copy = calloc(st->count + 1, sizeof(*copy));
	struct mfs_safetensors again;
	struct mfs_error err = {0};
	struct mfs_buf buf = {0};
	struct mfs_source src;
	uint64_t data = 0;

	fuzz_require(copy);
	if (st->count)
		memcpy(copy, st->tensors, st->count * sizeof(*copy));
	fuzz_require(mfs_safetensors_layout(copy, st->count, &err) == 0);
	mfs_safetensors_header(copy, st->count, &buf);
	fuzz_require(!buf.failed && buf.len % 8 == 0);
	for (uint32_t i = 0; i < st->count; i++)
		data = mfs_max_u64(data, copy[i].end);
	for (uint64_t i = 0; i < data && data < 1 << 20; i++)
		mfs_buf_add(&buf, "", 1);
	src = mfs_source_memory(buf.data, buf.len, "rewritten");
	if (data < 1 << 20) {
		fuzz_require(mfs_safetensors_open(&src, &again, &err) == 0);
		fuzz_require(again.count == st->count);
		for (uint32_t i = 0; i < again.count; i++) {
			const struct mfs_safetensors_tensor *t = find(st, again.tensors[i].name);

			fuzz_require(t && t->dtype == again.tensors[i].dtype &&
				     t->ndim == again.tensors[i].ndim);
			fuzz_require(!memcmp(t->shape, again.tensors[i].shape,
					     t->ndim * sizeof(*t->shape)));
		}
		mfs_safetensors_release(&again);
	}
	mfs_buf_release(&buf);
	free(copy);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct mfs_source src = mfs_source_memory(bytes, len, "input.safetensors");
	struct mfs_safetensors st;
	int rc = mfs_safetensors_open(&src, &st, err);

	if (rc)
		return rc;
	check_order(&st, len);
	if (st.count <= 64)
		check_rewritten(&st);
	mfs_safetensors_release(&st);
	return 0;
}

FUZZ_TARGET
