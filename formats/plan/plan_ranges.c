/*
 * The ranges of files that a range of the target is made of: the kernel is asked to read them
 * ahead, and those of a URL are fetched before they are touched. They hold whatever plan_read.c
 * reads, and may hold more: of several rows of a band they are what lies between the first and the
 * last element.
 */
#include "formats/base/bytes.h"
#include "formats/io/present.h"
#include "formats/plan/plan_read_i.h"

typedef int each_range(void *arg, uint32_t file, uint64_t off, uint64_t len, struct mfs_error *err);

struct ranges {
	const struct mfs_plan *plan;
	each_range *each;
	void *arg;
	struct mfs_error *err;
};

/* All scales of a matrix: few compared with its elements. */
static int scale_range(const struct ranges *e, const struct mfs_plan_scales *s)
{
	const uint64_t rows = (s->of.rows - 1) / s->of.block_rows + 1;
	const uint64_t cols = (s->of.cols - 1) / s->of.block_cols + 1;

	return e->each(e->arg, s->file, s->at,
		       ((rows - 1) * s->of.stride + cols) * mfs_dtype_size(s->of.dtype), e->err);
}

/* Bytes that are as if each element had whole ones, which may be in half of them. */
static int byte_range(const struct ranges *e, const struct mfs_plan_block *b, uint64_t src,
		      uint64_t len)
{
	const uint64_t first = mfs_plan_place(e->plan, b, src),
		       last = mfs_plan_place(e->plan, b, src + len - 1);

	return e->each(e->arg, b->file, first, last - first + 1, e->err);
}

/* Columns [col, end) of rows [row, row + rows) of the band, as far as they are the block's. */
static int rectangle_range(const struct ranges *e, const struct mfs_plan_block *b, uint64_t row,
			   uint64_t rows, uint64_t col, uint64_t end)
{
	const uint64_t from = mfs_max_u64(mfs_plan_lane_cols(e->plan, b->lane, col), b->col);
	const uint64_t to =
		mfs_min_u64(mfs_plan_lane_cols(e->plan, b->lane, end), b->col + b->width);

	if (from >= to)
		return 0;
	return byte_range(e, b, b->src + row * b->row_stride + (from - b->col) * b->col_stride,
			  (rows - 1) * b->row_stride + (to - from - 1) * b->col_stride +
				  e->plan->element);
}

/* Elements [first, end) of the band. A row may be the whole tensor, so only the wanted part of a
 * single one is asked for. */
static int block_range(const struct ranges *e, const struct mfs_plan_band *band,
		       const struct mfs_plan_block *b, uint64_t first, uint64_t end)
{
	const uint64_t cols = e->plan->cols, element = e->plan->element;
	const uint64_t row = first / cols, last = (end - 1) / cols;

	if (band->contiguous)
		return byte_range(e, b, b->src + first * element, (end - first) * element);
	if (row == last)
		return rectangle_range(e, b, row, 1, first % cols, (end - 1) % cols + 1);
	return rectangle_range(e, b, row, last - row + 1, 0, cols);
}

/* Whole elements, also where they are copied one by one and the request cuts one. */
static int band_ranges(void *arg, const struct mfs_plan_band *band, uint64_t off, uint64_t len)
{
	const struct ranges *e = arg;
	const uint64_t first = off / e->plan->element, end = (off + len - 1) / e->plan->element + 1;
	int rc = 0;

	for (uint32_t i = 0; i < band->count && !rc; i++) {
		const struct mfs_plan_block *b = &e->plan->blocks[band->first + i];

		if (b->file == MFS_FILE_NONE)
			continue;
		if (b->scales != MFS_SCALES_NONE)
			rc = scale_range(e, &e->plan->scales[b->scales]);
		if (!rc)
			rc = block_range(e, band, b, first, end);
	}
	return rc;
}

/* Calls each for the ranges that bytes [off, off+len) of the sources' elements lie in, until it
 * fails. */
static int each_of(const struct mfs_plan *plan, uint64_t off, uint64_t len, each_range *each,
		   void *arg, struct mfs_error *err)
{
	struct ranges e = {.plan = plan, .each = each, .arg = arg, .err = err};

	return mfs_plan_walk(plan, off, len, band_ranges, &e);
}

static int ask_for(void *arg, uint32_t file, uint64_t off, uint64_t len, struct mfs_error *err)
{
	struct mfs_fileset *files = arg;

	(void)err;
	mfs_fileset_willneed(files, file, off, len);
	return 0;
}

struct wanted {
	struct mfs_fileset *files;
	struct mfs_present *present;
};

static int add_present(void *arg, uint32_t file, uint64_t off, uint64_t len, struct mfs_error *err)
{
	const struct wanted *w = arg;

	return mfs_present_add(w->present, w->files, file, off, len, err);
}

int mfs_plan_make_present(const struct mfs_plan *plan, uint64_t off, uint64_t len,
			  struct mfs_present *present, struct mfs_error *err)
{
	struct wanted w = {plan->files, present};

	if (mfs_plan_is_quantised(plan))
		mfs_plan_fp8_sources(plan, &off, &len);
	each_of(plan, off, len, ask_for, plan->files, NULL);
	return each_of(plan, off, len, add_present, &w, err);
}

void mfs_plan_willneed(const struct mfs_plan *plan, uint64_t off, uint64_t len)
{
	if (!len)
		return;
	if (mfs_plan_is_quantised(plan))
		mfs_plan_fp8_sources(plan, &off, &len);
	else if (plan->shown != plan->dtype)
		mfs_plan_source_range(plan, &off, &len);
	each_of(plan, off, len, ask_for, plan->files, NULL);
}
