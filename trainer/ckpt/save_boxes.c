/*
 * Which boxes of the model's tensors a process writes.
 *
 * Processes with the same part of a tensor (data parallelism) divide it among themselves by
 * elements: with the distributed optimizer as it has divided the state, which only its owner has,
 * one in each of its instances; else each takes as much as the others, at whole rows. Of a tensor
 * that all tensor-parallel processes have whole, the first writes it; of a copy of the embedding
 * nobody.
 *
 * A stretch of the flat buffers is, in each tensor, the rest of a row, whole rows, and the begin of
 * a row: boxes whose elements are neighbours in memory. Sections of rows (formats/ckpt/sections.h)
 * have boxes of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/sections.h"
#include "trainer/ckpt/save_i.h"

struct lister {
	const struct mft_train_config *config;
	const struct mft_params *params;
	const struct mft_parallel *parallel; /* the process's places */
	uint64_t total[2], before[2];	     /* elements: dense, of routed experts */
	struct mft_save_boxes *to;
	struct mfs_error *err;
};

/* A tensor's part, of which ranges are cut into boxes. */
struct cutter {
	struct lister *lister;
	const struct mfs_rank_tensor *part;
	uint64_t start; /* of the part, in its flat buffer */
	bool is_buffer;
	uint64_t lo[MFS_CKPT_DIMS], size[MFS_CKPT_DIMS]; /* the box of the part */
};

/* ---- boxes ---- */

static int add(struct cutter *c, const struct mft_save_box *box)
{
	struct mft_save_boxes *to = c->lister->to;

	if (mfs_grow(&to->list, to->count))
		return mfs_fail_nomem(c->lister->err);
	to->list[to->count++] = *box;
	return 0;
}

/* The first rows of a box, up to the end of a section, and at most the rest of it. */
static uint64_t rows_at_once(const struct cutter *c, const struct mft_save_box *box)
{
	const struct mfs_megatron_args *args = mfs_ckpt_args(c->lister->params->ckpt);
	uint64_t rows[MFS_SECTIONS_MAX], end = 0;
	const unsigned count = mfs_sections(args, box->tensor->name, rows);

	for (unsigned i = 0; i < count; i++) {
		end += rows[i];
		if (box->lo[0] < end)
			return mfs_min_u64(box->size[0], end - box->lo[0]);
	}
	return box->size[0];
}

static int add_sections(struct cutter *c, const struct mft_save_box *box)
{
	struct mft_save_box some = *box;
	const uint64_t row = box->size[0] ? box->count / box->size[0] : 0;
	int rc = 0;

	for (uint64_t left = box->size[0]; left && !rc; left -= some.size[0]) {
		some.size[0] = left;
		some.size[0] = rows_at_once(c, &some);
		some.count = some.size[0] * row;
		rc = add(c, &some);
		some.lo[0] += some.size[0];
		some.first += some.count;
	}
	return rc;
}

/* What a box of the part has of one of the boxes of the tensor that make up the part. It is cut
 * along the first axis alone, so that neighbours stay neighbours. */
static int take_box(const struct mfs_box_map *m, void *arg)
{
	struct cutter *c = arg;
	const struct mfs_target *t = &c->part->base;
	struct mft_save_box box = {.tensor = m->src, .is_buffer = c->is_buffer, .count = 1};
	uint64_t at = 0;

	for (unsigned a = 0; a < t->ndim; a++) {
		const uint64_t lo = mfs_max_u64(c->lo[a], m->lo[a]);
		const uint64_t end = mfs_min_u64(c->lo[a] + c->size[a], m->lo[a] + m->size[a]);

		if (!m->src || lo >= end)
			return 0;
		box.lo[a] = m->src_lo[a] + (lo - m->lo[a]);
		box.size[a] = end - lo;
		box.count *= end - lo;
		at = at * t->shape[a] + lo;
	}
	box.first = c->start + at;
	return t->ndim ? add_sections(c, &box) : add(c, &box);
}

static int emit(struct cutter *c, unsigned axis, uint64_t lo, uint64_t size)
{
	c->lo[axis] = lo;
	c->size[axis] = size;
	for (unsigned a = axis + 1; a < c->part->base.ndim; a++) {
		c->lo[a] = 0;
		c->size[a] = c->part->base.shape[a];
	}
	return mfs_target_boxes(&c->part->base, take_box, c);
}

/* Cuts elements [first, end) of the axes after this one, at c->lo. */
static int cut(struct cutter *c, unsigned axis, uint64_t first, uint64_t end)
{
	const struct mfs_target *t = &c->part->base;
	uint64_t step = 1, row, last;
	int rc = 0;

	if (first >= end)
		return 0;
	if (axis + 1 >= t->ndim)
		return emit(c, axis, first, end - first);
	for (unsigned a = axis + 1; a < t->ndim; a++)
		step *= t->shape[a];
	row = first / step;
	last = end / step;
	c->size[axis] = 1;
	if (first % step || row == last) {
		c->lo[axis] = row;
		rc = cut(c, axis + 1, first % step, row == last ? end % step : step);
		row++;
	}
	if (!rc && row < last)
		rc = emit(c, axis, row, last - row);
	if (rc || row > last || !(end % step))
		return rc;
	c->lo[axis] = last;
	c->size[axis] = 1;
	return cut(c, axis + 1, 0, end % step);
}

/* ---- who writes ---- */

/* Of what all tensor-parallel processes have, the first one's is written. */
static bool writes(const struct lister *l, const struct mfs_rank_tensor *t)
{
	const struct mft_parallel_sizes *place = &l->parallel->place;

	if (t->is_copy)
		return false;
	return t->split != MFS_TP_NONE || !(t->is_expert ? place->etp : place->tp);
}

/* Elements before the share of number of as many. */
static uint64_t share(uint64_t total, uint32_t number, uint32_t of)
{
	return total / of * number + total % of * number / of;
}

/* Elements of a parameter before the share of process number of as many. */
static uint64_t bound(const struct lister *l, const struct mft_param *q, uint32_t number,
		      uint32_t of)
{
	const uint64_t total = l->total[q->is_expert], before = l->before[q->is_expert];
	const uint64_t wanted = share(total, number, of);
	const uint64_t row = q->part.base.ndim ? q->elements / q->part.base.shape[0] : 1;

	if (wanted <= before)
		return 0;
	if (wanted - before >= q->elements)
		return q->elements;
	return (wanted - before) / row * row;
}

/* What the optimizer of this process owns. Each instance has the same: it writes its share, by the
 * numbers of what is owned. */
static int add_owned(struct lister *l, const struct mft_param *q, struct cutter *c)
{
	const struct mft_group_place *g = &l->parallel->group[MFT_GROUP_ACROSS_INSTANCES];
	const uint64_t end = q->start + q->elements, all = l->params->owned_elements;
	const uint64_t from = share(all, g->rank, g->size), to = share(all, g->rank + 1, g->size);
	uint64_t n;
	int rc = 0;

	for (uint64_t at = q->start; !rc && (n = mft_params_owned(l->params, &at, end)); at += n) {
		const uint64_t number = mft_params_owned_before(l->params, at);
		const uint64_t first = mfs_max_u64(number, from);
		const uint64_t stop = mfs_min_u64(number + n, to);

		if (first < stop)
			rc = cut(c, 0, at - q->start + (first - number),
				 at - q->start + (stop - number));
	}
	return rc;
}

static int add_share(struct lister *l, const struct mft_param *q, struct cutter *c)
{
	const struct mft_group_place *g =
		&l->parallel->group[q->is_expert ? MFT_GROUP_EXPERT_GRADS : MFT_GROUP_GRADS];

	return cut(c, 0, bound(l, q, g->rank, g->size), bound(l, q, g->rank + 1, g->size));
}

static int add_param(struct lister *l, const struct mft_param *q)
{
	struct cutter c = {.lister = l, .part = &q->part, .start = q->start};
	int rc = 0;

	if (writes(l, &q->part))
		rc = l->params->sharding != MFT_SHARD_NONE ? add_owned(l, q, &c)
							   : add_share(l, q, &c);
	l->before[q->is_expert] += q->elements;
	return rc;
}

static int add_buffer(struct lister *l, const struct mft_model_buffer *b)
{
	struct cutter c = {.lister = l, .part = &b->part, .start = b->start, .is_buffer = true};

	if (!writes(l, &b->part) || l->parallel->group[MFT_GROUP_GRADS].rank)
		return 0;
	return cut(&c, 0, 0, b->elements);
}

/* ---- their order ---- */

/* What is in no layer, the layers, and those of MTP: the order of the update, by and large. */
static int64_t unit_of(const struct mft_save_box *b)
{
	const int64_t layer = b->tensor->layer;

	return layer >= 0 && !strncmp(b->tensor->name, "mtp.", 4) ? layer + INT32_MAX : layer;
}

static int by_unit(const void *a, const void *b)
{
	const struct mft_save_box *x = a, *y = b;
	const int64_t of_x = unit_of(x), of_y = unit_of(y);

	if (of_x != of_y)
		return of_x < of_y ? -1 : 1;
	if (x->is_buffer != y->is_buffer)
		return x->is_buffer ? 1 : -1;
	return (x->first > y->first) - (x->first < y->first);
}

static void number_units(struct mft_save_boxes *l)
{
	if (l->count)
		qsort(l->list, l->count, sizeof(*l->list), by_unit);
	for (uint32_t i = 0; i < l->count; i++) {
		if (!i || unit_of(&l->list[i]) != unit_of(&l->list[i - 1]))
			l->units++;
		l->list[i].unit = l->units - 1;
	}
}

/* ---- the whole ---- */

int mft_save_boxes(const struct mft_train_config *config, const struct mft_params *params,
		   const struct mft_parallel *parallel, struct mft_save_boxes *ret,
		   struct mfs_error *err)
{
	struct lister l = {
		.config = config, .params = params, .parallel = parallel, .to = ret, .err = err};
	int rc = 0;

	*ret = (struct mft_save_boxes){0};
	for (uint32_t i = 0; i < params->count; i++)
		l.total[params->list[i].is_expert] += params->list[i].elements;
	for (uint32_t i = 0; i < params->count && !rc; i++)
		rc = add_param(&l, &params->list[i]);
	for (uint32_t i = 0; i < params->buffer_count && !rc; i++)
		rc = add_buffer(&l, &params->buffer_list[i]);
	if (!rc)
		number_units(ret);
	return rc;
}

void mft_save_boxes_release(struct mft_save_boxes *b)
{
	free(b->list);
	*b = (struct mft_save_boxes){0};
}
