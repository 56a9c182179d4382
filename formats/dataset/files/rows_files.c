#include "formats/dataset/files/rows_files.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/dataset/files/elements.h"
#include "formats/dataset/files/idx_image.h"
#include "formats/dataset/files/npy.h"

/* ---- tokens ---- */

/* A part of a file costs memory as long as the file is there. Extents have so many bytes on
 * average, or the rest is computed. */
#define EXTENT (256u << 10)
#define FEW    16 /* extents are no question of memory */

static int get_tokens(const void *object, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	return mfs_rows_read(object, first, count, ret, err);
}

static int read_tokens(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	const struct mfs_rows *r = object;
	const struct mfs_elements tokens = {r->token_size, get_tokens, r};

	return mfs_elements_read(&tokens, off, buf, len, err);
}

static const struct mfs_computed_ops computed_tokens = {.read = read_tokens};

int mfs_rows_add_tokens(const struct mfs_rows *r, uint64_t first, uint64_t count,
			struct mfs_vfile *f, struct mfs_error *err)
{
	uint64_t extents = FEW + count * r->token_size / EXTENT;
	struct mfs_bin_extent e;

	/* The error that explains why an extent is not known is reported when the tokens are
	 * read. */
	for (; count && extents && !mfs_rows_extent(r, first, count, &e, NULL); extents--) {
		int rc = mfs_vfile_add_file(f, e.set, e.file, e.offset, e.len, err);

		if (rc)
			return rc;
		first += e.len / r->token_size;
		count -= e.len / r->token_size;
	}
	return count ? mfs_vfile_add_computed(f, &computed_tokens, (void *)r, first * r->token_size,
					      count * r->token_size, err)
		     : 0;
}

/* A file of all tokens, the parts of which are made when it is read. */
struct tokens {
	const struct mfs_rows *rows;
	size_t header_len; /* 0: there is none */
	uint8_t header[MFS_NPY_HEADER_MAX];
};

static int build_tokens(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	const struct tokens *t = arg;
	int rc = t->header_len ? mfs_vfile_add_shared(parts, t->header, t->header_len, err) : 0;

	return rc ? rc : mfs_rows_add_tokens(t->rows, 0, t->rows->tokens, parts, err);
}

static int new_tokens(const struct mfs_rows *rows, bool header, struct mfs_vfile **ret,
		      struct mfs_error *err)
{
	struct tokens *t;
	uint64_t size;
	int rc;

	if (mfs_mul_overflows(rows->tokens, rows->token_size, &size) || size > INT64_MAX / 2)
		return mfs_fail(err, -EINVAL, "%s: %llu tokens are too large for a file",
				rows->name, (unsigned long long)rows->tokens);
	t = calloc(1, sizeof(*t));
	if (!t)
		return mfs_fail_nomem(err);
	t->rows = rows;
	if (header)
		t->header_len = mfs_npy_header(rows->dtype, &rows->tokens, 1, t->header);
	rc = mfs_vfile_new_lazy(t->header_len + size, build_tokens, t, ret, err);
	if (rc)
		free(t);
	else
		mfs_vfile_keep(*ret, t, free);
	return rc;
}

int mfs_npy_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	return new_tokens(rows, true, ret, err);
}

int mfs_raw_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	return new_tokens(rows, false, ret, err);
}

/* ---- what is computed ---- */

/* Of rows, or of an indexed dataset. */
struct array {
	struct mfs_elements elements;
	const void *of;
	size_t column;
};

static int get_offsets(const void *object, uint64_t first, uint64_t count, void *ret,
		       struct mfs_error *err)
{
	return mfs_rows_starts(((const struct array *)object)->of, first, count, ret, err);
}

static int get_column(const void *object, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct array *a = object;

	return mfs_rows_column(a->of, a->column, first, count, ret, err);
}

static int get_documents(const void *object, uint64_t first, uint64_t count, void *ret,
			 struct mfs_error *err)
{
	return mfs_idx_image_read_documents(((const struct array *)object)->of, first, count, ret,
					    err);
}

static int new_array(const struct array *what, enum mfs_dtype dtype, uint64_t count,
		     struct mfs_vfile **ret, struct mfs_error *err)
{
	struct array *a = malloc(sizeof(*a));
	int rc;

	if (!a)
		return mfs_fail_nomem(err);
	*a = *what;
	a->elements.size = mfs_dtype_size(dtype);
	a->elements.object = a;
	rc = mfs_npy_file(dtype, &count, 1, &mfs_elements_computed, &a->elements, ret, err);
	if (rc)
		free(a);
	else
		mfs_vfile_keep(*ret, a, free);
	return rc;
}

int mfs_npy_offsets(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	return new_array(&(struct array){{.get = get_offsets}, rows, 0}, MFS_I64, rows->rows + 1,
			 ret, err);
}

int mfs_npy_column(const struct mfs_rows *rows, size_t column, struct mfs_vfile **ret,
		   struct mfs_error *err)
{
	return new_array(&(struct array){{.get = get_column}, rows, column},
			 rows->columns[column].dtype, rows->rows, ret, err);
}

int mfs_npy_documents(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
		      struct mfs_error *err)
{
	return new_array(&(struct array){{.get = get_documents}, d, 0}, MFS_I64,
			 mfs_indexed_dataset_info(d)->document_entries, ret, err);
}
