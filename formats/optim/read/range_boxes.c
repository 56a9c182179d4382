#include "formats/optim/read/range_boxes.h"

struct cut {
	const uint64_t *shape;
	unsigned ndim;
	uint64_t lo[MFS_MAX_DIMS], size[MFS_MAX_DIMS]; /* of the axes that are settled */
	uint64_t stride[MFS_MAX_DIMS];
	uint64_t first;
	mfs_emit_range_box emit;
	void *arg;
};

/* Rows [row, row + rows) of an axis, all of those inside of them. */
static int emit_rows(struct cut *c, unsigned axis, uint64_t row, uint64_t rows)
{
	uint64_t at = 0;

	c->lo[axis] = row;
	c->size[axis] = rows;
	for (unsigned a = axis + 1; a < c->ndim; a++) {
		c->lo[a] = 0;
		c->size[a] = c->shape[a];
	}
	for (unsigned a = 0; a <= axis; a++)
		at += c->lo[a] * c->stride[a];
	return c->emit(c->lo, c->size, at - c->first, c->arg);
}

/* Elements [first, last) of the slice that the axes before this one have settled. */
static int cut_axis(struct cut *c, unsigned axis, uint64_t first, uint64_t last)
{
	const uint64_t inner = c->stride[axis];
	uint64_t row = first / inner, end = last / inner;
	int rc = 0;

	if (first % inner) {
		const uint64_t stop = row < end ? inner : last - row * inner;

		c->lo[axis] = row;
		c->size[axis] = 1;
		rc = cut_axis(c, axis + 1, first % inner, stop);
		row++;
	}
	if (!rc && row < end)
		rc = emit_rows(c, axis, row, end - row);
	if (rc || last % inner == 0 || row > end)
		return rc;
	c->lo[axis] = end;
	c->size[axis] = 1;
	return cut_axis(c, axis + 1, 0, last % inner);
}

int mfs_range_boxes(const uint64_t *shape, unsigned ndim, uint64_t first, uint64_t count,
		    mfs_emit_range_box emit, void *arg)
{
	struct cut c = {.shape = shape, .ndim = ndim, .first = first, .emit = emit, .arg = arg};
	uint64_t stride = 1;

	if (!count)
		return 0;
	if (!ndim)
		return emit(c.lo, c.size, 0, arg);
	for (unsigned a = ndim; a-- > 0;) {
		c.stride[a] = stride;
		stride *= shape[a];
	}
	return cut_axis(&c, 0, first, first + count);
}
