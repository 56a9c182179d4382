#include "formats/dataset/rows/rows_vfile.h"

#include "formats/dataset/rows/elements.h"

/* A file part costs memory for as long as the file is there; runs are on average so many bytes, or the rest is
 * computed. */
#define RUN (256u << 10)
#define FEW 16 /* runs are no question of memory */

static int get_tokens(const void *object, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	return mfs_rows_read(object, first, count, ret, err);
}

int mfs_rows_read_bytes(const struct mfs_rows *r, uint64_t off, void *buf, size_t len,
			struct mfs_error *err)
{
	const struct mfs_elements tokens = {r->token_size, get_tokens, r};

	return mfs_elements_read(&tokens, off, buf, len, err);
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
