/* The data files of a torch_dist view: items one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/ckpt/target.h"
#include "formats/megatron/write/dist_view_i.h"

/* ---- chunks ---- */

struct chunk {
	struct mfs_target base;
	const struct mfs_global_tensor *src;
	uint64_t first; /* along axis, elements */
	uint8_t axis;
};

/* One box. Rows of the vocabulary that the checkpoint does not store are zeros. */
static int chunk_boxes(const struct mfs_target *base, mfs_emit_box emit, void *arg)
{
	const struct chunk *c = (const struct chunk *)base;
	struct mfs_box_map m = {.src = c->src};
	uint64_t missing = 0;
	int rc = 0;

	for (unsigned a = 0; a < base->ndim; a++) {
		const uint64_t lo = a == c->axis ? c->first : 0, stored = c->src->shape[a];
		const uint64_t there = lo < stored ? stored - lo : 0;

		m.size[a] = mfs_min_u64(base->shape[a], there);
		m.src_lo[a] = lo;
		m.step[a] = 1;
		m.src_axis[a] = (uint8_t)a;
		missing += base->shape[a] - m.size[a]; /* not 0 only along the vocabulary's axis */
	}
	if (!missing || m.size[0])
		rc = emit(&m, arg);
	if (rc || !missing)
		return rc;
	m.src = NULL;
	m.lo[0] = m.size[0];
	m.size[0] = missing;
	return emit(&m, arg);
}

static size_t chunk_name(const struct mfs_target *base, char *text, size_t size)
{
	return strlen(mfs_global_tensor_name(((const struct chunk *)base)->src, text, size));
}

static enum mfs_op chunk_op(const struct mfs_target *base)
{
	return mfs_megatron_op(((const struct chunk *)base)->src);
}

static const struct mfs_target_ops chunk_ops = {chunk_boxes, chunk_name, chunk_op};

static int make_chunk(const struct mfs_megatron_dist *d, const struct mfs_dist_tensor *t,
		      uint32_t i, uint32_t part, struct chunk *ret, struct mfs_error *err)
{
	uint64_t shape[MFS_CKPT_DIMS];

	*ret = (struct chunk){.base = {.ops = &chunk_ops,
				       .ckpt = d->options.ckpt,
				       .dtype = mfs_run_dtype(d->options.ckpt, t->first)},
			      .src = t->first + i,
			      .axis = t->axis};
	memcpy(shape, t->shape, sizeof(shape));
	if (t->axis < t->first->ndim) {
		shape[t->axis] /= t->parts;
		ret->first = shape[t->axis] * part + (t->axis ? 0 : t->first_row);
	}
	return mfs_target_shape(&ret->base, shape, t->first->ndim, err);
}

/* ---- a file ---- */

struct builder {
	const struct mfs_dist_file *file;
	struct mfs_vfile *parts;
	struct chunk *chunks; /* of all items; they live as long as the parts */
	size_t count;
	struct mfs_error *err;
};

/* The first global tensor of t that is in the file's unit. False: none is. */
static bool in_unit(const struct mfs_dist_file *f, const struct mfs_dist_tensor *t, uint32_t *ret)
{
	const struct mfs_megatron_dist *d = f->dist;
	const uint32_t first = mfs_dist_unit(d, t, 0);

	if (f->unit < first || f->unit - first >= mfs_dist_each(t->layers))
		return false;
	*ret = (f->unit - first) * mfs_dist_each(t->experts);
	return true;
}

static bool holds(const struct mfs_dist_file *f, const struct mfs_dist_tensor *t, uint32_t *ret)
{
	return mfs_dist_kind_of(t) == f->kind && in_unit(f, t, ret);
}

static size_t count_chunks(const struct mfs_dist_file *f)
{
	const struct mfs_megatron_dist *d = f->dist;
	size_t count = 0;
	uint32_t i;

	for (uint32_t n = 0; n < d->tensor_count; n++)
		if (holds(f, &d->tensors[n], &i))
			count += (size_t)mfs_dist_each(d->tensors[n].experts) * d->tensors[n].parts;
	return count;
}

static int add_item(struct builder *b, const struct mfs_dist_tensor *t, uint32_t i, uint32_t part)
{
	struct chunk *c = &b->chunks[b->count++];
	int rc = make_chunk(b->file->dist, t, i, part, c, b->err);

	if (!rc)
		rc = mfs_vfile_add_shared(b->parts, t->item.head, t->item.head_len, b->err);
	if (!rc && t->item.payload)
		rc = mfs_vfile_add_tensor(b->parts, &c->base, b->err);
	return rc ? rc : mfs_vfile_add_shared(b->parts, t->item.tail, t->item.tail_len, b->err);
}

static int add_tensor(struct builder *b, const struct mfs_dist_tensor *t, uint32_t first)
{
	int rc = 0;

	for (uint32_t e = 0; e < mfs_dist_each(t->experts) && !rc; e++)
		for (uint32_t part = 0; part < t->parts && !rc; part++)
			rc = add_item(b, t, first + e, part);
	return rc;
}

static int add_extra(struct builder *b, const struct mfs_dist_extra *e, uint32_t i)
{
	const struct mfs_megatron_dist *d = b->file->dist;
	struct mfs_buf item = {0};
	int rc;

	if (!e->stateful)
		return mfs_vfile_add_shared(b->parts, d->none.data, d->none.len, b->err);
	rc = mfs_dist_extra_item(d, e, i, &item, b->err);
	if (!rc)
		rc = mfs_vfile_add_literal(b->parts, item.data, item.len, b->err);
	if (rc)
		mfs_buf_release(&item);
	return rc;
}

/* Random states and _extra_state come before the weights. */
static int add_objects(struct builder *b)
{
	const struct mfs_megatron_dist *d = b->file->dist;
	uint32_t first;
	int rc = 0;

	for (uint32_t i = 0; b->file->unit == 0 && i < d->rng_count && !rc; i++)
		rc = mfs_vfile_add_shared(b->parts, d->rng[i].item->data, d->rng[i].item->len,
					  b->err);
	for (uint32_t i = 0; i < d->extra_count && !rc; i++) {
		const struct mfs_dist_tensor *t = d->extras[i].owner;

		if (!in_unit(b->file, t, &first))
			continue;
		for (uint32_t e = 0; e < mfs_dist_each(t->experts) && !rc; e++)
			rc = add_extra(b, &d->extras[i], first + e);
	}
	return rc;
}

static int build(void *arg, struct mfs_vfile *parts, struct mfs_error *err)
{
	const struct mfs_dist_file *f = arg;
	struct builder b = {.file = f, .parts = parts, .err = err};
	uint32_t first;
	int rc = 0;

	b.chunks = calloc(count_chunks(f) + 1, sizeof(*b.chunks));
	if (!b.chunks)
		return mfs_fail_nomem(err);
	mfs_vfile_keep(parts, b.chunks, free);
	if (f->kind == MFS_DIST_WEIGHTS)
		rc = add_objects(&b);
	for (uint32_t i = 0; i < f->dist->tensor_count && !rc; i++)
		if (holds(f, &f->dist->tensors[i], &first))
			rc = add_tensor(&b, &f->dist->tensors[i], first);
	return rc;
}

void mfs_dist_file_name(char name[MFS_DIST_FILE_NAME_SIZE], uint32_t process, uint32_t number)
{
	snprintf(name, MFS_DIST_FILE_NAME_SIZE, "__%u_%u.distcp", process, number);
}

int mfs_dist_data(const struct mfs_dist_file *file, struct mfs_vfile **ret, struct mfs_error *err)
{
	/* build() does not write to its arg. */
	return mfs_vfile_new_lazy(file->size, build, (void *)(uintptr_t)file, ret, err);
}
