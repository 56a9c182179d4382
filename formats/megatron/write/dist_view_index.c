/* .metadata of a torch_dist view. The writer asks for one chunk after the other. */
#include "formats/torch/dcp_write.h"
#include "formats/megatron/write/dist_keys.h"

/* Answers of the functions below point here. They are valid until the next call. */
struct index {
	const struct mfs_megatron_dist *d;
	char key[MFS_DIST_KEY_SIZE];
	char file[MFS_DIST_FILE_NAME_SIZE];
	uint64_t shape[MFS_MAX_DIMS], lo[MFS_MAX_DIMS], size[MFS_MAX_DIMS];
	uint32_t extra; /* the one last asked for */
};

unsigned mfs_dist_shape(const struct mfs_dist_tensor *t, uint64_t shape[MFS_MAX_DIMS])
{
	unsigned ndim = 0;

	if (t->layers)
		shape[ndim++] = t->layers;
	if (t->experts)
		shape[ndim++] = t->experts;
	for (unsigned a = 0; a < t->first->ndim; a++)
		shape[ndim++] = t->shape[a];
	return ndim;
}

static int tensor(void *arg, uint32_t i, struct mfs_dcp_write_tensor *ret, struct mfs_error *err)
{
	struct index *x = arg;
	const struct mfs_dist_tensor *t = &x->d->tensors[i];

	(void)err;
	mfs_dist_key(x->key, x->d, t);
	*ret = (struct mfs_dcp_write_tensor){.key = x->key,
					     .dtype = mfs_run_dtype(x->d->options.ckpt, t->first),
					     .ndim = mfs_dist_shape(t, x->shape),
					     .shape = x->shape,
					     .chunk_count = t->count * t->parts};
	return 0;
}

static int chunk(void *arg, uint32_t i, uint32_t c, struct mfs_dcp_write_chunk *ret,
		 struct mfs_error *err)
{
	struct index *x = arg;
	const struct mfs_dist_tensor *t = &x->d->tensors[i];
	const uint64_t item = mfs_torch_item_size(&t->item);
	const uint32_t which = c / t->parts, part = c % t->parts;
	const uint32_t layer = which / mfs_dist_each(t->experts);
	const uint32_t expert = which % mfs_dist_each(t->experts);
	unsigned ndim = 0;

	(void)err;
	if (t->layers)
		x->lo[ndim] = layer, x->size[ndim++] = 1;
	if (t->experts)
		x->lo[ndim] = expert, x->size[ndim++] = 1;
	for (unsigned a = 0; a < t->first->ndim; a++, ndim++) {
		x->size[ndim] = a == t->axis ? t->shape[a] / t->parts : t->shape[a];
		x->lo[ndim] = a == t->axis ? x->size[ndim] * part : 0;
	}
	mfs_dist_file_name(x->file, mfs_dist_unit(x->d, t, which), mfs_dist_kind_of(t));
	*ret = (struct mfs_dcp_write_chunk){
		.lo = x->lo,
		.size = x->size,
		.item = {.file = x->file,
			 .offset = t->offset + ((uint64_t)expert * t->parts + part) * item,
			 .length = item}};
	return 0;
}

static void rng_item(struct index *x, uint32_t i, struct mfs_dcp_write_bytes *ret)
{
	const struct mfs_dist_rng *r = &x->d->rng[i];

	mfs_dist_rng_key(x->key, sizeof(x->key), x->d, r);
	mfs_dist_file_name(x->file, 0, MFS_DIST_WEIGHTS);
	*ret = (struct mfs_dcp_write_bytes){
		.key = x->key,
		.item = {.file = x->file, .offset = r->offset, .length = r->item->len}};
}

static int bytes(void *arg, uint32_t i, struct mfs_dcp_write_bytes *ret, struct mfs_error *err)
{
	struct index *x = arg;
	const struct mfs_megatron_dist *d = x->d;
	const struct mfs_dist_extra *e;
	uint32_t which;

	(void)err;
	if (i < d->rng_count) {
		rng_item(x, i, ret);
		return 0;
	}
	i -= d->rng_count;
	/* The writer goes through them in order, twice. */
	if (i < d->extras[x->extra].first)
		x->extra = 0;
	while (i - d->extras[x->extra].first >= d->extras[x->extra].owner->count)
		x->extra++;
	e = &d->extras[x->extra];
	which = i - e->first;
	mfs_dist_extra_key(x->key, d, e, which);
	mfs_dist_file_name(x->file, mfs_dist_unit(d, e->owner, which), MFS_DIST_WEIGHTS);
	*ret = (struct mfs_dcp_write_bytes){
		.key = x->key,
		.item = {.file = x->file,
			 .offset = e->offset +
				   (uint64_t)(which % mfs_dist_each(e->owner->experts)) * e->length,
			 .length = e->length}};
	return 0;
}

int mfs_dist_index(const struct mfs_megatron_dist *d, struct mfs_buf *out, struct mfs_error *err)
{
	struct index x = {.d = d};
	const struct mfs_dcp_write_ops writer = {.arg = &x,
						 .tensor_count = d->tensor_count,
						 .bytes_count = d->rng_count + d->extra_items,
						 .tensor = tensor,
						 .chunk = chunk,
						 .bytes = bytes};

	return mfs_dcp_write(&writer, out, err);
}
