/*
 * Reading through a plan turns a byte range of the target into ranges of mapped source bytes. A
 * request runs under one guard (formats/io/guard.h): a guard for each range of 1 KiB would cost a
 * tenth of the copy. So nothing here owns memory or holds a lock.
 */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/numbers/cast.h"
#include "formats/numbers/half.h"
#include "formats/base/search.h"
#include "formats/base/tally.h"
#include "formats/io/guard.h"
#include "formats/plan/gather.h"
#include "formats/plan/plan_read_i.h"
#include "formats/plan/strided.h"

#define WINDOW (32u << 10) /* bytes that are gathered before they are cast */
#define COLUMN 512	   /* elements of a column that are */

static const uint8_t zero[16]; /* an element */

int mfs_plan_map(struct mfs_plan_reader *r, uint32_t file, const uint8_t **ret)
{
	unsigned slot;
	int rc;

	r->current = file;
	for (unsigned i = 0; i < r->file_count && i < MFS_PLAN_REMEMBERED; i++) {
		if (r->files[i] != file)
			continue;
		*ret = r->maps[i];
		return 0;
	}
	rc = mfs_fileset_check(r->plan->files, file, r->err);
	if (!rc)
		rc = mfs_fileset_map_part(r->plan->files, file, ret, r->err);
	if (rc)
		return rc;
	slot = r->file_count++ % MFS_PLAN_REMEMBERED;
	r->files[slot] = file;
	r->maps[slot] = *ret;
	return 0;
}

static int unreadable(const struct mfs_plan_reader *r)
{
	return mfs_fail(r->err, -EIO, "%s/%s: cannot be read (cut short while in use?)",
			mfs_fileset_dir(r->plan->files),
			mfs_fileset_name(r->plan->files, r->current));
}

/* ---- what takes elements ---- */

static void reference(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n)
{
	mfs_gather_add(r->g, p, n);
}

static void reference_zeros(struct mfs_plan_reader *r, uint64_t n)
{
	mfs_gather_zeros(r->g, n);
}

static void cast(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n)
{
	const struct mfs_plan *plan = r->plan;

	mfs_cast(plan->shown, r->cast_to, plan->dtype, p, n / plan->element);
	r->cast_to += n / plan->element * mfs_dtype_size(plan->shown);
}

static void quantise(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n)
{
	mfs_plan_quantise(r, p, n / r->plan->element);
}

/* Zeros are zeros in all types. */
static void cast_zeros(struct mfs_plan_reader *r, uint64_t n)
{
	const uint64_t count = n / r->plan->element;

	n = count * mfs_dtype_size(r->plan->shown);
	memset(r->cast_to, 0, n);
	r->cast_to += n;
	r->at += count;
}

static const struct mfs_plan_taker_ops referencing = {reference, reference_zeros},
				       casting = {cast, cast_zeros},
				       quantising = {quantise, cast_zeros};

/* ---- stretches of bytes ---- */

/* Adds n bytes at src of the block's file, or zeros. */
static int gather_bytes(struct mfs_plan_reader *r, const struct mfs_plan_block *block, uint64_t src,
			uint64_t n)
{
	const uint8_t *map;
	int rc;

	if (block->file == MFS_FILE_NONE) {
		r->taker->zeros(r, n);
		return 0;
	}
	rc = mfs_plan_map(r, block->file, &map);
	if (rc)
		return rc;
	if (block->scales != MFS_SCALES_NONE)
		return mfs_plan_dequantise(r, block, src, map, n);
	r->taker->put(r, map + src, n);
	return 0;
}

/* Adds bytes [from, to) of one row. */
static int gather_row(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t row,
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

static int gather_contiguous(struct mfs_plan_reader *r, const struct mfs_plan_band *band,
			     uint64_t off, uint64_t len)
{
	const struct mfs_plan_block *block = &r->plan->blocks[band->first];

	return gather_bytes(r, block, block->src + off, len);
}

static int gather_rows(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t off,
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
static int copy_rectangle(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t row,
			  uint64_t rows, uint64_t col, uint64_t cols, uint8_t *to)
{
	const struct mfs_plan *plan = r->plan;

	for (uint32_t i = 0; i < band->count; i++) {
		const struct mfs_plan_block *b = &plan->blocks[band->first + i];
		uint64_t first = mfs_max_u64(mfs_plan_lane_cols(plan, b->lane, col), b->col);
		uint64_t last = mfs_min_u64(mfs_plan_lane_cols(plan, b->lane, col + cols),
					    b->col + b->width);
		struct mfs_strided s = {.to_row = cols * plan->element,
					.to_col = plan->lanes * plan->element,
					.from_row = b->row_stride,
					.from_col = b->col_stride,
					.rows = rows,
					.element = plan->element};
		const uint8_t *map = NULL;
		int rc;

		if (first >= last)
			continue;
		rc = b->file == MFS_FILE_NONE ? 0 : mfs_plan_map(r, b->file, &map);
		if (rc)
			return rc;
		s.cols = last - first;
		s.to = to + (first * plan->lanes + b->lane - col) * plan->element;
		s.from = zero; /* with strides of 0 */
		if (map)
			s.from = map + b->src + (row - band->row) * b->row_stride +
				 (first - b->col) * b->col_stride;
		mfs_copy_strided(&s);
	}
	return 0;
}

/* weight = stored + 1, or the other way round, added in fp32 and rounded once. bytes need not be
 * aligned. */
static int shift(struct mfs_plan_reader *r, uint8_t *bytes, uint64_t count, float by)
{
	for (uint64_t i = 0; i < count; i++) {
		uint8_t *at = bytes + i * r->plan->element;
		uint16_t half;
		float f;

		switch (r->plan->dtype) {
		case MFS_F32:
			memcpy(&f, at, 4);
			f += by;
			memcpy(at, &f, 4);
			break;
		case MFS_BF16:
			memcpy(&half, at, 2);
			half = mfs_float_to_bf16(mfs_bf16_to_float(half) + by);
			memcpy(at, &half, 2);
			break;
		case MFS_F16:
			memcpy(&half, at, 2);
			half = mfs_float_to_f16(mfs_f16_to_float(half) + by);
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

/* As up to three rectangles. */
int mfs_plan_copy(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t first,
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
	if (!rc && mfs_plan_shift(r->plan) != 0)
		rc = shift(r, to, count, mfs_plan_shift(r->plan));
	return rc;
}

/* Copies the whole elements around a byte range, then cuts the range out. */
static int gather_elements(struct mfs_plan_reader *r, const struct mfs_plan_band *band,
			   uint64_t off, uint64_t len)
{
	const unsigned element = r->plan->element;
	const uint64_t skip = off % element;
	uint64_t first = off / element, count = (off + len + element - 1) / element - first;
	uint8_t *bytes = mfs_gather_room(r->g, len);
	/* The caller left room in scratch for the two elements that the range may cut. */
	int rc = mfs_plan_copy(r, band, first, count, bytes);

	if (!rc && skip)
		memmove(bytes, bytes + skip, len);
	return rc;
}

/* The same for whole elements that are cast. */
static int cast_elements(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t off,
			 uint64_t len)
{
	const unsigned element = r->plan->element;
	uint8_t window[WINDOW];
	int rc = 0;

	for (uint64_t n; len && !rc; len -= n) {
		n = mfs_min_u64(len, WINDOW / element * element);
		rc = mfs_plan_copy(r, band, off / element, n / element, window);
		if (!rc)
			r->taker->put(r, window, n);
		off += n;
	}
	return rc;
}

/* Elements of one column of a block, the first at src. Rows of a transposed source follow one
 * another there. */
static int put_column(struct mfs_plan_reader *r, const struct mfs_plan_block *b, uint64_t src,
		      uint64_t rows, uint8_t *to, uint64_t to_row)
{
	const unsigned shown = mfs_dtype_size(r->plan->shown);
	const uint64_t most = b->row_stride == r->plan->element ? COLUMN : 1;
	uint8_t window[COLUMN * sizeof(float)];
	int rc = 0;

	for (uint64_t n; rows && !rc; rows -= n) {
		n = mfs_min_u64(rows, most);
		r->cast_to = window;
		rc = gather_bytes(r, b, src, n);
		if (shown == 2)
			for (uint64_t i = 0; i < n; i++)
				memcpy(to + i * to_row, window + 2 * i, 2);
		else
			for (uint64_t i = 0; i < n; i++)
				memcpy(to + i * to_row, window + 4 * i, 4);
		src += n * b->row_stride;
		to += n * to_row;
	}
	return rc;
}

/* Columns [col, col + cols) of rows [row, row + rows) of a band of floats with scales: which scale
 * is an element's depends on its place. */
static int dequantise_rectangle(struct mfs_plan_reader *r, const struct mfs_plan_band *band,
				uint64_t row, uint64_t rows, uint64_t col, uint64_t cols)
{
	const struct mfs_plan_block *blocks = r->plan->blocks + band->first;
	const unsigned lanes = r->plan->lanes, shown = mfs_dtype_size(r->plan->shown);
	uint8_t *to = r->cast_to;
	int rc = 0;

	for (uint64_t c = 0; c < cols && !rc; c++) {
		const uint64_t lane = (col + c) % lanes, at = (col + c) / lanes;
		const struct mfs_plan_block *b = &blocks[mfs_last_while(
			i, band->count,
			blocks[i].lane < lane || (blocks[i].lane == lane && blocks[i].col <= at))];

		rc = put_column(r, b, b->src + row * b->row_stride + (at - b->col) * b->col_stride,
				rows, to + c * shown, cols * shown);
	}
	r->cast_to = to + rows * cols * shown;
	return rc;
}

static int dequantise_elements(struct mfs_plan_reader *r, const struct mfs_plan_band *band,
			       uint64_t off, uint64_t len)
{
	const uint64_t cols = r->plan->cols;
	int rc = 0;

	for (uint64_t end = off + len, n, rows; off < end && !rc; off += n * rows) {
		const uint64_t col = off % cols;

		n = mfs_min_u64(end - off, cols - col);
		rows = n == cols ? (end - off) / cols : 1;
		rc = dequantise_rectangle(r, band, off / cols, rows, col, n);
	}
	return rc;
}

/* ---- which way ---- */

static bool is_plain(const struct mfs_plan *plan, const struct mfs_plan_band *band)
{
	const struct mfs_plan_block *blocks = plan->blocks + band->first;

	if (mfs_plan_shift(plan) != 0 || plan->lanes > 1)
		return false;
	for (uint32_t i = 0; i < band->count; i++)
		if (blocks[i].file != MFS_FILE_NONE && blocks[i].width > 1 &&
		    blocks[i].col_stride != plan->element)
			return false;
	return true;
}

/* True if the rows of a plain band's one block follow one another in the file. */
static bool is_contiguous(const struct mfs_plan *plan, const struct mfs_plan_band *band)
{
	const struct mfs_plan_block *block = &plan->blocks[band->first];

	return band->count == 1 && (band->rows == 1 || block->file == MFS_FILE_NONE ||
				    block->row_stride == plan->cols * plan->element);
}

static mfs_plan_gatherer *gatherer_of(const struct mfs_plan *plan, const struct mfs_plan_band *band)
{
	if (plan->delta_count)
		return mfs_plan_merge;
	if (band->contiguous)
		return gather_contiguous;
	if (!band->apart)
		return gather_rows;
	if (plan->scales_count)
		return dequantise_elements;
	return mfs_plan_is_referenced(plan) ? gather_elements : cast_elements;
}

bool mfs_plan_is_referenced(const struct mfs_plan *plan)
{
	return plan->taker == &referencing;
}

void mfs_plan_choose(struct mfs_plan *plan)
{
	if (plan->op == MFS_OP_QUANTISE)
		plan->taker = &quantising;
	else if (mfs_plan_is_quantised(plan) || plan->shown != plan->dtype || plan->delta_count)
		plan->taker = &casting;
	else
		plan->taker = &referencing;
	for (uint32_t i = 0; i < plan->band_count; i++) {
		struct mfs_plan_band *band = &plan->bands[i];

		band->apart = !is_plain(plan, band);
		band->contiguous = !band->apart && is_contiguous(plan, band);
		band->gather = gatherer_of(plan, band);
	}
}

/* ---- the whole ---- */

int mfs_plan_walk(const struct mfs_plan *plan, uint64_t off, uint64_t len, mfs_plan_visit *visit,
		  void *arg)
{
	const uint64_t row_bytes = plan->cols * plan->element, row = off / row_bytes;
	const struct mfs_plan_band *band =
		&plan->bands[mfs_last_while(i, plan->band_count, plan->bands[i].row <= row)];
	int rc = 0;

	for (; len && !rc; band++) {
		const uint64_t start = band->row * row_bytes, end = start + band->rows * row_bytes;
		const uint64_t n = mfs_min_u64(len, end - off);

		rc = visit(arg, band, off - start, n);
		off += n;
		len -= n;
	}
	return rc;
}

static int gather_part(void *arg, const struct mfs_plan_band *band, uint64_t off, uint64_t len)
{
	struct mfs_plan_reader *r = arg;

	r->apart += band->apart ? len : 0;
	return band->gather(r, band, off, len);
}

int mfs_plan_gather_range(struct mfs_plan_reader *r, uint64_t off, uint64_t len)
{
	return mfs_plan_walk(r->plan, off, len, gather_part, r);
}

uint64_t mfs_plan_source_range(const struct mfs_plan *plan, uint64_t *off, uint64_t *len)
{
	const unsigned shown = mfs_dtype_size(plan->shown);
	const uint64_t first = *off / shown, end = (*off + *len + shown - 1) / shown;
	const uint64_t skip = *off % shown;

	*off = first * plan->element;
	*len = (end - first) * plan->element;
	return skip;
}

static void gather_guarded(void *arg)
{
	struct mfs_plan_reader *r = arg;

	if (mfs_plan_is_quantised(r->plan))
		mfs_plan_fp8_range(r);
	else
		r->rc = mfs_plan_gather_range(r, r->off, r->len);
}

/* The whole elements of the target around a range of its bytes. */
static uint64_t whole_elements(const struct mfs_plan *plan, uint64_t *off, uint64_t *len)
{
	const unsigned shown = mfs_dtype_size(plan->shown);
	const uint64_t skip = *off % shown;

	*off -= skip;
	*len = (*len + skip + shown - 1) / shown * shown;
	return skip;
}

/* Once a request, whatever the number of its ranges. len: its bytes as sources store them. */
static void count(const struct mfs_plan_reader *r, uint64_t len)
{
	const struct mfs_plan *plan = r->plan;

	mfs_tally_add(mfs_fileset_has_backings(plan->files) ? MFS_TALLY_READ_REMOTE
							    : MFS_TALLY_READ_LOCAL,
		      len);
	if (plan->delta_count)
		mfs_tally_add(MFS_TALLY_MERGE, len);
	else if (mfs_plan_is_quantised(plan))
		mfs_tally_add(MFS_TALLY_QUANTISE, len);
	else if (plan->scales_count)
		mfs_tally_add(MFS_TALLY_DEQUANTISE, len);
	else if (plan->shown != plan->dtype)
		mfs_tally_add(MFS_TALLY_CAST, len);
	else if (mfs_plan_shift(plan) != 0)
		mfs_tally_add(MFS_TALLY_SHIFT, len);
	else if (r->apart)
		mfs_tally_add(MFS_TALLY_TRANSPOSE, r->apart);
}

int mfs_plan_gather(const struct mfs_plan *plan, uint64_t off, uint64_t len, struct mfs_gather *g,
		    struct mfs_error *err)
{
	struct mfs_plan_reader r = {
		.plan = plan, .g = g, .taker = plan->taker, .off = off, .len = len, .err = err};
	uint8_t *bytes = NULL;
	uint64_t skip = 0, stored;

	if (!len)
		return 0;
	if (mfs_plan_is_quantised(plan)) {
		bytes = r.cast_to = mfs_gather_room(g, len);
		skip = whole_elements(plan, &r.off, &r.len);
	} else if (plan->taker == &casting) {
		bytes = r.cast_to = mfs_gather_room(g, len);
		skip = mfs_plan_source_range(plan, &r.off, &r.len);
	}
	stored = r.len;
	if (mfs_plan_is_quantised(plan))
		mfs_plan_fp8_sources(plan, &off, &stored);
	if (plan->parts.count) {
		int rc = mfs_plan_need_parts(plan, r.off, r.len, err);

		if (rc)
			return rc;
	}
	if (mfs_fileset_has_backings(plan->files)) {
		int rc = mfs_plan_make_present(plan, r.off, r.len, &g->present, err);

		if (rc)
			return rc;
	}
	if (mfs_guard_run(gather_guarded, &r))
		return unreadable(&r);
	if (skip)
		memmove(bytes, bytes + skip, len);
	if (!r.rc)
		count(&r, stored);
	return r.rc;
}
