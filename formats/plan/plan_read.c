/*
 * Reading through a plan turns a byte range of the target into ranges of mapped source bytes. A
 * request runs under one guard (formats/io/guard.h): a guard for each range of 1 KiB would cost a
 * tenth of the copy. So nothing here owns memory or holds a lock.
 */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/cast.h"
#include "formats/base/half.h"
#include "formats/base/search.h"
#include "formats/io/guard.h"
#include "formats/plan/gather.h"
#include "formats/plan/plan.h"
#include "formats/plan/strided.h"

#define REMEMBERED 16 /* files that a request knows it has checked; others cost a stat again */
#define WINDOW	   (32u << 10) /* bytes that are gathered before they are cast */

static const uint8_t zero[16]; /* an element */

struct reader {
	const struct mfs_plan *plan;
	struct mfs_gather *g;
	uint8_t *cast_to; /* where the next elements go once they are cast; NULL: they stay */
	uint32_t files[REMEMBERED];
	const uint8_t *maps[REMEMBERED];
	unsigned file_count;
	uint32_t current; /* file whose bytes are being copied, for the message */
	uint64_t off, len;
	int rc;
	struct mfs_error *err;
};

/* Maps a file. Once a request it is checked to be the file that the plan was built from. */
static int map_file(struct reader *r, uint32_t file, const uint8_t **ret)
{
	unsigned slot;
	int rc;

	r->current = file;
	for (unsigned i = 0; i < r->file_count && i < REMEMBERED; i++) {
		if (r->files[i] != file)
			continue;
		*ret = r->maps[i];
		return 0;
	}
	rc = mfs_fileset_check(r->plan->files, file, r->err);
	if (!rc)
		rc = mfs_fileset_map(r->plan->files, file, ret, r->err);
	if (rc)
		return rc;
	slot = r->file_count++ % REMEMBERED;
	r->files[slot] = file;
	r->maps[slot] = *ret;
	return 0;
}

static int unreadable(const struct reader *r)
{
	return mfs_fail(r->err, -EIO, "%s/%s: cannot be read (cut short while in use?)",
			mfs_fileset_dir(r->plan->files),
			mfs_fileset_name(r->plan->files, r->current));
}

static const struct mfs_plan_band *find_band(const struct mfs_plan *plan, uint64_t row)
{
	return &plan->bands[mfs_last_while(i, plan->band_count, plan->bands[i].row <= row)];
}

static bool is_plain(const struct mfs_plan *plan, const struct mfs_plan_band *band)
{
	const struct mfs_plan_block *blocks = plan->blocks + band->first;

	if (plan->op != MFS_OP_COPY)
		return false;
	for (uint32_t i = 0; i < band->count; i++)
		if (blocks[i].file != MFS_NO_FILE && blocks[i].width > 1 &&
		    blocks[i].col_stride != plan->element)
			return false;
	return true;
}

/* ---- stretches of bytes ---- */

/* True if the rows of the band's one block follow one another in the file. */
static bool is_contiguous(const struct mfs_plan *plan, const struct mfs_plan_band *band)
{
	const struct mfs_plan_block *block = &plan->blocks[band->first];

	return band->count == 1 && (band->rows == 1 || block->file == MFS_NO_FILE ||
				    block->row_stride == plan->cols * plan->element);
}

/* Adds whole elements, which may lie in a mapping. */
static void put(struct reader *r, const uint8_t *p, uint64_t n)
{
	const struct mfs_plan *plan = r->plan;

	if (!r->cast_to) {
		mfs_gather_add(r->g, p, n);
		return;
	}
	mfs_cast(plan->shown, r->cast_to, plan->dtype, p, n / plan->element);
	r->cast_to += n / plan->element * mfs_dtype_size(plan->shown);
}

/* Zeros are zeros in all types. */
static void put_zeros(struct reader *r, uint64_t n)
{
	if (!r->cast_to) {
		mfs_gather_zeros(r->g, n);
		return;
	}
	n = n / r->plan->element * mfs_dtype_size(r->plan->shown);
	memset(r->cast_to, 0, n);
	r->cast_to += n;
}

/* Adds n bytes at src of the block's file, or zeros. */
static int gather_bytes(struct reader *r, const struct mfs_plan_block *block, uint64_t src,
			uint64_t n)
{
	const uint8_t *map;
	int rc;

	if (block->file == MFS_NO_FILE) {
		put_zeros(r, n);
		return 0;
	}
	rc = map_file(r, block->file, &map);
	if (!rc)
		put(r, map + src, n);
	return rc;
}

/* Adds bytes [from, to) of one row. */
static int gather_row(struct reader *r, const struct mfs_plan_band *band, uint64_t row,
		      uint64_t from, uint64_t to)
{
	const struct mfs_plan *plan = r->plan;

	for (uint32_t i = 0; i < band->count && from < to; i++) {
		const struct mfs_plan_block *block = &plan->blocks[band->first + i];
		uint64_t start = block->col * plan->element;
		uint64_t end = start + block->width * plan->element;
		uint64_t n;
		int rc;

		if (from >= end)
			continue;
		n = mfs_min_u64(to, end) - from;
		rc = gather_bytes(r, block,
				  block->src + (row - band->row) * block->row_stride + from - start,
				  n);
		if (rc)
			return rc;
		from += n;
	}
	return 0;
}

static int gather_contiguous(struct reader *r, const struct mfs_plan_band *band, uint64_t off,
			     uint64_t len)
{
	const struct mfs_plan_block *block = &r->plan->blocks[band->first];

	return gather_bytes(r, block, block->src + off, len);
}

static int gather_rows(struct reader *r, const struct mfs_plan_band *band, uint64_t off,
		       uint64_t len)
{
	const uint64_t row_bytes = r->plan->cols * r->plan->element;
	int rc = 0;

	while (len && !rc) {
		uint64_t row = off / row_bytes, from = off % row_bytes;
		uint64_t n = mfs_min_u64(len, row_bytes - from);

		rc = gather_row(r, band, band->row + row, from, from + n);
		off += n;
		len -= n;
	}
	return rc;
}

/* ---- single elements: transposed sources, element operations ---- */

/* Copies columns [col, col+cols) of rows [row, row+rows) of a band to to. */
static int copy_rectangle(struct reader *r, const struct mfs_plan_band *band, uint64_t row,
			  uint64_t rows, uint64_t col, uint64_t cols, uint8_t *to)
{
	const struct mfs_plan *plan = r->plan;

	for (uint32_t i = 0; i < band->count; i++) {
		const struct mfs_plan_block *b = &plan->blocks[band->first + i];
		uint64_t first = mfs_max_u64(col, b->col);
		uint64_t last = mfs_min_u64(col + cols, b->col + b->width);
		struct mfs_strided s = {.to_row = cols * plan->element,
					.from_row = b->row_stride,
					.from_col = b->col_stride,
					.rows = rows,
					.element = plan->element};
		const uint8_t *map = NULL;
		int rc;

		if (first >= last)
			continue;
		rc = b->file == MFS_NO_FILE ? 0 : map_file(r, b->file, &map);
		if (rc)
			return rc;
		s.cols = last - first;
		s.to = to + (first - col) * plan->element;
		s.from = zero; /* with strides of 0 */
		if (map)
			s.from = map + b->src + (row - band->row) * b->row_stride +
				 (first - b->col) * b->col_stride;
		mfs_copy_strided(&s);
	}
	return 0;
}

/* weight = stored + 1, added in fp32 and rounded once. bytes need not be aligned. */
static int add_one(struct reader *r, uint8_t *bytes, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		uint8_t *at = bytes + i * r->plan->element;
		uint16_t half;
		float f;

		switch (r->plan->dtype) {
		case MFS_F32:
			memcpy(&f, at, 4);
			f += 1.0f;
			memcpy(at, &f, 4);
			break;
		case MFS_BF16:
			memcpy(&half, at, 2);
			half = mfs_float_to_bf16(mfs_bf16_to_float(half) + 1.0f);
			memcpy(at, &half, 2);
			break;
		case MFS_F16:
			memcpy(&half, at, 2);
			half = mfs_float_to_f16(mfs_f16_to_float(half) + 1.0f);
			memcpy(at, &half, 2);
			break;
		default:
			return mfs_fail(r->err, -ENOTSUP,
					"a norm of type %s cannot be shifted by one",
					mfs_dtype_torch(r->plan->dtype));
		}
	}
	return 0;
}

/* Copies elements [first, first + count) of a band to to, as up to three rectangles. */
static int copy_elements(struct reader *r, const struct mfs_plan_band *band, uint64_t first,
			 uint64_t count, uint8_t *to)
{
	const uint64_t cols = r->plan->cols;
	uint64_t done = 0;
	int rc = 0;

	while (done < count && !rc) {
		uint64_t row = (first + done) / cols, col = (first + done) % cols;
		uint64_t n = mfs_min_u64(count - done, cols - col), rows = 1;

		if (!col && n == cols)
			rows = (count - done) / cols;
		rc = copy_rectangle(r, band, band->row + row, rows, col, n,
				    to + done * r->plan->element);
		done += rows * n;
	}
	if (!rc && r->plan->op == MFS_OP_ADD_ONE)
		rc = add_one(r, to, count);
	return rc;
}

/* Copies the whole elements around a byte range, then cuts the range out. */
static int gather_elements(struct reader *r, const struct mfs_plan_band *band, uint64_t off,
			   uint64_t len)
{
	const unsigned element = r->plan->element;
	const uint64_t skip = off % element;
	uint64_t first = off / element, count = (off + len + element - 1) / element - first;
	uint8_t *bytes = mfs_gather_room(r->g, len);
	/* The caller left room in scratch for the two elements that the range may cut. */
	int rc = copy_elements(r, band, first, count, bytes);

	if (!rc && skip)
		memmove(bytes, bytes + skip, len);
	return rc;
}

/* The same for whole elements that are cast. */
static int cast_elements(struct reader *r, const struct mfs_plan_band *band, uint64_t off,
			 uint64_t len)
{
	const unsigned element = r->plan->element;
	uint8_t window[WINDOW];
	int rc = 0;

	for (uint64_t n; len && !rc; len -= n) {
		n = mfs_min_u64(len, WINDOW / element * element);
		rc = copy_elements(r, band, off / element, n / element, window);
		if (!rc)
			put(r, window, n);
		off += n;
	}
	return rc;
}

/* ---- the whole ---- */

static void gather_range(void *arg)
{
	struct reader *r = arg;
	const uint64_t row_bytes = r->plan->cols * r->plan->element;
	const struct mfs_plan_band *band = find_band(r->plan, r->off / row_bytes);

	for (; r->len && !r->rc; band++) {
		uint64_t start = band->row * row_bytes, end = start + band->rows * row_bytes;
		uint64_t n = mfs_min_u64(r->len, end - r->off);

		if (!is_plain(r->plan, band) && r->cast_to)
			r->rc = cast_elements(r, band, r->off - start, n);
		else if (!is_plain(r->plan, band))
			r->rc = gather_elements(r, band, r->off - start, n);
		else if (is_contiguous(r->plan, band))
			r->rc = gather_contiguous(r, band, r->off - start, n);
		else
			r->rc = gather_rows(r, band, r->off - start, n);
		r->off += n;
		r->len -= n;
	}
}

/* The range of the sources' bytes whose whole elements become [*off, *off + *len). Returns how many
 * bytes of the first element are before the range. */
static uint64_t source_range(const struct mfs_plan *plan, uint64_t *off, uint64_t *len)
{
	const unsigned shown = mfs_dtype_size(plan->shown);
	const uint64_t first = *off / shown, end = (*off + *len + shown - 1) / shown;
	const uint64_t skip = *off % shown;

	*off = first * plan->element;
	*len = (end - first) * plan->element;
	return skip;
}

int mfs_plan_gather(const struct mfs_plan *plan, uint64_t off, uint64_t len, struct mfs_gather *g,
		    struct mfs_error *err)
{
	struct reader r = {.plan = plan, .g = g, .off = off, .len = len, .err = err};
	uint8_t *bytes = NULL;
	uint64_t skip = 0;

	if (!len)
		return 0;
	if (plan->shown != plan->dtype) {
		bytes = r.cast_to = mfs_gather_room(g, len);
		skip = source_range(plan, &r.off, &r.len);
	}
	if (mfs_guard_run(gather_range, &r))
		return unreadable(&r);
	if (skip)
		memmove(bytes, bytes + skip, len);
	return r.rc;
}

void mfs_plan_willneed(const struct mfs_plan *plan, uint64_t off, uint64_t len)
{
	const uint64_t row_bytes = plan->cols * plan->element;
	const struct mfs_plan_band *band;

	if (!len)
		return;
	if (plan->shown != plan->dtype)
		source_range(plan, &off, &len);
	band = find_band(plan, off / row_bytes);
	for (; len; band++) {
		uint64_t start = band->row * row_bytes, end = start + band->rows * row_bytes;
		uint64_t n = mfs_min_u64(len, end - off);
		uint64_t row = (off - start) / row_bytes;
		uint64_t rows = (off - start + n + row_bytes - 1) / row_bytes - row;

		for (uint32_t i = 0; i < band->count; i++) {
			const struct mfs_plan_block *b = &plan->blocks[band->first + i];

			if (b->file == MFS_NO_FILE)
				continue;
			/* A row may be the whole tensor, so only the wanted part of it is asked
			 * for. */
			if (band->count == 1 && is_contiguous(plan, band))
				mfs_fileset_willneed(plan->files, b->file, b->src + off - start, n);
			else
				mfs_fileset_willneed(
					plan->files, b->file, b->src + row * b->row_stride,
					(rows - 1) * b->row_stride + b->width * b->col_stride);
		}
		off += n;
		len -= n;
	}
}
