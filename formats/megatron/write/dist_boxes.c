#include "formats/megatron/write/dist_boxes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/grow.h"
#include "formats/megatron/write/dist_keys.h"
#include "formats/torch/dcp_write.h"

struct place {
	uint32_t process, file;
	uint64_t at, length; /* bytes */
};

struct box {
	uint32_t tensor; /* of .metadata */
	uint32_t which;	 /* global tensor: layer * experts + expert */
	uint64_t lo[MFS_CKPT_DIMS], size[MFS_CKPT_DIMS];
	struct place place;
};

struct object {
	uint32_t extra; /* UINT32_MAX: it has a key of its own */
	uint32_t which; /* likewise; or where the key begins in keys */
	struct place place;
};

struct mfs_dist_boxes {
	struct mfs_megatron_dist d; /* its tensors and their keys; it has no files */
	struct box *boxes;
	size_t box_count;
	struct object *objects;
	uint32_t object_count;
	struct mfs_buf keys;
	struct place end; /* of the file that items are added to */
};

/* ---- its life ---- */

/* The model has its padding already. */
static void take_vocab(struct mfs_megatron_dist *d)
{
	const struct mfs_global_tensor *t =
		mfs_ckpt_find(d->options.ckpt, "embedding.word_embeddings.weight", -1, -1);

	if (t)
		d->vocab = t->shape[0];
}

int mfs_dist_boxes_new(const struct mfs_dist_boxes_options *options, struct mfs_dist_boxes **ret,
		       struct mfs_error *err)
{
	struct mfs_dist_boxes *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return mfs_fail_nomem(err);
	b->d.options = (struct mfs_megatron_options){
		.ckpt = options->ckpt,
		.layout =
			{.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1, .hybrid = options->hybrid},
		.spec = options->spec,
		.optimizer = options->optimizer};
	rc = mfs_dist_begin(&b->d, options->distributed ? MFS_OPTIM_DISTRIBUTED : MFS_OPTIM_FLOAT16,
			    err);
	take_vocab(&b->d);
	if (!rc)
		rc = mfs_dist_tensors(&b->d, err);
	if (rc)
		mfs_dist_boxes_free(b);
	else
		*ret = b;
	return rc;
}

void mfs_dist_boxes_free(struct mfs_dist_boxes *b)
{
	if (!b)
		return;
	mfs_dist_end(&b->d);
	free(b->boxes);
	free(b->objects);
	mfs_buf_release(&b->keys);
	free(b);
}

/* ---- places ---- */

void mfs_dist_boxes_file(struct mfs_dist_boxes *b, uint32_t process, uint32_t number, uint64_t size)
{
	b->end = (struct place){.process = process, .file = number, .at = size};
}

static int take_place(struct mfs_dist_boxes *b, uint64_t length, struct place *ret,
		      struct mfs_error *err)
{
	*ret = b->end;
	ret->length = length;
	if (mfs_add_overflows(b->end.at, length, &b->end.at) || b->end.at > INT64_MAX)
		return mfs_fail(err, -EINVAL, "a file of process %u is too large", ret->process);
	return 0;
}

/* The last tensor of .metadata that begins at or before a global tensor: of its sections the last
 * one. */
static uint32_t tensor_of(const struct mfs_dist_boxes *b, const struct mfs_global_tensor *t)
{
	uint32_t lo = 0, hi = b->d.tensor_count;

	while (hi - lo > 1) {
		const uint32_t middle = lo + (hi - lo) / 2;

		if (b->d.tensors[middle].first <= t)
			lo = middle;
		else
			hi = middle;
	}
	return lo;
}

/* That of the section which has a row. */
static uint32_t section_of(const struct mfs_dist_boxes *b, const struct mfs_global_tensor *t,
			   uint64_t row)
{
	uint32_t i = tensor_of(b, t);

	while (b->d.tensors[i].first_row > row)
		i--;
	return i;
}

/* Axes of stacked layers and experts have length 1 in a box. */
static unsigned stacked(const struct mfs_dist_tensor *t)
{
	return (t->layers > 0) + (t->experts > 0);
}

int mfs_dist_boxes_add(struct mfs_dist_boxes *b, const struct mfs_global_tensor *t,
		       const uint64_t *lo, const uint64_t *size, struct mfs_torch_item *ret,
		       struct mfs_error *err)
{
	const uint32_t number = section_of(b, t, t->ndim ? lo[0] : 0);
	const struct mfs_dist_tensor *of = &b->d.tensors[number];
	uint64_t shape[MFS_MAX_DIMS] = {1, 1};
	struct box *box;
	int rc;

	if (mfs_grow(&b->boxes, b->box_count))
		return mfs_fail_nomem(err);
	box = &b->boxes[b->box_count];
	*box = (struct box){.tensor = number, .which = (uint32_t)(t - of->first)};
	for (unsigned a = 0; a < t->ndim; a++) {
		box->lo[a] = lo[a];
		box->size[a] = shape[stacked(of) + a] = size[a];
	}
	box->lo[0] -= of->first_row;
	rc = mfs_torch_item(b->d.items, t->dtype, shape, stacked(of) + t->ndim, ret, err);
	if (!rc)
		rc = take_place(b, mfs_torch_item_size(ret), &box->place, err);
	if (!rc)
		b->box_count++;
	return rc;
}

static int add_object(struct mfs_dist_boxes *b, uint32_t extra, uint32_t which, uint64_t length,
		      struct mfs_error *err)
{
	struct object *o;

	if (mfs_grow(&b->objects, b->object_count))
		return mfs_fail_nomem(err);
	o = &b->objects[b->object_count++];
	*o = (struct object){.extra = extra, .which = which};
	return take_place(b, length, &o->place, err);
}

int mfs_dist_boxes_add_extras(struct mfs_dist_boxes *b, const struct mfs_global_tensor *t,
			      uint64_t length, struct mfs_dist_extras *ret, struct mfs_error *err)
{
	const struct mfs_dist_tensor *owner = &b->d.tensors[section_of(b, t, 0)];
	struct mfs_dist_extras extras = {.own = UINT32_MAX, .none = &b->d.none};
	uint32_t lo = 0, hi = b->d.extra_count;
	int rc = 0;

	while (lo < hi) { /* the first of this owner's, or one after it */
		const uint32_t middle = lo + (hi - lo) / 2;

		if (b->d.extras[middle].owner < owner)
			lo = middle + 1;
		else
			hi = middle;
	}
	for (; lo < b->d.extra_count && b->d.extras[lo].owner == owner && !rc; lo++) {
		const bool own = !b->d.extras[lo].head && !b->d.extras[lo].core_attention;

		rc = add_object(b, lo, (uint32_t)(t - owner->first),
				own && length ? length : b->d.none.len, err);
		extras.own = own ? extras.count : extras.own;
		extras.count++;
	}
	extras.own = extras.own == UINT32_MAX ? extras.count : extras.own;
	*ret = extras;
	return rc;
}

int mfs_dist_boxes_add_object(struct mfs_dist_boxes *b, const char *key, uint64_t length,
			      struct mfs_error *err)
{
	const size_t at = b->keys.len;

	mfs_buf_add(&b->keys, key, strlen(key) + 1);
	if (b->keys.failed || at > UINT32_MAX)
		return mfs_fail_nomem(err);
	return add_object(b, UINT32_MAX, (uint32_t)at, length, err);
}

/* ---- .metadata ---- */

/* Answers of the functions below point here. They are valid until the next call. */
struct index {
	const struct mfs_dist_boxes *b;
	size_t *first; /* [tensors + 1] box, of those that are sorted by tensor */
	char key[MFS_DIST_KEY_SIZE];
	char file[MFS_DIST_FILE_NAME_SIZE];
	uint64_t shape[MFS_MAX_DIMS], lo[MFS_MAX_DIMS], size[MFS_MAX_DIMS];
};

static struct mfs_dcp_write_item item_at(struct index *x, const struct place *p)
{
	mfs_dist_file_name(x->file, p->process, p->file);
	return (struct mfs_dcp_write_item){.file = x->file, .offset = p->at, .length = p->length};
}

static int tensor(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret, struct mfs_error *err)
{
	struct index *x = arg;
	const struct mfs_dist_tensor *t = &x->b->d.tensors[i];
	const size_t chunks = x->first[i + 1] - x->first[i];

	mfs_dist_key(x->key, &x->b->d, t);
	if (chunks > UINT32_MAX)
		return mfs_fail(err, -EINVAL, "'%s' has too many chunks", x->key);
	*ret = (struct mfs_dcp_write_tensor){.key = x->key,
					     .dtype = t->first->dtype,
					     .ndim = mfs_dist_shape(t, x->shape),
					     .shape = x->shape,
					     .chunk_count = (uint32_t)chunks};
	return 0;
}

static int chunk(void *arg, uint32_t i, uint32_t c, struct mfs_dcp_write_chunk *ret,
		 struct mfs_error *err)
{
	struct index *x = arg;
	const struct mfs_dist_tensor *t = &x->b->d.tensors[i];
	const struct box *box = &x->b->boxes[x->first[i] + c];
	unsigned ndim = 0;

	(void)err;
	if (t->layers)
		x->lo[ndim] = box->which / mfs_dist_each(t->experts), x->size[ndim++] = 1;
	if (t->experts)
		x->lo[ndim] = box->which % t->experts, x->size[ndim++] = 1;
	for (unsigned a = 0; a < t->first->ndim; a++, ndim++) {
		x->lo[ndim] = box->lo[a];
		x->size[ndim] = box->size[a];
	}
	*ret = (struct mfs_dcp_write_chunk){
		.lo = x->lo, .size = x->size, .item = item_at(x, &box->place)};
	return 0;
}

static int bytes(void *arg, uint32_t i, struct mfs_dcp_write_bytes *ret, struct mfs_error *err)
{
	struct index *x = arg;
	const struct object *o = &x->b->objects[i];
	const char *key = x->key;

	(void)err;
	if (o->extra == UINT32_MAX)
		key = x->b->keys.data + o->which;
	else
		mfs_dist_extra_key(x->key, &x->b->d, &x->b->d.extras[o->extra], o->which);
	*ret = (struct mfs_dcp_write_bytes){.key = key, .item = item_at(x, &o->place)};
	return 0;
}

static int by_tensor(const void *a, const void *b)
{
	const struct box *x = a, *y = b;

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	if (x->which != y->which)
		return x->which < y->which ? -1 : 1;
	for (unsigned i = 0; i < MFS_CKPT_DIMS; i++)
		if (x->lo[i] != y->lo[i])
			return x->lo[i] < y->lo[i] ? -1 : 1;
	return 0;
}

int mfs_dist_boxes_index(struct mfs_dist_boxes *b, struct mfs_buf *out, struct mfs_error *err)
{
	struct index x = {.b = b};
	const struct mfs_dcp_write_ops writer = {.arg = &x,
						 .tensor_count = b->d.tensor_count,
						 .bytes_count = b->object_count,
						 .tensor = tensor,
						 .chunk = chunk,
						 .bytes = bytes};
	int rc;

	x.first = calloc(b->d.tensor_count + 1u, sizeof(*x.first));
	if (!x.first)
		return mfs_fail_nomem(err);
	if (b->box_count)
		qsort(b->boxes, b->box_count, sizeof(*b->boxes), by_tensor);
	for (size_t i = 0; i < b->box_count; i++)
		x.first[b->boxes[i].tensor + 1] = i + 1;
	for (uint32_t i = 0; i < b->d.tensor_count; i++)
		x.first[i + 1] = x.first[i + 1] > x.first[i] ? x.first[i + 1] : x.first[i];
	rc = mfs_dcp_write(&writer, out, err);
	free(x.first);
	return rc;
}
