#define _GNU_SOURCE
#include "formats/plan/plan_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/numbers/cast.h"
#include "formats/base/grow.h"
#include "formats/base/trace.h"
#include "formats/ckpt/fp8_target.h"

#define MAX_BLOCKS (1u << 24)

/* A block before bands are cut: a rectangle of the target matrix. */
struct rect {
	uint64_t row, rows, col, cols;
	uint64_t src, row_stride, col_stride; /* bytes; src of (row, col) */
	uint32_t file, scales, lane;
};

struct builder {
	struct mfs_plan *plan;
	const struct mfs_target *t;
	struct mfs_ckpt *ckpt;
	enum mfs_dtype dtype; /* of the sources; MFS_DTYPE_NONE: none was seen yet */
	unsigned element;
	unsigned lanes; /* 0: no box was seen yet */
	uint64_t cols;
	struct rect *rects;
	uint32_t count;
	struct mfs_plan_scales *scales;
	uint32_t scales_count;
	struct mfs_error *err;
};

static int uncovered(const struct builder *b, const char *what)
{
	char name[MFS_CKPT_NAME_SIZE];

	mfs_target_name(b->t, name, sizeof(name));
	return mfs_fail(b->err, -EINVAL, "%s: tensor '%s': %s", mfs_ckpt_dir(b->ckpt), name, what);
}

/* ---- boxes and chunks to rectangles ---- */

bool mfs_plan_clip(uint64_t src_lo, uint64_t step, uint64_t size, uint64_t lo, uint64_t hi,
		   uint64_t *first, uint64_t *last)
{
	*first = lo > src_lo ? (lo - src_lo + step - 1) / step : 0;
	*last = hi > src_lo ? mfs_min_u64(size, (hi - src_lo + step - 1) / step) : 0;
	return *first < *last;
}

bool mfs_plan_next(unsigned ndim, const uint64_t *size, uint64_t *index)
{
	for (unsigned a = ndim >= 2 ? ndim - 2 : 0; a-- > 0;) {
		if (++index[a] < size[a])
			return true;
		index[a] = 0;
	}
	return false;
}

uint64_t mfs_plan_row(const struct mfs_target *t, const uint64_t *lo, const uint64_t *index)
{
	const unsigned rows = mfs_plan_row_axis(t->ndim);
	uint64_t row = 0;

	for (unsigned a = 0; a + 2 < t->ndim; a++)
		row = (row + lo[a] + index[a]) * t->shape[a + 1];
	return row + (rows < t->ndim ? lo[rows] : 0);
}

/* A box of the target that one chunk fills, by axes. */
struct overlap {
	uint64_t lo[MFS_CKPT_DIMS], size[MFS_CKPT_DIMS]; /* of the target */
	uint64_t stride[MFS_CKPT_DIMS];			 /* bytes along target axes */
	uint64_t origin;				 /* bytes from the storage's start */
	uint32_t lane;
};

static bool intersect(const struct builder *b, const struct mfs_box_map *m,
		      const struct mfs_chunk *c, struct overlap *p)
{
	uint64_t at[MFS_CKPT_DIMS];

	memcpy(at, m->src_lo, sizeof(at));
	for (unsigned a = 0; a < b->t->ndim; a++) {
		const unsigned s = m->src_axis[a];
		uint64_t first, last;

		if (s == MFS_AXIS_NONE) {
			p->lo[a] = m->lo[a];
			p->size[a] = m->size[a];
			p->stride[a] = 0;
			continue;
		}
		if (!mfs_plan_clip(m->src_lo[s], m->step[a], m->size[a], c->lo[s],
				   c->lo[s] + c->size[s], &first, &last))
			return false;
		p->lo[a] = m->lo[a] + first;
		p->size[a] = last - first;
		p->stride[a] = c->stride[s] * m->step[a] * b->element;
		at[s] = m->src_lo[s] + first * m->step[a];
	}
	p->origin = c->origin;
	for (unsigned s = 0; s < m->src->ndim; s++) {
		/* Mapped axes were clipped above; one that the rule fixes may lie outside. */
		if (at[s] < c->lo[s] || at[s] - c->lo[s] >= c->size[s])
			return false;
		p->origin += (at[s] - c->lo[s]) * c->stride[s];
	}
	p->origin *= b->element;
	p->lane = m->lane;
	return true;
}

static int add_rect(struct builder *b, const struct rect *r)
{
	if (b->count == MAX_BLOCKS)
		return uncovered(b, "in too many pieces");
	if (mfs_grow(&b->rects, b->count))
		return mfs_fail_nomem(b->err);
	b->rects[b->count++] = *r;
	return 0;
}

/* The last two axes make a rectangle; axes in front of them make several. */
static int add_overlap(struct builder *b, const struct overlap *p, uint32_t file, uint64_t base,
		       uint32_t scales)
{
	const unsigned ndim = b->t->ndim, row_axis = mfs_plan_row_axis(ndim),
		       col_axis = mfs_plan_col_axis(ndim);
	uint64_t index[MFS_CKPT_DIMS] = {0};
	int rc;

	do {
		struct rect r = {.row = mfs_plan_row(b->t, p->lo, index),
				 .rows = 1,
				 .cols = 1,
				 .src = base + p->origin,
				 .file = file,
				 .scales = scales,
				 .lane = p->lane};

		for (unsigned a = 0; a + 2 < ndim; a++)
			r.src += index[a] * p->stride[a];
		if (row_axis < ndim) {
			r.rows = p->size[row_axis];
			r.row_stride = p->stride[row_axis];
		}
		if (col_axis < ndim) {
			r.col = p->lo[col_axis];
			r.cols = p->size[col_axis];
			r.col_stride = p->stride[col_axis];
		}
		rc = add_rect(b, &r);
	} while (!rc && mfs_plan_next(ndim, p->size, index));
	return rc;
}

static int add_zeros(struct builder *b, const struct mfs_box_map *m)
{
	struct overlap p = {.lane = m->lane};

	memcpy(p.lo, m->lo, sizeof(p.lo));
	memcpy(p.size, m->size, sizeof(p.size));
	return add_overlap(b, &p, MFS_FILE_NONE, 0, MFS_SCALES_NONE);
}

/* All sources are of one dtype: that of the first. */
static int set_dtype(struct builder *b, const struct mfs_global_tensor *src)
{
	const enum mfs_dtype dtype = src->dtype, stored = mfs_global_tensor_stored(src);
	char name[MFS_CKPT_NAME_SIZE];

	if (b->dtype == stored)
		return 0;
	if (b->dtype)
		return uncovered(b, "its sources are of several types");
	b->dtype = stored;
	b->element = mfs_dtype_size(stored);
	if (mfs_cast_is_possible(dtype, b->t->dtype) || (dtype == b->t->dtype && dtype == stored))
		return 0;
	mfs_target_name(b->t, name, sizeof(name));
	return mfs_fail(b->err, -ENOTSUP, "%s: tensor '%s' is of %s, which is not cast to %s",
			mfs_ckpt_dir(b->ckpt), name, mfs_dtype_torch(dtype),
			mfs_dtype_torch(b->t->dtype));
}

/* The scales of a chunk whose storage's first byte is at base of its file. */
static int add_scales(struct builder *b, const struct mfs_global_tensor *t,
		      const struct mfs_chunk *c, uint64_t base, uint32_t *ret)
{
	const struct mfs_ckpt_scales *scales = mfs_ckpt_scales(b->ckpt, c);
	struct mfs_plan_scales s = {0};
	int rc;

	*ret = MFS_SCALES_NONE;
	if (!scales)
		return 0;
	s.of = *scales;
	s.matrix = base + scales->matrix;
	rc = mfs_ckpt_locate(b->ckpt, t, scales->storage, &s.file, &s.at, b->err);
	s.at += scales->first * mfs_dtype_size(scales->dtype);
	if (!rc && mfs_grow(&b->scales, b->scales_count))
		rc = mfs_fail_nomem(b->err);
	if (rc)
		return rc;
	b->scales[b->scales_count] = s;
	*ret = b->scales_count++;
	return 0;
}

static int set_lanes(struct builder *b, const struct mfs_box_map *m)
{
	const unsigned lanes = m->lanes ? m->lanes : 1;

	if (b->lanes && b->lanes != lanes)
		return uncovered(b, "its sources alternate in several ways");
	b->lanes = lanes;
	if (b->cols % lanes || m->lane >= lanes)
		return uncovered(b, "its columns are no multiple of the tensors that alternate");
	return 0;
}

static int add_box(const struct mfs_box_map *m, void *arg)
{
	struct builder *b = arg;
	const struct mfs_chunk *chunks;
	int rc = set_lanes(b, m);

	if (!rc && !m->src)
		return add_zeros(b, m);
	if (!rc)
		rc = set_dtype(b, m->src);
	if (rc)
		return rc;
	chunks = mfs_ckpt_chunks(b->ckpt, m->src);

	for (uint32_t i = 0; i < m->src->chunk_count && !rc; i++) {
		struct overlap p;
		uint64_t base = 0;
		uint32_t file = MFS_FILE_NONE, scales = MFS_SCALES_NONE;

		if (!intersect(b, m, &chunks[i], &p))
			continue;
		if (chunks[i].storage == MFS_ZEROS)
			memset(p.stride, 0, sizeof(p.stride));
		else
			rc = mfs_ckpt_locate(b->ckpt, m->src, chunks[i].storage, &file, &base,
					     b->err);
		if (!rc && file != MFS_FILE_NONE)
			rc = add_scales(b, m->src, &chunks[i], base, &scales);
		if (!rc)
			rc = add_overlap(b, &p, file, base, scales);
	}
	return rc ? rc : mfs_plan_add_deltas(b->plan, b->t, m, b->err);
}

/* ---- rectangles to bands ---- */

static int by_row(const void *a, const void *b)
{
	const struct rect *x = a, *y = b;

	if (x->row != y->row)
		return x->row < y->row ? -1 : 1;
	return (x->col > y->col) - (x->col < y->col);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* All rows at which a rectangle begins or ends, ascending, each once. */
static uint64_t *row_edges(const struct builder *b, uint32_t *ret_count)
{
	uint64_t *edges = calloc(2 * (size_t)b->count + 1, sizeof(*edges));
	uint32_t count = 0;

	if (!edges)
		return NULL;
	for (uint32_t i = 0; i < b->count; i++) {
		edges[2 * i] = b->rects[i].row;
		edges[2 * i + 1] = b->rects[i].row + b->rects[i].rows;
	}
	qsort(edges, 2 * (size_t)b->count, sizeof(*edges), by_value);
	for (uint32_t i = 0; i < 2 * b->count; i++)
		if (!count || edges[count - 1] != edges[i])
			edges[count++] = edges[i];
	*ret_count = count;
	return edges;
}

static int add_block(struct mfs_plan *plan, const struct mfs_plan_block *block,
		     struct mfs_error *err)
{
	if (plan->block_count == MAX_BLOCKS)
		return mfs_fail(err, -EINVAL, "a tensor is in too many pieces");
	if (mfs_grow(&plan->blocks, plan->block_count))
		return mfs_fail_nomem(err);
	plan->blocks[plan->block_count++] = *block;
	return 0;
}

static int by_col(const void *a, const void *b)
{
	const struct mfs_plan_block *x = a, *y = b;

	if (x->lane != y->lane)
		return x->lane < y->lane ? -1 : 1;
	return (x->col > y->col) - (x->col < y->col);
}

/* The blocks of one band and lane lie side by side and fill its rows. */
static int check_band(const struct builder *b, struct mfs_plan *plan, struct mfs_plan_band *band)
{
	struct mfs_plan_block *blocks = plan->blocks + band->first;
	const uint64_t width = b->cols / b->lanes;
	uint64_t col = 0; /* lane after lane */

	if (band->count)
		qsort(blocks, band->count, sizeof(*blocks), by_col);
	for (uint32_t i = 0; i < band->count; i++) {
		const uint64_t at = blocks[i].lane * width + blocks[i].col;

		if (at != col)
			return uncovered(b, at < col ? "two chunks hold the same elements"
						     : "some elements are in no chunk");
		col += blocks[i].width;
	}
	return col == b->cols ? 0 : uncovered(b, "some elements are in no chunk");
}

/* Goes from edge to edge, and keeps a list of the rectangles that cross the current band. */
static int cut_bands(struct builder *b, struct mfs_plan *plan, const uint64_t *edges,
		     uint32_t count)
{
	struct rect **active = calloc((size_t)b->count + 1, sizeof(*active));
	uint32_t active_count = 0, next = 0;
	int rc = 0;

	plan->bands = calloc((size_t)count + 1, sizeof(*plan->bands));
	if (!active || !plan->bands)
		rc = mfs_fail_nomem(b->err);
	for (uint32_t e = 0; e + 1 < count && !rc; e++) {
		struct mfs_plan_band *band = &plan->bands[plan->band_count++];
		uint32_t kept = 0;

		*band = (struct mfs_plan_band){.row = edges[e],
					       .rows = edges[e + 1] - edges[e],
					       .first = plan->block_count};
		for (uint32_t i = 0; i < active_count; i++)
			if (active[i]->row + active[i]->rows > edges[e])
				active[kept++] = active[i];
		active_count = kept;
		while (next < b->count && b->rects[next].row == edges[e])
			active[active_count++] = &b->rects[next++];
		for (uint32_t i = 0; i < active_count && !rc; i++) {
			const struct rect *r = active[i];
			const struct mfs_plan_block block = {.col = r->col,
							     .width = r->cols,
							     .src = r->src + (edges[e] - r->row) *
										     r->row_stride,
							     .row_stride = r->row_stride,
							     .col_stride = r->col_stride,
							     .file = r->file,
							     .scales = r->scales,
							     .lane = r->lane};

			rc = add_block(plan, &block, b->err);
			band->count++;
		}
		if (!rc)
			rc = check_band(b, plan, band);
	}
	free(active);
	return rc;
}

static int make_bands(struct builder *b, struct mfs_plan *plan)
{
	uint64_t *edges;
	uint32_t count;
	int rc;

	if (!b->count)
		return plan->rows && plan->cols ? uncovered(b, "no chunk holds any of it") : 0;
	qsort(b->rects, b->count, sizeof(*b->rects), by_row);
	edges = row_edges(b, &count);
	if (!edges)
		return mfs_fail_nomem(b->err);
	if (edges[0] != 0 || edges[count - 1] != plan->rows)
		rc = uncovered(b, "some rows are in no chunk");
	else
		rc = cut_bands(b, plan, edges, count);
	free(edges);
	return rc;
}

/* No block may reach outside of its file. Reads rely on this and check nothing more. */
static int check_sources(const struct builder *b, const struct mfs_plan *plan)
{
	for (uint32_t i = 0; i < plan->band_count; i++) {
		const struct mfs_plan_band *band = &plan->bands[i];

		for (uint32_t k = 0; k < band->count; k++) {
			const struct mfs_plan_block *block = &plan->blocks[band->first + k];
			uint64_t down, right, end;

			if (block->file == MFS_FILE_NONE)
				continue;
			if (mfs_mul_overflows(band->rows - 1, block->row_stride, &down) ||
			    mfs_mul_overflows(block->width - 1, block->col_stride, &right) ||
			    mfs_add_overflows(down, right, &end) ||
			    mfs_add_overflows(end, block->src, &end) ||
			    mfs_add_overflows(end, plan->element - 1u, &end) ||
			    mfs_plan_place(plan, block, end) >=
				    mfs_fileset_size(plan->files, block->file))
				return uncovered(b, "it reaches beyond the end of its file");
		}
	}
	return 0;
}

/* The tensor whose elements the boxes are: a matrix, where t is what it is quantised to. */
static const struct mfs_target *matrix_of(const struct mfs_target *t)
{
	const enum mfs_op op = mfs_target_op(t);

	return op == MFS_OP_QUANTISE || op == MFS_OP_SCALES ? ((const struct mfs_fp8_target *)t)->of
							    : t;
}

static int add_all(struct builder *b, struct mfs_plan *plan)
{
	const struct mfs_target *t = b->t;
	int rc;

	plan->rows = 1;
	for (unsigned a = 0; a + 1 < t->ndim; a++)
		plan->rows *= t->shape[a];
	plan->cols = b->cols = t->ndim ? t->shape[t->ndim - 1] : 1;
	rc = mfs_target_boxes(t, add_box, b);
	plan->dtype = b->dtype ? b->dtype : t->dtype; /* all zeros have any type */
	plan->element = mfs_dtype_size(plan->dtype);
	plan->lanes = b->lanes ? b->lanes : 1;
	plan->scales = b->scales;
	plan->scales_count = b->scales_count;
	if (!rc)
		rc = make_bands(b, plan);
	return rc ? rc : check_sources(b, plan);
}

static void trace(const struct mfs_target *t, const struct mfs_plan *plan)
{
	char name[256];

	mfs_target_name(t, name, sizeof(name));
	MFS_TRACE(PLAN, "%s: [%llu, %llu], %u bands, %u blocks", name,
		  (unsigned long long)plan->rows, (unsigned long long)plan->cols, plan->band_count,
		  plan->block_count);
}

int mfs_plan_new(const struct mfs_target *t, struct mfs_plan **ret, struct mfs_error *err)
{
	struct mfs_plan *plan = calloc(1, sizeof(*plan));
	struct builder b = {.plan = plan, .t = matrix_of(t), .ckpt = t->ckpt, .err = err};
	int rc = 0;

	if (!plan)
		return mfs_fail_nomem(err);
	plan->files = mfs_ckpt_files(b.ckpt);
	plan->shown = t->dtype;
	plan->op = mfs_target_op(t);
	if (b.t != t) {
		plan->known = ((const struct mfs_fp8_target *)t)->scales;
		plan->parts = ((const struct mfs_fp8_target *)t)->parts;
	}
	if (plan->known)
		rc = mfs_fp8_scales_ready(plan->known, err);
	if (!rc)
		rc = add_all(&b, plan);
	free(b.rects);
	if (rc) {
		mfs_plan_free(plan);
		return rc;
	}
	mfs_plan_choose(plan);
	if (MFS_TRACES(PLAN))
		trace(t, plan);
	*ret = plan;
	return 0;
}

void mfs_plan_free(struct mfs_plan *plan)
{
	if (!plan)
		return;
	free(plan->bands);
	free(plan->blocks);
	free(plan->scales);
	mfs_plan_release_deltas(plan);
	free(plan);
}
