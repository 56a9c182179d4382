/*
 * Which bytes go where: the files of a torch_dist checkpoint, and how they are cut into the fills
 * of a ring of buffers.
 *
 * A process writes its boxes (save_boxes.c) into a few files, unit by unit, each unit into the file
 * that is the shortest then. So all files grow in the order of the layers, in which the update
 * walks, too. What a process writes follows from the arguments and from its places alone: the first
 * one lays out the files of all, for .metadata.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "trainer/ckpt/module_state.h"
#include "trainer/ckpt/save_i.h"

struct planner {
	const struct mft_train_config *config;
	const struct mft_params *params;
	const struct mft_parallel *parallel;
	const unsigned char *buffers;
	struct mft_save_plan *plan;
	struct mfs_error *err;
};

/* The files of one process. */
struct layout {
	struct planner *b;
	const struct mft_parallel *parallel; /* its places */
	bool own;			     /* where bytes come from is noted */
	uint64_t sizes[MFT_SAVE_LANES];
	uint32_t count, file; /* file: the one that is added to */
};

/* ---- items ---- */

static int add_span(struct layout *l, struct mft_save_span span)
{
	struct mft_save_file *f = &l->b->plan->files[l->file];

	span.at = l->sizes[l->file];
	l->sizes[l->file] += span.length;
	if (!l->own || !span.length)
		return 0;
	if (mfs_grow(&f->spans, f->count))
		return mfs_fail_nomem(l->b->err);
	f->spans[f->count++] = span;
	return 0;
}

static int add_bytes(struct layout *l, const void *bytes, uint64_t length)
{
	return add_span(l, (struct mft_save_span){.bytes = bytes, .length = length});
}

/* The payload of an item. */
static struct mft_save_span span_of(const struct layout *l, const struct mft_save_box *box,
				    enum mfs_state state, uint64_t length)
{
	struct mft_save_span span = {.length = length, .state = state, .first = box->first};

	if (box->is_buffer)
		span.bytes = l->b->buffers + box->first * sizeof(float);
	return span;
}

static int add_item(struct layout *l, const struct mft_save_box *box, enum mfs_state state)
{
	const struct mfs_global_tensor *model = box->tensor, *t = model;
	struct mfs_torch_item item;
	int rc;

	if (state != MFS_STATE_MODEL)
		t = mfs_ckpt_find_state(l->b->params->ckpt, state, model->name, model->layer,
					model->expert);
	if (!t) /* an fp32 run has no main parameters, and a model's buffer no state */
		return 0;
	rc = mfs_dist_boxes_add(l->b->plan->boxes, t, box->lo, box->size, &item, l->b->err);
	if (!rc)
		rc = add_bytes(l, item.head, item.head_len);
	if (!rc)
		rc = add_span(l, span_of(l, box, state, item.payload));
	return rc ? rc : add_bytes(l, item.tail, item.tail_len);
}

/* A layer's linear has a state where the run's recipe leaves one. */
static bool has_state(const struct layout *l, const struct mft_save_box *box)
{
	const struct mfs_global_tensor *t = box->tensor;

	return l->b->plan->module_bytes && !box->is_buffer && t->ndim == 2 && t->layer >= 0 &&
	       mfs_str_ends(t->name, ".weight");
}

static int add_state(struct layout *l, const struct mfs_global_tensor *t)
{
	struct mft_save_plan *p = l->b->plan;
	struct mft_save_module *m;

	if (!l->own)
		return add_bytes(l, NULL, p->module_bytes);
	if (mfs_grow(&p->modules, p->module_count))
		return mfs_fail_nomem(l->b->err);
	m = &p->modules[p->module_count++];
	m->param = (uint32_t)(mft_params_find(l->b->params, t->name, t->layer, t->expert) -
			      l->b->params->list);
	m->bytes = mfs_arena_alloc(&p->arena, p->module_bytes);
	return m->bytes ? add_bytes(l, m->bytes, p->module_bytes) : mfs_fail_nomem(l->b->err);
}

/* The process that writes the first element of a tensor writes the objects of its modules. */
static int add_extras(struct layout *l, const struct mft_save_box *box)
{
	const uint64_t length = has_state(l, box) ? l->b->plan->module_bytes : 0;
	struct mfs_dist_extras extras = {0};
	int rc;

	for (unsigned a = 0; a < box->tensor->ndim; a++)
		if (box->lo[a])
			return 0;
	rc = mfs_dist_boxes_add_extras(l->b->plan->boxes, box->tensor, length, &extras, l->b->err);
	for (uint32_t i = 0; i < extras.count && !rc; i++)
		rc = length && i == extras.own ? add_state(l, box->tensor)
					       : add_bytes(l, extras.none->data, extras.none->len);
	return rc;
}

/* ---- random states ---- */

/* Megatron's releases look for one item of each (pp, tp), and core 0.16 in runs with EP for one of
 * each data-parallel rank, too (formats/megatron/write/dist_rng.c). */
static int add_rng(struct layout *l)
{
	const struct mft_parallel *p = l->parallel;
	const struct mft_group_place *dp = &p->group[MFT_GROUP_GRADS];
	const struct mfs_buf *item = &l->b->plan->rng;
	char key[2][96] = {"", ""};
	int rc = 0;

	if (!item->len)
		return 0;
	if (!dp->rank)
		snprintf(key[0], sizeof(key[0]), "rng_state/shard_%u.%u_%u.%u", p->place.pp,
			 p->place.tp, p->size.pp, p->size.tp);
	if (p->size.ep > 1)
		snprintf(key[1], sizeof(key[1]), "rng_state/shard_%u.%u.%u_%u.%u.%u", p->place.pp,
			 p->place.tp, dp->rank, p->size.pp, p->size.tp, dp->size);
	for (int i = 0; i < 2 && !rc; i++) {
		if (!key[i][0])
			continue;
		rc = mfs_dist_boxes_add_object(l->b->plan->boxes, key[i], item->len, l->b->err);
		if (!rc)
			rc = add_bytes(l, item->data, item->len);
	}
	return rc;
}

/* ---- the files of a process ---- */

/* The first of the shortest files goes on. */
static void choose_file(struct layout *l)
{
	l->file = 0;
	for (uint32_t i = 1; i < l->count; i++)
		if (l->sizes[i] < l->sizes[l->file])
			l->file = i;
	mfs_dist_boxes_file(l->b->plan->boxes, l->parallel->launch.rank, l->file,
			    l->sizes[l->file]);
}

/* Boxes [first, end) of a unit: their weights, and then each state. */
static int add_unit(struct layout *l, const struct mft_save_boxes *boxes, uint32_t first,
		    uint32_t end)
{
	const int states = l->b->config->no_save_optim ? 1 : MFS_STATE_COUNT;
	int rc = 0;

	choose_file(l);
	for (uint32_t i = first; i < end && !rc; i++)
		rc = add_extras(l, &boxes->list[i]);
	for (int state = 0; state < states; state++)
		for (uint32_t i = first; i < end && !rc; i++)
			rc = add_item(l, &boxes->list[i], (enum mfs_state)state);
	return rc;
}

static int add_boxes(struct layout *l, const struct mft_save_boxes *boxes)
{
	int rc;

	l->count = (uint32_t)mfs_min_u64(mfs_max_u64(boxes->units, 1), MFT_SAVE_LANES);
	choose_file(l);
	rc = add_rng(l);
	for (uint32_t i = 0, end; i < boxes->count && !rc; i = end) {
		for (end = i + 1;
		     end < boxes->count && boxes->list[end].unit == boxes->list[i].unit;)
			end++;
		rc = add_unit(l, boxes, i, end);
	}
	while (l->count && !l->sizes[l->count - 1]) /* it writes nothing */
		l->count--;
	return rc;
}

static int lay_out(struct planner *b, const struct mft_params *params,
		   const struct mft_parallel *parallel, struct layout *ret)
{
	struct mft_save_boxes boxes;
	int rc = mft_save_boxes(b->config, params, parallel, &boxes, b->err);

	*ret = (struct layout){.b = b, .parallel = parallel, .own = params == b->params};
	if (!rc)
		rc = add_boxes(ret, &boxes);
	mft_save_boxes_release(&boxes);
	return rc;
}

static int lay_out_own(struct planner *b)
{
	struct mft_save_plan *p = b->plan;
	struct layout l;
	int rc = lay_out(b, b->params, b->parallel, &l);

	p->file_count = l.count;
	for (uint32_t i = 0; i < l.count; i++) {
		mfs_dist_file_name(p->files[i].name, b->parallel->launch.rank, i);
		p->files[i].size = l.sizes[i];
		p->bytes += l.sizes[i];
	}
	return rc;
}

/* ---- the files of all ---- */

static int note_other(struct planner *b, uint32_t process, uint32_t number, uint64_t size)
{
	struct mft_save_plan *p = b->plan;

	if (mfs_grow(&p->others, p->other_count))
		return mfs_fail_nomem(b->err);
	p->others[p->other_count++] = (struct mft_save_other){process, number, size};
	return 0;
}

static int lay_out_other(struct planner *b, uint32_t process)
{
	struct mft_launch launch = b->parallel->launch;
	struct mft_parallel places;
	struct mft_params *params;
	struct layout l;
	int rc;

	launch.rank = process;
	mft_parallel_places(&launch, &b->parallel->size, &places);
	rc = mft_params_of_other(b->params, b->config, &places, &params, b->err);
	if (rc)
		return rc;
	rc = lay_out(b, params, &places, &l);
	for (uint32_t i = 0; i < l.count && !rc; i++)
		rc = note_other(b, process, i, l.sizes[i]);
	mft_params_free(params);
	return rc;
}

static int lay_out_all(struct planner *b)
{
	const struct mfs_dist_boxes_options options = {.ckpt = b->params->ckpt,
						       .spec = mfs_layer_spec_of(b->params->ckpt),
						       .optimizer = !b->config->no_save_optim,
						       .distributed =
							       b->config->use_distributed_optimizer,
						       .hybrid = b->params->layout.hybrid};
	const struct mft_launch *launch = &b->parallel->launch;
	int rc = mfs_dist_boxes_new(&options, &b->plan->boxes, b->err);

	if (!rc && !b->config->no_save_rng)
		rc = mft_save_rng(b->config, b->parallel, 0, &b->plan->rng, b->err);
	if (!rc && b->plan->rng.failed)
		rc = mfs_fail_nomem(b->err);
	if (!rc)
		rc = mft_module_state_measure(b->config, &b->plan->module_bytes, b->err);
	if (!rc)
		rc = lay_out_own(b);
	if (launch->rank)
		return rc;
	for (uint32_t i = 1; i < launch->size && !rc; i++)
		rc = lay_out_other(b, i);
	if (!rc)
		rc = mfs_dist_boxes_index(b->plan->boxes, &b->plan->metadata, b->err);
	return !rc && b->plan->metadata.failed ? mfs_fail_nomem(b->err) : rc;
}

/* ---- fills ---- */

/* A file on its way. */
struct lane {
	uint32_t span;
	uint64_t at;
};

static void mark(const struct planner *b, const struct mft_save_span *s, uint32_t fill)
{
	const struct mft_params *p = b->params;
	uint32_t lo = 0, hi = p->count;

	if (s->bytes)
		return;
	while (hi - lo > 1) { /* the parameter that begins at or before it */
		const uint32_t middle = lo + (hi - lo) / 2;

		if (p->list[middle].start <= s->first)
			lo = middle;
		else
			hi = middle;
	}
	b->plan->last_fill[lo] = fill;
}

/* The next range of a file. */
static int add_fill(struct planner *b, struct lane *l, uint32_t number)
{
	struct mft_save_plan *p = b->plan;
	const struct mft_save_file *file = &p->files[number];
	const uint64_t n = mfs_min_u64(MFT_SAVE_SLOT, file->size - l->at);
	struct mft_save_fill *fill;

	if (mfs_grow(&p->fills, p->fill_count))
		return mfs_fail_nomem(b->err);
	fill = &p->fills[p->fill_count];
	*fill = (struct mft_save_fill){.file = number, .span = l->span, .at = l->at, .length = n};
	for (; l->span < file->count; l->span++) {
		const struct mft_save_span *s = &file->spans[l->span];

		if (s->at >= l->at + n)
			break;
		mark(b, s, p->fill_count);
		if (s->at + s->length > l->at + n)
			break; /* it goes on in the next fill */
	}
	l->at += n;
	fill->last = l->at == file->size;
	p->fill_count++;
	return 0;
}

/* All files side by side. */
static int cut_fills(struct planner *b)
{
	struct mft_save_plan *p = b->plan;
	struct lane lanes[MFT_SAVE_LANES] = {0};
	bool busy = true;
	int rc = 0;

	p->last_fill = calloc(b->params->count + 1u, sizeof(*p->last_fill));
	if (!p->last_fill)
		return mfs_fail_nomem(b->err);
	for (uint32_t i = 0; i < b->params->count; i++)
		p->last_fill[i] = -1;
	while (busy && !rc) {
		busy = false;
		for (uint32_t i = 0; i < p->file_count && !rc; i++) {
			if (lanes[i].at == p->files[i].size)
				continue;
			busy = true;
			rc = add_fill(b, &lanes[i], i);
		}
	}
	return rc;
}

/* ---- the whole ---- */

int mft_save_plan(const struct mft_train_config *config, const struct mft_params *params,
		  const struct mft_parallel *parallel, unsigned char *buffers,
		  struct mft_save_plan *ret, struct mfs_error *err)
{
	struct planner b = {.config = config,
			    .params = params,
			    .parallel = parallel,
			    .buffers = buffers,
			    .plan = ret,
			    .err = err};
	const int rc = lay_out_all(&b);

	return rc ? rc : cut_fills(&b);
}

void mft_save_plan_release(struct mft_save_plan *p)
{
	for (uint32_t i = 0; i < MFT_SAVE_LANES; i++)
		free(p->files[i].spans);
	free(p->fills);
	free(p->last_fill);
	free(p->others);
	free(p->modules);
	mfs_arena_release(&p->arena);
	mfs_buf_release(&p->metadata);
	mfs_buf_release(&p->rng);
	mfs_dist_boxes_free(p->boxes);
	*p = (struct mft_save_plan){0};
}

int64_t mft_save_plan_last(const struct mft_save_plan *p, const struct mft_params *params,
			   uint64_t first, uint64_t count)
{
	uint32_t lo = 0, hi = params->count;
	int64_t last = -1;

	while (lo < hi) { /* the first parameter that ends after first */
		const uint32_t middle = lo + (hi - lo) / 2;
		const struct mft_param *q = &params->list[middle];

		if (q->start + q->elements <= first)
			lo = middle + 1;
		else
			hi = middle;
	}
	for (; lo < params->count && params->list[lo].start < first + count; lo++)
		if (p->last_fill[lo] > last)
			last = p->last_fill[lo];
	return last;
}
