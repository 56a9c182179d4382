/* Input: a `.zarray`, and after its first NUL names of files in its directory, each ended by a
 * NUL. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/read/zarray.h"

/* A chunk's box lies in the array and fits its file, and is not empty. */
static void check_chunk(const struct mfs_zarray *a, const char *name)
{
	uint64_t lo[MFS_MAX_DIMS], size[MFS_MAX_DIMS], elements;

	if (!mfs_zarray_chunk(a, name, lo, size))
		return;
	for (unsigned d = 0; d < a->ndim; d++) {
		fuzz_require(size[d] && size[d] <= a->chunk[d]);
		fuzz_require(mfs_range_ok(lo[d], size[d], a->shape[d]));
	}
	fuzz_require(mfs_shape_count(size, a->ndim, &elements));
	fuzz_require(elements * mfs_dtype_size(a->dtype) <= a->chunk_bytes);
}

int fuzz_one(const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	const uint8_t *end = memchr(bytes, 0, len);
	const size_t text = end ? (size_t)(end - bytes) : len;
	struct mfs_zarray a;
	int rc = mfs_zarray_parse(bytes, text, "input", &a, err);

	if (rc)
		return rc;
	fuzz_require(a.dtype && a.ndim <= MFS_MAX_DIMS && a.chunks && a.chunk_bytes);
	check_chunk(&a, "0");
	check_chunk(&a, "0.0.0");
	for (size_t at = text + 1; at < len;) {
		const uint8_t *stop = memchr(bytes + at, 0, len - at);

		if (!stop)
			break;
		check_chunk(&a, (const char *)bytes + at);
		at = (size_t)(stop - bytes) + 1;
	}
	return 0;
}

FUZZ_TARGET
