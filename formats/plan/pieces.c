#include "formats/plan/pieces.h"

#include "formats/base/bytes.h"
#include "formats/base/search.h"
#include "formats/plan/plan_read_i.h"

/* Rows and columns of a target's matrix, in elements, and where the first is in the file. */
struct part {
	const struct mfs_plan *plan;
	uint64_t base; /* of the target in the file */
	uint64_t row, rows, col, cols;
	mfs_piece_visit *visit;
	void *arg;
};

static uint64_t row_bytes(const struct mfs_plan *plan)
{
	return plan->cols * mfs_dtype_size(plan->shown);
}

static struct mfs_rectangle rectangle_of(const struct part *p)
{
	const unsigned size = mfs_dtype_size(p->plan->shown);

	return (struct mfs_rectangle){
		.at = p->base + p->row * row_bytes(p->plan) + p->col * size,
		.rows = p->rows,
		.width = p->cols * size,
		.step = row_bytes(p->plan),
	};
}

static int visit_computed(const struct part *p)
{
	const struct mfs_piece piece = {
		.kind = MFS_PIECE_COMPUTED, .of = rectangle_of(p), .files = p->plan->files};

	return p->visit(p->arg, &piece);
}

/* What of the part is of a block, whose first row is the band's. */
static int visit_block(const struct part *p, const struct mfs_plan_band *band,
		       const struct mfs_plan_block *b)
{
	const uint64_t from = mfs_max_u64(p->col, b->col);
	const uint64_t to = mfs_min_u64(p->col + p->cols, b->col + b->width);
	struct part of = *p;
	struct mfs_piece piece = {.kind = MFS_PIECE_ZEROS};

	if (from >= to)
		return 0;
	of.col = from;
	of.cols = to - from;
	piece.of = rectangle_of(&of);
	if (b->file != MFS_FILE_NONE) {
		piece.kind = MFS_PIECE_SOURCE;
		piece.files = p->plan->files;
		piece.file = b->file;
		piece.off = b->src + (p->row - band->row) * b->row_stride +
			    (from - b->col) * p->plan->element;
		piece.row_step = b->row_stride;
	}
	return p->visit(p->arg, &piece);
}

/* p lies in the band. */
static int visit_band(const struct part *p, const struct mfs_plan_band *band)
{
	int rc = 0;

	if (band->apart)
		return visit_computed(p);
	for (uint32_t i = 0; i < band->count && !rc; i++)
		rc = visit_block(p, band, &p->plan->blocks[band->first + i]);
	return rc;
}

static int visit_part(const struct part *p)
{
	const struct mfs_plan *plan = p->plan;
	const uint64_t end = p->row + p->rows;
	struct part of = *p;
	int rc = 0;

	for (uint32_t i =
		     (uint32_t)mfs_last_while(i, plan->band_count, plan->bands[i].row <= p->row);
	     of.row < end && !rc; i++) {
		const struct mfs_plan_band *band = &plan->bands[i];

		of.rows = mfs_min_u64(end, band->row + band->rows) - of.row;
		rc = visit_band(&of, band);
		of.row += of.rows;
	}
	return rc;
}

/* Elements [first, first + count) of the target, in its order: the rest of a row, whole rows, and
 * the beginning of one. */
static int visit_run(struct part *p, uint64_t first, uint64_t count)
{
	const uint64_t cols = p->plan->cols;
	int rc = 0;

	for (uint64_t n; count && !rc; first += n, count -= n) {
		p->row = first / cols;
		p->col = first % cols;
		p->rows = p->col ? 1 : mfs_max_u64(count / cols, 1);
		p->cols = p->col || count < cols ? mfs_min_u64(count, cols - p->col) : cols;
		n = p->rows * p->cols;
		rc = visit_part(p);
	}
	return rc;
}

/* A range that cuts an element is read whole, and so is what is no rectangle of the sources. */
static int visit_bytes(const struct mfs_plan *plan, const struct mfs_rectangle *r,
		       mfs_piece_visit *visit, void *arg)
{
	const struct mfs_piece piece = {.kind = MFS_PIECE_COMPUTED, .of = *r, .files = plan->files};

	return visit(arg, &piece);
}

int mfs_plan_pieces(const struct mfs_plan *plan, uint64_t base, const struct mfs_rectangle *r,
		    mfs_piece_visit *visit, void *arg)
{
	const unsigned size = mfs_dtype_size(plan->shown);
	const uint64_t at = r->at - base, first = at / size, cols = r->width / size;
	struct part p = {.plan = plan, .base = base, .visit = visit, .arg = arg};
	int rc = 0;

	if (!mfs_plan_is_referenced(plan) || at % size || r->width % size ||
	    (r->rows > 1 && r->step % size))
		return visit_bytes(plan, r, visit, arg);
	if (r->rows == 1 || r->step != row_bytes(plan) || first % plan->cols + cols > plan->cols) {
		for (uint64_t i = 0; i < r->rows && !rc; i++)
			rc = visit_run(&p, first + i * (r->rows > 1 ? r->step / size : 0), cols);
		return rc;
	}
	p.row = first / plan->cols;
	p.col = first % plan->cols;
	p.rows = r->rows;
	p.cols = cols;
	return visit_part(&p);
}
