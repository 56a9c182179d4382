#include "formats/dataset/rows_vfile.h"

#include <string.h>

#include "formats/base/bytes.h"

/* A file part costs memory for as long as the file is there; runs are on average so many bytes, or the rest is
 * computed. */
#define RUN	(256u << 10)
#define FEW	16 /* runs are no question of memory */
#define BOUNCED 512

int mfs_rows_read_bytes(const struct mfs_rows *r, uint64_t off, void *buf, size_t len,
			struct mfs_error *err)
{
	const unsigned size = r->token_size;
	uint64_t bounced[BOUNCED];
	uint8_t *to = buf;
	size_t n;
	int rc = 0;

	for (; len && !rc; off += n, to += n, len -= n) {
		const size_t within = off % size;
		uint64_t tokens = len / size;

		n = tokens * size;
		if (n && !within && (uintptr_t)to % size == 0) {
			rc = mfs_rows_read(r, off / size, tokens, to, err);
			continue;
		}
		tokens = mfs_min_u64((within + len + size - 1) / size, sizeof(bounced) / size);
		n = mfs_min_u64(len, tokens * size - within);
		rc = mfs_rows_read(r, off / size, tokens, bounced, err);
		if (!rc)
			memcpy(to, (uint8_t *)bounced + within, n);
	}
	return rc;
}

static int computed_read(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	return mfs_rows_read_bytes(object, off, buf, len, err);
}

static const struct mfs_computed computed = {.read = computed_read};

int mfs_rows_add_tokens(const struct mfs_rows *r, uint64_t first, uint64_t count,
			struct mfs_vfile *f, struct mfs_error *err)
{
	uint64_t runs = FEW + count * r->token_size / RUN;
	struct mfs_bin_extent e;

	/* What keeps an extent from being known is said when the tokens are read. */
	for (; count && runs && !mfs_rows_extent(r, first, count, &e, NULL); runs--) {
		int rc = mfs_vfile_add_file(f, e.set, e.file, e.offset, e.len, err);

		if (rc)
			return rc;
		first += e.len / r->token_size;
		count -= e.len / r->token_size;
	}
	return count ? mfs_vfile_add_computed(f, &computed, (void *)r, first * r->token_size,
					      count * r->token_size, err)
		     : 0;
}
