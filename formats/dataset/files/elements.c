#include "formats/dataset/files/elements.h"

#include <string.h>

#include "formats/base/bytes.h"

#define CHUNK 4096 /* elements that are copied at once, where they cannot be put in place */

/* Copies elements that cannot be computed in place: one that begins or ends outside of buf, or
 * ones for which buf is not aligned. Sets the number of bytes that were written. */
static int copy_some(const struct mfs_elements *e, uint64_t off, uint8_t *buf, size_t len,
		     size_t *ret_len, struct mfs_error *err)
{
	const uint64_t skip = off % e->size;
	const uint64_t count = mfs_min_u64(CHUNK, (skip + len + e->size - 1) / e->size);
	uint64_t chunk[CHUNK];
	int rc = e->get(e->object, off / e->size, count, chunk, err);

	if (rc)
		return rc;
	*ret_len = mfs_min_u64(len, count * e->size - skip);
	memcpy(buf, (uint8_t *)chunk + skip, *ret_len);
	return 0;
}

int mfs_elements_read(const struct mfs_elements *e, uint64_t off, void *buf, size_t len,
		      struct mfs_error *err)
{
	uint8_t *to = buf;
	int rc = 0;

	for (size_t n; len && !rc; off += n, to += n, len -= n) {
		const uint64_t whole = len / e->size;

		if (whole && off % e->size == 0 && (uintptr_t)to % e->size == 0) {
			n = whole * e->size;
			rc = e->get(e->object, off / e->size, whole, to, err);
		} else {
			rc = copy_some(e, off, to, len, &n, err);
		}
		if (rc)
			return rc;
	}
	return rc;
}

static int read_computed(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	return mfs_elements_read(object, off, buf, len, err);
}

const struct mfs_computed_ops mfs_elements_computed = {.read = read_computed};
