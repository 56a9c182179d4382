#include "formats/megatron/blank.h"

#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/dims.h"
#include "formats/ckpt/names.h"
#include "formats/megatron/model_tensors.h"

struct blank {
	struct mfs_ckpt *ckpt;
	const struct mfs_blank_options *options;
	uint64_t dims[MFS_DIM_COUNT];
	struct mfs_error *err;
};

static int bad_size(const struct blank *b, const struct mfs_found_chunk *f)
{
	const struct mfs_global_tensor t = {
		.name = f->name, .layer = f->layer, .expert = f->expert};
	char name[MFS_CKPT_NAME_SIZE], shape[128];

	return mfs_fail(b->err, -EINVAL, "tensor '%s' would be %s: a size is missing or too large",
			mfs_global_tensor_name(&t, name, sizeof(name)),
			mfs_shape_text(f->shape, f->ndim, shape, sizeof(shape)));
}

static int set_shape(const struct blank *b, struct mfs_found_chunk *f)
{
	enum mfs_dim axes[MFS_PARAM_AXES];
	uint64_t count;

	if (!mfs_dims_of(&b->ckpt->args, f->name, axes))
		return mfs_fail(b->err, -ENOTSUP, "tensor '%s' has no shape that is known",
				f->name);
	f->ndim = (uint8_t)mfs_param_ndim(axes);
	for (unsigned a = 0; a < f->ndim; a++)
		f->shape[a] = f->chunk.size[a] = b->dims[axes[a]];
	mfs_ckpt_contiguous(f->shape, f->ndim, f->chunk.stride);
	if (!mfs_shape_count(f->shape, f->ndim, &count) || !count || count > INT64_MAX / 16)
		return bad_size(b, f);
	return 0;
}

/* A weight and the optimizer's states of it; or a buffer. */
static int add_tensor(void *arg, const struct mfs_model_tensor *t)
{
	struct blank *b = arg;
	struct mfs_found_chunk f = {.name = mfs_ckpt_intern(b->ckpt, t->name),
				    .layer = t->layer,
				    .expert = t->expert,
				    .chunk = {.storage = MFS_ZEROS}};
	const struct mfs_blank_options *o = b->options;
	const enum mfs_dtype *dtype = o->dtype;
	int rc;

	if (!f.name)
		return mfs_fail_nomem(b->err);
	rc = set_shape(b, &f);
	if (!mfs_name_is_parameter(f.name, dtype[MFS_STATE_MODEL])) {
		f.dtype = MFS_F32;
		return rc ? rc : mfs_ckpt_add_found(b->ckpt, &f, b->err);
	}
	for (f.state = 0; f.state < MFS_STATE_COUNT && !rc; f.state++) {
		f.dtype = dtype[f.state];
		if (f.dtype != MFS_DTYPE_NONE &&
		    (!f.state || !o->has || o->has(o->arg, f.name, f.ndim, f.state)))
			rc = mfs_ckpt_add_found(b->ckpt, &f, b->err);
	}
	return rc;
}

static const struct mfs_ckpt_format no_files = {.name = "none", .title = "none"};

int mfs_blank_ckpt(const struct mfs_megatron_args *args, const struct mfs_blank_options *options,
		   struct mfs_ckpt **ret, struct mfs_error *err)
{
	struct blank b = {.options = options, .err = err};
	/* A checkpoint has a directory, for its files; this one has none. */
	int rc = mfs_ckpt_new("/", 0, &no_files, &b.ckpt, err);

	if (rc)
		return rc;
	free(b.ckpt->dir);
	b.ckpt->dir = strdup("the model");
	b.ckpt->args = *args;
	b.ckpt->args.padded_vocab_size = (int64_t)options->vocab;
	b.ckpt->args.make_vocab_size_divisible_by = 1; /* it is padded already */
	b.ckpt->layout = (struct mfs_ckpt_layout){.tp = 1, .pp = 1, .ep = 1, .etp = 1, .vpp = 1};
	mfs_dims(args, options->vocab, b.dims);
	rc = b.ckpt->dir ? mfs_model_tensors(args, add_tensor, &b) : mfs_fail_nomem(err);
	if (!rc)
		rc = mfs_ckpt_group(b.ckpt, err);
	return mfs_ckpt_end(b.ckpt, rc, ret);
}
