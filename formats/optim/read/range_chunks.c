/* Ranges of flat buffers as chunks of global tensors. */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/optim/read/range_boxes.h"
#include "formats/optim/read/optim_i.h"

struct emitter {
	struct mfs_ckpt *ckpt;
	const struct mfs_optim_range *range;
	uint64_t inner;		     /* elements of a row of the rank's tensor */
	const struct mfs_box_map *m; /* the box being emitted */
	uint64_t origin;	     /* of the part of the range that lies in it */
	struct mfs_error *err;
};

static int add_box(const uint64_t *lo, const uint64_t *size, uint64_t at, void *arg)
{
	const struct emitter *e = arg;
	const struct mfs_global_tensor *src = e->range->tensor->src;
	struct mfs_found_chunk p = {.name = src->name,
				    .layer = src->layer,
				    .expert = src->expert,
				    .dtype = e->range->dtype,
				    .ndim = src->ndim,
				    .state = (uint8_t)e->range->state};

	memcpy(p.shape, src->shape, sizeof(p.shape));
	mfs_ckpt_contiguous(e->range->tensor->base.shape, p.ndim, p.chunk.stride);
	p.chunk.storage = e->range->storage;
	p.chunk.origin = e->origin + at;
	for (unsigned d = 0; d < p.ndim; d++) {
		p.chunk.lo[d] = e->m->src_lo[d] + lo[d];
		p.chunk.size[d] = size[d];
	}
	return mfs_ckpt_add_found(e->ckpt, &p, e->err);
}

/* A rank's boxes are whole rows, so that each is a range of the flattened tensor. */
static int add_in_box(const struct mfs_box_map *m, void *arg)
{
	struct emitter *e = arg;
	const struct mfs_optim_range *r = e->range;
	const unsigned ndim = r->tensor->base.ndim;
	const uint64_t rows = ndim ? m->size[0] : 1, start = ndim ? m->lo[0] * e->inner : 0;
	const uint64_t first = mfs_max_u64(r->first, start);
	const uint64_t last = mfs_min_u64(r->first + r->count, start + rows * e->inner);

	if (!m->src || first >= last)
		return 0; /* padding of the vocabulary, or another box's */
	e->m = m;
	e->origin = r->origin + (first - r->first);
	return mfs_range_boxes(m->size, ndim, first - start, last - first, add_box, e);
}

int mfs_optim_add_range(struct mfs_ckpt *ckpt, const struct mfs_optim_range *range,
			struct mfs_error *err)
{
	struct emitter e = {.ckpt = ckpt, .range = range, .inner = 1, .err = err};

	for (unsigned d = 1; d < range->tensor->base.ndim; d++)
		e.inner *= range->tensor->base.shape[d];
	return mfs_target_boxes(&range->tensor->base, add_in_box, &e);
}

bool mfs_optim_represents(const struct mfs_rank_tensor *t)
{
	const struct mfs_rank_list *l = t->list;

	if (t->is_copy)
		return false;
	/* Expert-tensor ranks repeat among the tensor ranks. */
	if (t->is_expert && l->rank.tp >= l->layout.etp)
		return false;
	return t->split != MFS_TP_NONE || l->rank.tp == 0;
}
