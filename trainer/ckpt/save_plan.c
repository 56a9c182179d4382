/*
 * Which bytes go where: the files of a torch_dist checkpoint, laid out by the writer of the
 * torch_dist views (formats/megatron/write) for a checkpoint that is in no file, and cut into the
 * fills of a ring of buffers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/base/str.h"
#include "formats/ckpt/target.h"
#include "formats/plan/vfile.h"
#include "trainer/ckpt/save_i.h"

struct planner {
	const struct mfs_train_config *config;
	const struct mfs_params *params;
	const unsigned char *buffers;
	struct mfs_save_plan *plan;
	struct mfs_save_file *file; /* whose parts are looked at */
	struct mfs_error *err;
};

/* ---- where a tensor's elements are ---- */

/* A span of count elements of a global tensor, the first of which is element at. */
static void point(const struct planner *b, const struct mfs_global_tensor *t, uint64_t at,
		  struct mfs_save_span *ret)
{
	const struct mfs_params *p = b->params;
	const uint32_t number = mfs_params_number(p, t->name, t->layer, t->expert);

	ret->state = (enum mfs_state)t->state;
	if (number < p->count)
		ret->first = p->list[number].start + at;
	else
		ret->bytes =
			b->buffers + (p->buffer_list[number - p->count].start + at) * sizeof(float);
}

/* ---- files ---- */

struct boxes {
	const struct planner *planner;
	struct mfs_save_span *span;
	uint32_t count;
};

/* A part of a file is one box of one tensor, whole along all axes but the first. */
static int take_box(const struct mfs_box_map *m, void *arg)
{
	struct boxes *x = arg;
	uint64_t at = m->src_lo[0];

	x->count++;
	for (unsigned a = 1; m->src && a < m->src->ndim; a++) {
		at *= m->src->shape[a];
		if (m->size[a] != m->src->shape[a])
			x->count = 2; /* not in one piece */
	}
	if (m->src)
		point(x->planner, m->src, at, x->span);
	else
		x->count = 2;
	return 0;
}

static int add_span(void *arg, const struct mfs_vfile_part *part)
{
	struct planner *b = arg;
	struct mfs_save_span span = {.at = part->at, .length = part->length, .bytes = part->bytes};
	struct boxes boxes = {b, &span, 0};

	if (!part->length)
		return 0;
	if (part->target)
		mfs_target_boxes(part->target, take_box, &boxes);
	if ((part->target && boxes.count != 1) || (!part->target && !part->bytes))
		return mfs_fail(b->err, -ENOTSUP, "%s: a part of it is in no single place",
				b->file->name);
	if (mfs_grow(&b->file->spans, b->file->count))
		return mfs_fail_nomem(b->err);
	b->file->spans[b->file->count++] = span;
	return 0;
}

static int keep(struct planner *b, struct mfs_vfile *f)
{
	if (mfs_grow(&b->plan->vfiles, b->plan->vfile_count)) {
		mfs_vfile_free(f);
		return mfs_fail_nomem(b->err);
	}
	b->plan->vfiles[b->plan->vfile_count++] = f;
	return 0;
}

static int add_large(struct planner *b, const char *path, struct mfs_vfile *f)
{
	struct mfs_save_plan *p = b->plan;

	if (mfs_grow(&p->files, p->file_count))
		return mfs_fail_nomem(b->err);
	b->file = &p->files[p->file_count++];
	*b->file = (struct mfs_save_file){.size = mfs_vfile_size(f)};
	snprintf(b->file->name, sizeof(b->file->name), "%s", path);
	p->bytes += b->file->size;
	return mfs_vfile_each(f, add_span, b, b->err);
}

static int read_metadata(struct planner *b, struct mfs_vfile *f)
{
	const uint64_t size = mfs_vfile_size(f);
	char *bytes = malloc(size + 1);
	size_t len;
	int rc = bytes ? mfs_vfile_pread(f, 0, bytes, size, &len, b->err) : mfs_fail_nomem(b->err);

	if (!rc)
		mfs_buf_add(&b->plan->metadata, bytes, len);
	free(bytes);
	return !rc && b->plan->metadata.failed ? mfs_fail_nomem(b->err) : rc;
}

/* common.pt is made for each save, metadata.json is known. */
static int add_file(void *arg, const char *path, struct mfs_vfile *data, struct mfs_error *err)
{
	struct planner *b = arg;
	int rc = keep(b, data);

	(void)err;
	if (rc)
		return rc;
	if (!strcmp(path, ".metadata"))
		return read_metadata(b, data);
	return mfs_str_ends(path, ".distcp") ? add_large(b, path, data) : 0;
}

static int write_common(void *arg, struct mfs_buf *out, struct mfs_error *err)
{
	static const struct mfs_progress none;
	const struct planner *b = arg;

	return mfs_save_common(b->config, b->params, &none, out, err);
}

/* Each save writes its own states into this item (save_commit.c: update_rng). */
static int write_rng(void *arg, struct mfs_buf *out, struct mfs_error *err)
{
	const struct planner *b = arg;

	b->plan->rng = out;
	return mfs_save_rng(b->config, 0, out, err);
}

static int lay_out(struct planner *b)
{
	const struct mfs_megatron_own own = {.distributed = b->config->use_distributed_optimizer,
					     .common = write_common,
					     .rng = b->config->no_save_rng ? NULL : write_rng,
					     .arg = b};
	const struct mfs_megatron_options options = {
		.ckpt = b->params->ckpt,
		.layout = {.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1},
		.spec = mfs_layer_spec_of(b->params->ckpt),
		.optimizer = !b->config->no_save_optim,
		.own = &own};
	const struct mfs_file_sink sink = {.add = add_file, .arg = b};

	return mfs_megatron_dist_new(&options, &sink, &b->plan->dist, b->err);
}

/* ---- fills ---- */

/* A file on its way, in a lane. */
struct lane {
	const struct mfs_save_file *file;
	uint32_t span;
	uint64_t at;
};

static void mark(const struct planner *b, const struct mfs_save_span *s, uint32_t fill)
{
	const struct mfs_params *p = b->params;
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

/* The next range of the lane's file; the lane is empty after the last. */
static int add_fill(struct planner *b, struct lane *l, uint32_t number)
{
	struct mfs_save_plan *p = b->plan;
	const uint64_t n = mfs_min_u64(MFS_SAVE_SLOT, l->file->size - l->at);
	struct mfs_save_fill *fill;

	if (mfs_grow(&p->fills, p->fill_count))
		return mfs_fail_nomem(b->err);
	fill = &p->fills[p->fill_count];
	*fill = (struct mfs_save_fill){.file = (uint32_t)(l->file - p->files),
				       .span = l->span,
				       .lane = number,
				       .at = l->at,
				       .length = n};
	for (; l->span < l->file->count; l->span++) {
		const struct mfs_save_span *s = &l->file->spans[l->span];

		if (s->at >= l->at + n)
			break;
		mark(b, s, p->fill_count);
		if (s->at + s->length > l->at + n)
			break; /* it goes on in the next fill */
	}
	l->at += n;
	fill->last = l->at == l->file->size;
	if (fill->last)
		*l = (struct lane){0};
	p->fill_count++;
	return 0;
}

/* Files come in the order of layers, in which the update walks, too. */
static int cut_fills(struct planner *b)
{
	struct mfs_save_plan *p = b->plan;
	struct lane lanes[MFS_SAVE_LANES] = {0};
	uint32_t next = 0;
	bool busy = true;
	int rc = 0;

	p->last_fill = calloc(b->params->count + 1u, sizeof(*p->last_fill));
	if (!p->last_fill)
		return mfs_fail_nomem(b->err);
	while (busy && !rc) {
		busy = false;
		for (uint32_t i = 0; i < MFS_SAVE_LANES && !rc; i++) {
			if (!lanes[i].file && next < p->file_count)
				lanes[i].file = &p->files[next++];
			if (!lanes[i].file)
				continue;
			busy = true;
			rc = add_fill(b, &lanes[i], i);
		}
	}
	return rc;
}

/* ---- the whole ---- */

int mfs_save_plan(const struct mfs_train_config *config, const struct mfs_params *params,
		  unsigned char *buffers, struct mfs_save_plan *ret, struct mfs_error *err)
{
	struct planner b = {
		.config = config, .params = params, .buffers = buffers, .plan = ret, .err = err};
	const int rc = lay_out(&b);

	return rc ? rc : cut_fills(&b);
}

void mfs_save_plan_release(struct mfs_save_plan *p)
{
	for (uint32_t i = 0; i < p->file_count; i++)
		free(p->files[i].spans);
	free(p->files);
	free(p->fills);
	free(p->last_fill);
	mfs_buf_release(&p->metadata);
	for (uint32_t i = 0; i < p->vfile_count; i++)
		mfs_vfile_free(p->vfiles[i]);
	free(p->vfiles);
	mfs_megatron_dist_free(p->dist);
	*p = (struct mfs_save_plan){0};
}

int64_t mfs_save_plan_last(const struct mfs_save_plan *p, const struct mfs_params *params,
			   uint64_t first, uint64_t count)
{
	uint32_t lo = 0, hi = params->count;
	int64_t last = -1;

	while (lo < hi) { /* the first parameter that ends behind first */
		const uint32_t middle = lo + (hi - lo) / 2;
		const struct mfs_param *q = &params->list[middle];

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
