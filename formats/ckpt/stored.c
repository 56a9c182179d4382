#include "formats/ckpt/stored.h"

#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/ckpt_build.h"
#include "formats/io/guard.h"
#include "formats/io/present.h"

#define WINDOW (4u << 20) /* bytes of each side in a guarded step, at least a row */

struct side {
	const struct mfs_stored *m;
	uint32_t file;
	uint64_t offset;     /* of the matrix's first element in the file */
	const uint8_t *base; /* that element in memory */
};

/* Compares rows [row, end). Afterwards row is the first row that differs, or end. */
struct step {
	const struct side *a, *b;
	unsigned element;
	uint64_t row, end;
};

static bool is_row_major(const struct mfs_stored *m)
{
	return m->stride[1] == 1 && m->stride[0] == m->shape[1];
}

static const uint8_t *element_at(const struct side *s, unsigned element, uint64_t row,
				 uint64_t column)
{
	return s->base + (row * s->m->stride[0] + column * s->m->stride[1]) * element;
}

static bool same_row(const struct step *s, uint64_t row)
{
	const uint64_t columns = s->a->m->shape[1];

	if (s->a->m->stride[1] == 1 && s->b->m->stride[1] == 1)
		return !memcmp(element_at(s->a, s->element, row, 0),
			       element_at(s->b, s->element, row, 0), columns * s->element);
	for (uint64_t c = 0; c < columns; c++)
		if (memcmp(element_at(s->a, s->element, row, c),
			   element_at(s->b, s->element, row, c), s->element))
			return false;
	return true;
}

/* Guarded: owns nothing. */
static void compare_rows(void *arg)
{
	struct step *s = arg;
	const uint64_t columns = s->a->m->shape[1];

	if (is_row_major(s->a->m) && is_row_major(s->b->m) &&
	    !memcmp(element_at(s->a, s->element, s->row, 0),
		    element_at(s->b, s->element, s->row, 0),
		    (s->end - s->row) * columns * s->element))
		s->row = s->end;
	while (s->row < s->end && same_row(s, s->row))
		s->row++;
}

/* An expanded tensor has more elements than stored bytes. */
static bool overlaps_itself(const struct mfs_ckpt *ckpt, const struct mfs_stored *m)
{
	const uint64_t most = ckpt->storages[m->storage].length / mfs_dtype_size(m->dtype);

	return m->shape[1] && m->shape[0] > most / m->shape[1];
}

static int find(struct mfs_ckpt *ckpt, const struct mfs_stored *m, struct side *ret,
		struct mfs_error *err)
{
	const struct mfs_global_tensor t = {.name = m->name, .layer = -1, .expert = -1};
	const uint8_t *map;
	uint64_t data;
	int rc = mfs_ckpt_locate(ckpt, &t, m->storage, &ret->file, &data, err);

	if (!rc)
		rc = mfs_fileset_map_part(ckpt->files, ret->file, &map, err);
	if (rc)
		return rc;
	ret->m = m;
	ret->offset = data + m->origin * mfs_dtype_size(m->dtype);
	ret->base = map + ret->offset;
	return mfs_fileset_check(ckpt->files, ret->file, err);
}

static void willneed(struct mfs_ckpt *ckpt, const struct side *s, uint64_t done, uint64_t total)
{
	if (is_row_major(s->m) && done < total)
		mfs_fileset_willneed(ckpt->files, s->file, s->offset + done,
				     mfs_min_u64(WINDOW, total - done));
}

/* Rows [row, end) of one side are there to be read. */
static int make_present(struct mfs_ckpt *ckpt, const struct side *s, unsigned element, uint64_t row,
			uint64_t end, struct mfs_present *present, struct mfs_error *err)
{
	const struct mfs_stored *m = s->m;
	const uint64_t from = row * m->stride[0];
	const uint64_t last = (end - 1) * m->stride[0] + (m->shape[1] - 1) * m->stride[1];

	return mfs_present_add(present, ckpt->files, s->file, s->offset + from * element,
			       (last - from + 1) * element, err);
}

static int compare_present(struct mfs_ckpt *ckpt, struct step *s, struct mfs_error *err)
{
	struct mfs_present present = {0};
	int rc = make_present(ckpt, s->a, s->element, s->row, s->end, &present, err);

	if (!rc)
		rc = make_present(ckpt, s->b, s->element, s->row, s->end, &present, err);
	if (!rc && mfs_guard_run(compare_rows, s))
		rc = mfs_fail(err, -EIO, "%s: tensor '%s' or '%s' cannot be read", ckpt->dir,
			      s->a->m->name, s->b->m->name);
	mfs_present_release(&present);
	return rc;
}

static int compare(struct mfs_ckpt *ckpt, const struct side *a, const struct side *b,
		   uint64_t *ret_row, struct mfs_error *err)
{
	const unsigned element = mfs_dtype_size(a->m->dtype);
	const uint64_t bytes = a->m->shape[1] * element, rows = bytes ? a->m->shape[0] : 0;
	const uint64_t each = bytes && bytes < WINDOW ? WINDOW / bytes : 1;
	struct step s = {a, b, element, 0, 0};
	int rc;

	while (s.row < rows && s.row == s.end) {
		s.end = s.row + mfs_min_u64(each, rows - s.row);
		willneed(ckpt, a, s.end * bytes, rows * bytes);
		willneed(ckpt, b, s.end * bytes, rows * bytes);
		rc = compare_present(ckpt, &s, err);
		if (rc)
			return rc;
		mfs_fileset_served(ckpt->files, 2 * each * bytes);
	}
	*ret_row = s.row == rows ? MFS_SAME : s.row;
	return 0;
}

int mfs_stored_compare(struct mfs_ckpt *ckpt, const struct mfs_stored *a,
		       const struct mfs_stored *b, uint64_t *ret_row, struct mfs_error *err)
{
	struct side x, y;
	int rc;

	*ret_row = 0;
	if (a->dtype != b->dtype || !mfs_dtype_size(a->dtype) || a->ndim != 2 || b->ndim != 2 ||
	    memcmp(a->shape, b->shape, sizeof(a->shape)) || overlaps_itself(ckpt, a) ||
	    overlaps_itself(ckpt, b))
		return 0;
	rc = find(ckpt, a, &x, err);
	if (!rc)
		rc = find(ckpt, b, &y, err);
	if (!rc && x.base == y.base && !memcmp(a->stride, b->stride, sizeof(a->stride)))
		*ret_row = MFS_SAME; /* one tensor under two names */
	else if (!rc)
		rc = compare(ckpt, &x, &y, ret_row, err);
	/* The bytes must be those of the files that were opened. */
	if (!rc)
		rc = mfs_fileset_check(ckpt->files, x.file, err);
	return rc ? rc : mfs_fileset_check(ckpt->files, y.file, err);
}
