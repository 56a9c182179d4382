/*
 * Matrices of 8-bit and 4-bit floats in the sources, and what is shown as the former. A read of the
 * latter looks at whole blocks of the sources first, unless their scales are known from another
 * read.
 */
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/numbers/fp4.h"
#include "formats/numbers/fp8.h"
#include "formats/ckpt/fp8_target.h"
#include "formats/plan/gather.h"
#include "formats/plan/plan_read_i.h"

#define BLOCKS 64   /* whose scales are at hand at once */
#define STRIPE 4096 /* columns whose magnitudes are */

/* ---- sources ---- */

static float scale_at(const struct mfs_ckpt_scales *of, const uint8_t *scales, uint64_t i)
{
	if (of->dtype == MFS_U8)
		return mfs_fp4_half_scale(scales[i]);
	if (of->dtype == MFS_BF16)
		return mfs_bf16_to_float(mfs_le16(scales + 2 * i));
	return mfs_bits_to_float(mfs_le32(scales + 4 * i));
}

/* The part of n elements from column col on that lies in one row, and in few enough blocks. */
static struct mfs_fp8_run run_of(uint64_t col, uint64_t cols, uint64_t block, uint64_t n)
{
	const uint64_t first = col % block;

	return (struct mfs_fp8_run){
		.first = first,
		.block = block,
		.count = mfs_min_u64(mfs_min_u64(n, cols - col), BLOCKS * block - first)};
}

static uint64_t blocks_of(const struct mfs_fp8_run *run)
{
	return (run->first + run->count - 1) / run->block + 1;
}

int mfs_plan_dequantise(struct mfs_plan_reader *r, const struct mfs_plan_block *block, uint64_t src,
			const uint8_t *map, uint64_t n)
{
	const struct mfs_plan_scales *s = &r->plan->scales[block->scales];
	const uint8_t *matrix = map + s->matrix, *scales_map;
	uint8_t unpacked[BLOCKS * MFS_FP4_BLOCK];
	float scales[BLOCKS];
	int rc = mfs_plan_map(r, s->file, &scales_map);

	for (uint64_t at = src - s->matrix; n && !rc;) {
		const uint64_t row = at / s->of.cols, col = at % s->of.cols;
		const struct mfs_fp8_run run = run_of(col, s->of.cols, s->of.block_cols, n);
		const uint64_t first =
			row / s->of.block_rows * s->of.stride + col / s->of.block_cols;

		for (uint64_t i = 0; i < blocks_of(&run); i++)
			scales[i] = scale_at(&s->of, scales_map + s->at, first + i);
		if (mfs_plan_is_fp4(s))
			mfs_fp4_doubled(unpacked, matrix, at, run.count);
		mfs_fp8_dequantise(&run, r->plan->shown, r->cast_to,
				   mfs_plan_is_fp4(s) ? unpacked : matrix + at, scales);
		r->cast_to += run.count * mfs_dtype_size(r->plan->shown);
		at += run.count;
		n -= run.count;
	}
	return rc;
}

/* ---- scales that are found out ---- */

/* Raises most to the elements. */
static void look(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n)
{
	const unsigned element = r->plan->element;

	for (n /= element; n;) {
		const uint64_t col = r->at % r->plan->cols;
		const uint64_t count = mfs_min_u64(n, r->plan->cols - col);

		mfs_fp8_raise(r->plan->dtype, r->most->magnitudes + (col - r->most->col) * element,
			      p, count);
		r->at += count;
		p += count * element;
		n -= count;
	}
}

static void skip_zeros(struct mfs_plan_reader *r, uint64_t n)
{
	r->at += n / r->plan->element;
}

static const struct mfs_plan_taker_ops looking = {look, skip_zeros};

/* Columns [col, end) of rows [row, row + rows): the magnitudes of each column. */
static void look_at(struct mfs_plan_reader *r, uint64_t row, uint64_t rows, uint64_t col,
		    uint64_t end)
{
	const uint64_t cols = r->plan->cols, element = r->plan->element;
	const bool whole = end - col == cols; /* rows that follow one another */

	for (uint64_t i = 0; i < (whole ? 1 : rows) && !r->rc; i++) {
		r->at = (row + i) * cols + col;
		r->rc = mfs_plan_gather_range(r, r->at * element,
					      (whole ? rows * cols : end - col) * element);
	}
}

/* The scales of blocks [first, end), at most BLOCKS of them, in a row of blocks. */
static void find_scales(struct mfs_plan_reader *r, uint64_t grid_row, uint64_t first, uint64_t end)
{
	struct mfs_fp8_scales *s = r->plan->known;
	const uint64_t row = grid_row * s->block_rows,
		       cols = mfs_min_u64(end * s->block_cols, s->cols);
	const uint64_t rows = mfs_min_u64(s->block_rows, s->rows - row);
	uint8_t magnitudes[STRIPE * sizeof(float)];
	uint32_t largest[BLOCKS] = {0};
	struct mfs_plan_most most = {.magnitudes = magnitudes};

	r->most = &most;
	r->taker = &looking;
	for (uint64_t col = first * s->block_cols, to; col < cols && !r->rc; col = to) {
		to = mfs_min_u64(col + STRIPE, cols);
		most.col = col;
		memset(magnitudes, 0, sizeof(magnitudes));
		look_at(r, row, rows, col, to);
		for (uint64_t c = col, n; c < to; c += n) {
			const uint64_t b = c / s->block_cols;
			uint32_t v;

			n = mfs_min_u64(to, (b + 1) * s->block_cols) - c;
			v = mfs_fp8_largest(r->plan->dtype,
					    magnitudes + (c - col) * r->plan->element, n);
			largest[b - first] = v > largest[b - first] ? v : largest[b - first];
		}
	}
	r->most = NULL;
	r->taker = r->plan->taker;
	for (uint64_t b = first; b < end && !r->rc; b++)
		atomic_store_explicit(&s->bits[grid_row * s->grid_cols + b],
				      mfs_float_to_bits(mfs_fp8_scale(largest[b - first])),
				      memory_order_relaxed);
}

static uint32_t known_bits(const struct mfs_fp8_scales *s, uint64_t i)
{
	return atomic_load_explicit(&s->bits[i], memory_order_relaxed);
}

/* Threads that need the same block may both look: they find the same. */
static void need_blocks(struct mfs_plan_reader *r, uint64_t grid_row, uint64_t first, uint64_t end)
{
	const struct mfs_fp8_scales *s = r->plan->known;

	for (uint64_t b = first, to; b < end && !r->rc; b = to) {
		to = mfs_min_u64(b + BLOCKS, end);
		for (uint64_t i = b; i < to; i++)
			if (!known_bits(s, grid_row * s->grid_cols + i)) {
				find_scales(r, grid_row, b, to);
				break;
			}
	}
}

/* The blocks of elements [first, end) of the matrix. */
static void need_elements(struct mfs_plan_reader *r, uint64_t first, uint64_t end)
{
	const struct mfs_fp8_scales *s = r->plan->known;

	for (uint64_t at = first; at < end && !r->rc;) {
		const uint64_t row = at / s->cols, col = at % s->cols;
		const uint64_t last = mfs_min_u64(end - row * s->cols, s->cols);
		const uint64_t grid_row = row / s->block_rows;

		need_blocks(r, grid_row, col / s->block_cols, (last - 1) / s->block_cols + 1);
		/* The second row has all blocks that this row of blocks can need. */
		at = col ? (row + 1) * s->cols : (grid_row + 1) * s->block_rows * s->cols;
	}
}

/* The blocks [first, end) of the matrix. */
static void need_grid(struct mfs_plan_reader *r, uint64_t first, uint64_t end)
{
	const uint64_t cols = r->plan->known->grid_cols;

	for (uint64_t at = first; at < end && !r->rc; at = (at / cols + 1) * cols)
		need_blocks(r, at / cols, at % cols, mfs_min_u64(end - at / cols * cols, cols));
}

/* ---- parts, which have scales of their own ---- */

static uint32_t part_at(const struct mfs_plan *plan, uint64_t row)
{
	const struct mfs_fp8_parts *p = &plan->parts;

	return (uint32_t)mfs_last_while(i, p->count, p->at[i].row <= row);
}

/* 0: not known yet. */
static uint32_t part_bits(const struct mfs_fp8_part *p)
{
	const struct mfs_fp8_scales *s = p->scale->scales;

	return atomic_load(&s->bits) ? known_bits(s, 0) : 0;
}

/* Reads the scale, which is kept from then on. */
static int find_part(const struct mfs_fp8_part *p, struct mfs_error *err)
{
	struct mfs_gather gather;
	struct mfs_plan *plan;
	int rc = mfs_plan_new(&p->scale->base, &plan, err);

	if (rc)
		return rc;
	rc = mfs_gather_init(&gather, sizeof(float), 1) ? mfs_fail_nomem(err) : 0;
	if (!rc)
		rc = mfs_plan_gather(plan, 0, sizeof(float), &gather, err);
	mfs_gather_release(&gather);
	mfs_plan_free(plan);
	return rc;
}

int mfs_plan_need_parts(const struct mfs_plan *plan, uint64_t off, uint64_t len,
			struct mfs_error *err)
{
	const bool scales = plan->op == MFS_OP_SCALES;
	const uint64_t last = off + len - 1;
	const uint64_t first = scales ? off / sizeof(float) : part_at(plan, off / plan->cols);
	const uint64_t end = 1 + (scales ? last / sizeof(float) : part_at(plan, last / plan->cols));
	int rc = 0;

	for (uint64_t i = first; i < end && !rc; i++)
		if (!part_bits(&plan->parts.at[i]))
			rc = find_part(&plan->parts.at[i], err);
	return rc;
}

static void quantise_parts(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n)
{
	const struct mfs_fp8_parts *parts = &r->plan->parts;

	while (n) {
		const uint32_t i = part_at(r->plan, r->at / r->plan->cols);
		const uint64_t end =
			i + 1 < parts->count ? parts->at[i + 1].row * r->plan->cols : UINT64_MAX;
		const uint64_t count = mfs_min_u64(n, end - r->at);
		const struct mfs_fp8_run run = {.block = count, .count = count};
		const float scale = mfs_bits_to_float(part_bits(&parts->at[i]));

		mfs_fp8_quantise(&run, r->cast_to, r->plan->dtype, p, &scale);
		r->cast_to += count;
		r->at += count;
		p += count * r->plan->element;
		n -= count;
	}
}

/* ---- what is shown ---- */

void mfs_plan_quantise(struct mfs_plan_reader *r, const uint8_t *p, uint64_t n)
{
	const struct mfs_fp8_scales *s = r->plan->known;
	float scales[BLOCKS];

	if (!s) {
		quantise_parts(r, p, n);
		return;
	}
	while (n) {
		const uint64_t row = r->at / s->cols, col = r->at % s->cols;
		const struct mfs_fp8_run run = run_of(col, s->cols, s->block_cols, n);
		const uint64_t first = row / s->block_rows * s->grid_cols + col / s->block_cols;

		for (uint64_t i = 0; i < blocks_of(&run); i++)
			scales[i] = mfs_bits_to_float(known_bits(s, first + i));
		mfs_fp8_quantise(&run, r->cast_to, r->plan->dtype, p, scales);
		r->cast_to += run.count;
		r->at += run.count;
		p += run.count * r->plan->element;
		n -= run.count;
	}
}

void mfs_plan_fp8_range(struct mfs_plan_reader *r)
{
	const uint64_t off = r->off, len = r->len;
	uint8_t *to = r->cast_to;

	r->cast_to = NULL;
	if (r->plan->op == MFS_OP_SCALES) {
		if (r->plan->known)
			need_grid(r, off / 4, off / 4 + len / 4);
		for (uint64_t i = 0; i < len / 4; i++) {
			const uint32_t bits = r->plan->known
						      ? known_bits(r->plan->known, off / 4 + i)
						      : part_bits(&r->plan->parts.at[off / 4 + i]);

			memcpy(to + 4 * i, &bits, sizeof(bits));
		}
		return;
	}
	if (r->plan->known)
		need_elements(r, off, off + len);
	if (r->rc)
		return;
	r->cast_to = to;
	r->at = off;
	r->rc = mfs_plan_gather_range(r, off * r->plan->element, len * r->plan->element);
}

void mfs_plan_fp8_sources(const struct mfs_plan *plan, uint64_t *off, uint64_t *len)
{
	const struct mfs_fp8_scales *s = plan->known;
	uint64_t cols, first, end, row_bytes;

	if (!s) { /* the scales are known already */
		*off = plan->op == MFS_OP_SCALES ? 0 : *off * plan->element;
		*len = plan->op == MFS_OP_SCALES ? 0 : *len * plan->element;
		return;
	}
	cols = plan->op == MFS_OP_SCALES ? s->grid_cols * sizeof(float) : s->cols * s->block_rows;
	first = *off / cols;
	end = (*off + *len - 1) / cols + 1;
	row_bytes = s->cols * plan->element;
	*off = first * s->block_rows * row_bytes;
	*len = mfs_min_u64(end * s->block_rows, s->rows) * row_bytes - *off;
}
