#define _GNU_SOURCE
#include "formats/plan/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/cast.h"
#include "formats/base/grow.h"

#define MAX_BLOCKS (1u << 24)

/* A block before bands are cut: a rectangle of the target matrix. */
struct rect {
	uint64_t row, rows, col, cols;
	uint64_t src, row_stride, col_stride; /* bytes; src of (row, col) */
	uint32_t file;
};

struct builder {
	const struct mfs_target *t;
	struct mfs_ckpt *ckpt;
	enum mfs_dtype dtype; /* of the sources; MFS_DTYPE_NONE: none was seen yet */
	unsigned element;
	uint64_t cols;
	struct rect *rects;
	uint32_t count;
	struct mfs_error *err;
};

static int uncovered(const struct builder *b, const char *what)
{
	char name[MFS_CKPT_NAME_SIZE];

	mfs_target_name(b->t, name, sizeof(name));
	return mfs_fail(b->err, -EINVAL, "%s: tensor '%s': %s", mfs_ckpt_dir(b->ckpt), name, what);
}

/* ---- boxes and chunks to rectangles ---- */

/* Indices [first, last) of a target axis whose source coordinate lies in [lo, hi). */
static bool clip(uint64_t src_lo, uint64_t step, uint64_t size, uint64_t lo, uint64_t hi,
		 uint64_t *first, uint64_t *last)
{
	*first = lo > src_lo ? (lo - src_lo + step - 1) / step : 0;
	*last = hi > src_lo ? mfs_min_u64(size, (hi - src_lo + step - 1) / step) : 0;
	return *first < *last;
}

/* A box of the target that one chunk fills, by axes. */
struct overlap {
	uint64_t lo[MFS_CKPT_DIMS], size[MFS_CKPT_DIMS]; /* of the target */
	uint64_t stride[MFS_CKPT_DIMS];			 /* bytes along target axes */
	uint64_t origin;				 /* bytes from the storage's start */
};

static bool intersect(const struct builder *b, const struct mfs_box_map *m,
		      const struct mfs_chunk *c, struct overlap *p)
{
	uint64_t at[MFS_CKPT_DIMS];

	memcpy(at, m->src_lo, sizeof(at));
	for (unsigned a = 0; a < b->t->ndim; a++) {
		const unsigned s = m->src_axis[a];
		uint64_t first, last;

		if (!clip(m->src_lo[s], m->step[a], m->size[a], c->lo[s], c->lo[s] + c->size[s],
			  &first, &last))
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
static int add_overlap(struct builder *b, const struct overlap *p, uint32_t file, uint64_t base)
{
	const unsigned ndim = b->t->ndim, row_axis = ndim >= 2 ? ndim - 2 : MFS_CKPT_DIMS,
		       col_axis = ndim ? ndim - 1 : MFS_CKPT_DIMS;
	uint64_t index[MFS_CKPT_DIMS] = {0};
	int rc;

	for (;;) {
		struct rect r = {.rows = 1, .cols = 1, .src = base + p->origin, .file = file};
		unsigned a;

		for (a = 0; a < ndim && a != row_axis && a != col_axis; a++) {
			r.row = (r.row + p->lo[a] + index[a]) * b->t->shape[a + 1];
			r.src += index[a] * p->stride[a];
		}
		if (row_axis < ndim) {
			r.row += p->lo[row_axis];
			r.rows = p->size[row_axis];
			r.row_stride = p->stride[row_axis];
		}
		if (col_axis < ndim) {
			r.col = p->lo[col_axis];
			r.cols = p->size[col_axis];
			r.col_stride = p->stride[col_axis];
		}
		rc = add_rect(b, &r);
		if (rc)
			return rc;
		/* Advance the axes in front, the last of them fastest. */
		for (a = ndim >= 2 ? ndim - 2 : 0; a-- > 0;) {
			if (++index[a] < p->size[a])
				break;
			index[a] = 0;
		}
		if (a == (unsigned)-1)
			return 0;
	}
}

static int add_zeros(struct builder *b, const struct mfs_box_map *m)
{
	struct overlap p = {.origin = 0};

	memcpy(p.lo, m->lo, sizeof(p.lo));
	memcpy(p.size, m->size, sizeof(p.size));
	return add_overlap(b, &p, MFS_NO_FILE, 0);
}

/* All sources are of one dtype: that of the first. */
static int set_dtype(struct builder *b, enum mfs_dtype dtype)
{
	char name[MFS_CKPT_NAME_SIZE];

	if (b->dtype == dtype)
		return 0;
	if (b->dtype)
		return uncovered(b, "its sources are of several types");
	b->dtype = dtype;
	b->element = mfs_dtype_size(dtype);
	if (dtype == b->t->dtype || mfs_cast_is_possible(dtype, b->t->dtype))
		return 0;
	mfs_target_name(b->t, name, sizeof(name));
	return mfs_fail(b->err, -ENOTSUP, "%s: tensor '%s' is of %s, which is not cast to %s",
			mfs_ckpt_dir(b->ckpt), name, mfs_dtype_torch(dtype),
			mfs_dtype_torch(b->t->dtype));
}

static int add_box(const struct mfs_box_map *m, void *arg)
{
	struct builder *b = arg;
	const struct mfs_chunk *chunks;
	int rc = 0;

	if (!m->src)
		return add_zeros(b, m);
	rc = set_dtype(b, m->src->dtype);
	if (rc)
		return rc;
	chunks = mfs_ckpt_chunks(b->ckpt, m->src);

	for (uint32_t i = 0; i < m->src->chunk_count && !rc; i++) {
		struct overlap p;
		uint64_t base = 0;
		uint32_t file = MFS_NO_FILE;

		if (!intersect(b, m, &chunks[i], &p))
			continue;
		if (chunks[i].storage == MFS_ZEROS)
			memset(p.stride, 0, sizeof(p.stride));
		else
			rc = mfs_ckpt_locate(b->ckpt, m->src, chunks[i].storage, &file, &base,
					     b->err);
		if (!rc)
			rc = add_overlap(b, &p, file, base);
	}
	return rc;
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

	return (x->col > y->col) - (x->col < y->col);
}

/* The blocks of one band lie side by side and fill its rows. */
static int check_band(const struct builder *b, struct mfs_plan *plan, struct mfs_plan_band *band)
{
	struct mfs_plan_block *blocks = plan->blocks + band->first;
	uint64_t col = 0;

	if (band->count)
		qsort(blocks, band->count, sizeof(*blocks), by_col);
	for (uint32_t i = 0; i < band->count; i++) {
		if (blocks[i].col != col)
			return uncovered(b, blocks[i].col < col
						    ? "two chunks hold the same elements"
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
							     .file = r->file};

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

			if (block->file == MFS_NO_FILE)
				continue;
			if (mfs_mul_overflows(band->rows - 1, block->row_stride, &down) ||
			    mfs_mul_overflows(block->width - 1, block->col_stride, &right) ||
			    mfs_add_overflows(down, right, &end) ||
			    mfs_add_overflows(end, block->src, &end) ||
			    mfs_add_overflows(end, plan->element, &end) ||
			    end > mfs_fileset_size(plan->files, block->file))
				return uncovered(b, "it reaches beyond the end of its file");
		}
	}
	return 0;
}

int mfs_plan_new(const struct mfs_target *t, struct mfs_plan **ret, struct mfs_error *err)
{
	struct builder b = {.t = t, .ckpt = t->ckpt, .err = err};
	struct mfs_plan *plan = calloc(1, sizeof(*plan));
	int rc;

	if (!plan)
		return mfs_fail_nomem(err);
	b.cols = t->ndim ? t->shape[t->ndim - 1] : 1;
	plan->files = mfs_ckpt_files(b.ckpt);
	plan->shown = t->dtype;
	plan->op = mfs_target_op(t);
	plan->cols = b.cols;
	plan->rows = 1;
	for (unsigned a = 0; a + 1 < t->ndim; a++)
		plan->rows *= t->shape[a];
	rc = mfs_target_boxes(t, add_box, &b);
	plan->dtype = b.dtype ? b.dtype : t->dtype; /* all zeros have any type */
	plan->element = mfs_dtype_size(plan->dtype);
	if (!rc)
		rc = make_bands(&b, plan);
	if (!rc)
		rc = check_sources(&b, plan);
	free(b.rects);
	if (rc) {
		mfs_plan_free(plan);
		return rc;
	}
	*ret = plan;
	return 0;
}

void mfs_plan_free(struct mfs_plan *plan)
{
	if (!plan)
		return;
	free(plan->bands);
	free(plan->blocks);
	free(plan);
}
