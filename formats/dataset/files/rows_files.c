#include "formats/dataset/files/rows_files.h"

#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/dataset/rows/elements.h"
#include "formats/dataset/files/idx_image.h"
#include "formats/dataset/files/npy.h"
#include "formats/dataset/rows/rows_vfile.h"

/* One array and what it is made of. */
struct array {
	struct mfs_elements
		elements; /* of tokens and documents, which others read: the size alone */
	const struct mfs_rows *rows;
	const struct mfs_indexed_dataset *d;
	size_t column;
	uint64_t count;
	uint8_t header[MFS_NPY_HEADER_MAX];
	size_t header_len;
};

static int get_offsets(const void *object, uint64_t first, uint64_t count, void *ret,
		       struct mfs_error *err)
{
	const struct array *a = object;

	return mfs_rows_starts(a->rows, first, count, ret, err);
}

static int get_column(const void *object, uint64_t first, uint64_t count, void *ret,
		      struct mfs_error *err)
{
	const struct array *a = object;

	return mfs_rows_column(a->rows, a->column, first, count, ret, err);
}

/* ---- parts ---- */

static int add_header(const struct array *a, struct mfs_vfile *f, struct mfs_error *err)
{
	return a->header_len ? mfs_vfile_add_shared(f, a->header, a->header_len, err) : 0;
}

static int build_computed(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	struct array *a = arg;
	int rc = add_header(a, parts, err);

	return rc ? rc
		  : mfs_vfile_add_computed(parts, &mfs_elements_computed, &a->elements, 0,
					   a->count * a->elements.size, err);
}

static int build_tokens(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	const struct array *a = arg;
	int rc = add_header(a, parts, err);

	return rc || !a->count ? rc : mfs_rows_add_tokens(a->rows, 0, a->count, parts, err);
}

static int build_documents(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	const struct array *a = arg;
	int rc = add_header(a, parts, err);

	return rc ? rc : mfs_idx_image_add_documents(a->d, parts, err);
}

/* ---- files ---- */

static void free_array(void *array)
{
	free(array);
}

/* The file of a copy of `what`; its parts are made when it is read. */
static int new_file(const struct array *what, mfs_vfile_build build, struct mfs_vfile **ret,
		    struct mfs_error *err)
{
	struct array *a = malloc(sizeof(*a));
	struct mfs_vfile *f;
	uint64_t size;
	int rc;

	if (!a)
		return mfs_fail_nomem(err);
	*a = *what;
	a->elements.object = a;
	if (mfs_mul_overflows(a->count, a->elements.size, &size) || size > INT64_MAX / 2)
		rc = mfs_fail(err, -EINVAL, "an array of %llu elements is too large for a file",
			      (unsigned long long)a->count);
	else
		rc = mfs_vfile_new_lazy(a->header_len + size, build, a, &f, err);
	if (rc) {
		free(a);
		return rc;
	}
	mfs_vfile_keep(f, a, free_array);
	*ret = f;
	return 0;
}

static int new_npy(struct array *a, enum mfs_dtype dtype, mfs_vfile_build build,
		   struct mfs_vfile **ret, struct mfs_error *err)
{
	a->elements.size = mfs_dtype_size(dtype);
	a->header_len = mfs_npy_header(dtype, &a->count, 1, a->header);
	return new_file(a, build, ret, err);
}

int mfs_npy_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	struct array a = {.rows = rows, .count = rows->tokens};

	return new_npy(&a, rows->dtype, build_tokens, ret, err);
}

int mfs_raw_tokens(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	struct array a = {.elements.size = rows->token_size, .rows = rows, .count = rows->tokens};

	return new_file(&a, build_tokens, ret, err);
}

int mfs_npy_offsets(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	struct array a = {.elements.get = get_offsets, .rows = rows, .count = rows->rows + 1};

	return new_npy(&a, MFS_I64, build_computed, ret, err);
}

int mfs_npy_column(const struct mfs_rows *rows, size_t column, struct mfs_vfile **ret,
		   struct mfs_error *err)
{
	struct array a = {
		.elements.get = get_column, .rows = rows, .column = column, .count = rows->rows};

	return new_npy(&a, rows->columns[column].dtype, build_computed, ret, err);
}

int mfs_npy_documents(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
		      struct mfs_error *err)
{
	struct array a = {.d = d, .count = mfs_indexed_dataset_info(d)->document_entries};

	return new_npy(&a, MFS_I64, build_documents, ret, err);
}
