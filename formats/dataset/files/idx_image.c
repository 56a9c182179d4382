#include "formats/dataset/files/idx_image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/dataset/files/elements.h"
#include "formats/dataset/files/rows_files.h"
#include "formats/indexed/indexed_members.h"
#include "formats/io/fileset.h"

/* An .idx of rows. */
struct idx {
	const struct mfs_rows *rows;
	struct mfs_elements lengths, pointers, documents;
	uint8_t header[MFS_IDX_HEADER];
};

static int get_lengths(const void *object, uint64_t first, uint64_t count, void *ret,
		       struct mfs_error *err)
{
	return mfs_rows_lengths(((const struct idx *)object)->rows, first, count, ret, err);
}

static int get_pointers(const void *object, uint64_t first, uint64_t count, void *ret,
			struct mfs_error *err)
{
	const struct mfs_rows *rows = ((const struct idx *)object)->rows;
	uint64_t *to = ret;
	int rc = mfs_rows_starts(rows, first, count, to, err);

	for (uint64_t i = 0; i < count && !rc; i++)
		to[i] *= rows->token_size;
	return rc;
}

static int get_documents(const void *object, uint64_t first, uint64_t count, void *ret,
			 struct mfs_error *err)
{
	uint64_t *to = ret;

	(void)object, (void)err;
	for (uint64_t i = 0; i < count; i++)
		to[i] = first + i;
	return 0;
}

static void fill(struct idx *x, const struct mfs_rows *rows)
{
	x->rows = rows;
	x->lengths = (struct mfs_elements){4, get_lengths, x};
	x->pointers = (struct mfs_elements){8, get_pointers, x};
	x->documents = (struct mfs_elements){8, get_documents, x};
	memcpy(x->header, "MMIDIDX\0", 9);
	mfs_put_le64(x->header + 9, 1);
	x->header[17] = mfs_idx_code(rows->dtype);
	mfs_put_le64(x->header + 18, rows->rows);
	mfs_put_le64(x->header + 26, rows->rows + 1);
}

static int add_array(struct mfs_vfile *f, struct mfs_elements *e, uint64_t count,
		     struct mfs_error *err)
{
	return mfs_vfile_add_computed(f, &mfs_elements_computed, e, 0, count * e->size, err);
}

static int add_parts(struct mfs_vfile *f, struct idx *x, struct mfs_error *err)
{
	int rc = mfs_vfile_add_shared(f, x->header, sizeof(x->header), err);

	if (!rc)
		rc = add_array(f, &x->lengths, x->rows->rows, err);
	if (!rc)
		rc = add_array(f, &x->pointers, x->rows->rows, err);
	if (!rc)
		rc = add_array(f, &x->documents, x->rows->rows + 1, err);
	return rc;
}

static int check_rows(const struct mfs_rows *rows, struct mfs_error *err)
{
	if (!mfs_idx_code(rows->dtype))
		return mfs_fail(err, -ENOTSUP, "%s: tokens of type %s have no code in an .idx",
				rows->name, mfs_dtype_torch(rows->dtype));
	if (rows->rows > MFS_MAX_SEQUENCES)
		return mfs_fail(err, -EINVAL,
				"%s: %llu rows; Megatron reads at most %d sequences of one .idx",
				rows->name, (unsigned long long)rows->rows, MFS_MAX_SEQUENCES);
	return 0;
}

int mfs_idx_image_idx(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	struct mfs_vfile *f;
	struct idx *x;
	int rc = check_rows(rows, err);

	if (!rc)
		rc = mfs_vfile_new(&f, err);
	if (rc)
		return rc;
	x = malloc(sizeof(*x));
	if (x) {
		fill(x, rows);
		mfs_vfile_keep(f, x, free);
	}
	rc = x ? add_parts(f, x, err) : mfs_fail_nomem(err);
	if (rc) {
		mfs_vfile_free(f);
		return rc;
	}
	*ret = f;
	return 0;
}

int mfs_idx_image_bin(const struct mfs_rows *rows, struct mfs_vfile **ret, struct mfs_error *err)
{
	int rc = check_rows(rows, err);

	return rc ? rc : mfs_raw_tokens(rows, ret, err);
}

/* ---- of an indexed dataset ---- */

static bool meet(uint64_t off, uint64_t end, uint64_t at, uint64_t len)
{
	return off < at + len && at < end;
}

/* Where the document entries begin in the merged .idx. */
static uint64_t documents_at(const struct mfs_indexed_dataset *d)
{
	return MFS_IDX_HEADER + (4 + 8) * d->info.sequences;
}

/* Whether bytes [off, end) of the merged .idx come from a prefix. */
static bool is_part_of(const struct mfs_indexed_dataset *d, const struct mfs_idx_member *p,
		       uint64_t off, uint64_t end)
{
	const uint64_t pointers = MFS_IDX_HEADER + 4 * d->info.sequences;
	const uint64_t documents = documents_at(d);
	const uint64_t modes = documents + 8 * d->info.document_entries;

	return meet(off, end, MFS_IDX_HEADER + 4 * p->first_sequence, 4 * p->sequences) ||
	       meet(off, end, pointers + 8 * p->first_sequence, 8 * p->sequences) ||
	       meet(off, end, documents + 8 * (p->first_entry + 1), 8 * (p->entries - 1)) ||
	       meet(off, end, modes + p->first_sequence, p->multimodal ? p->sequences : 0);
}

/* Thousands of prefixes may be merged. A read checks only those that its bytes come from. */
static int check_parts(const struct mfs_indexed_dataset *d, uint64_t off, uint64_t len,
		       struct mfs_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < d->member_count && !rc; i++) {
		const struct mfs_idx_member *p = &d->members[i];

		if (p->idx_set && is_part_of(d, p, off, off + len))
			rc = mfs_fileset_check(p->idx_set, p->idx_file, err);
	}
	return rc;
}

static int read_merged(void *object, uint64_t off, void *buf, size_t len, struct mfs_error *err)
{
	const struct mfs_indexed_dataset *d = object;
	int rc = check_parts(d, off, len, err);

	return rc ? rc : mfs_indexed_dataset_idx_read(d, off, buf, len, err);
}

static const struct mfs_computed_ops merged_idx = {.read = read_merged};

/* Parts take objects that are not const. This one is only read. */
static void *const_cast(const struct mfs_indexed_dataset *d)
{
	return (void *)(uintptr_t)d;
}

static int build_idx(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	return mfs_vfile_add_computed(parts, &merged_idx, arg, 0, mfs_indexed_dataset_idx_size(arg),
				      err);
}

static int build_bin(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	const struct mfs_indexed_dataset *d = arg;
	const uint64_t size = mfs_indexed_dataset_info(d)->bin_size;
	struct mfs_bin_extent extent;
	int rc = 0;

	for (uint64_t off = 0; off < size && !rc; off += extent.len) {
		rc = mfs_indexed_dataset_extent(d, off, &extent, err);
		if (!rc)
			rc = mfs_vfile_add_file(parts, extent.set, extent.file, extent.offset,
						extent.len, err);
		if (rc)
			return rc;
	}
	return rc;
}

int mfs_idx_image_merged_idx(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
			     struct mfs_error *err)
{
	return mfs_vfile_new_lazy(mfs_indexed_dataset_idx_size(d), build_idx, const_cast(d), ret,
				  err);
}

int mfs_idx_image_merged_bin(const struct mfs_indexed_dataset *d, struct mfs_vfile **ret,
			     struct mfs_error *err)
{
	return mfs_vfile_new_lazy(mfs_indexed_dataset_info(d)->bin_size, build_bin, const_cast(d),
				  ret, err);
}

int mfs_idx_image_read_documents(const struct mfs_indexed_dataset *d, uint64_t first,
				 uint64_t count, void *ret, struct mfs_error *err)
{
	return read_merged(const_cast(d), documents_at(d) + 8 * first, ret, 8 * count, err);
}
