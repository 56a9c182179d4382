#include "formats/ckpt/target.h"

#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/numbers/cast.h"
#include "formats/ckpt/names.h"

int mfs_target_shape(struct mfs_target *t, const uint64_t *shape, unsigned ndim,
		     struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];
	uint64_t elements;

	t->ndim = (uint8_t)ndim;
	memcpy(t->shape, shape, ndim * sizeof(*shape));
	if (mfs_shape_count(shape, ndim, &elements) &&
	    !mfs_mul_overflows(elements, mfs_dtype_size(t->dtype), &t->bytes))
		return 0;
	mfs_target_name(t, name, sizeof(name));
	return mfs_fail(err, -EINVAL, "%s: tensor '%s' is too large", mfs_ckpt_dir(t->ckpt), name);
}

static int whole_boxes(const struct mfs_target *base, mfs_emit_box emit, void *arg)
{
	const struct mfs_whole_target *t = (const struct mfs_whole_target *)base;
	struct mfs_box_map m = {.src = t->src};

	for (unsigned a = 0; a < base->ndim; a++) {
		m.size[a] = base->shape[a];
		m.step[a] = 1;
		m.src_axis[a] = (uint8_t)a;
	}
	return emit(&m, arg);
}

static size_t whole_name(const struct mfs_target *base, char *text, size_t size)
{
	const struct mfs_whole_target *t = (const struct mfs_whole_target *)base;

	return strlen(mfs_global_tensor_name(t->src, text, size));
}

static enum mfs_op add_one(const struct mfs_target *t)
{
	(void)t;
	return MFS_OP_ADD_ONE;
}

static enum mfs_op saved(const struct mfs_target *t)
{
	return mfs_megatron_op(((const struct mfs_whole_target *)t)->src);
}

static void whole_init(struct mfs_whole_target *t, const struct mfs_target_ops *ops,
		       struct mfs_ckpt *ckpt, const struct mfs_global_tensor *src)
{
	*t = (struct mfs_whole_target){.base = {.ops = ops, .ckpt = ckpt, .dtype = src->dtype},
				       .src = src};
	/* Chunks of the tensor lie in files, so its size is one that fits. */
	mfs_target_shape(&t->base, src->shape, src->ndim, NULL);
}

void mfs_whole_target_init(struct mfs_whole_target *t, struct mfs_ckpt *ckpt,
			   const struct mfs_global_tensor *src)
{
	static const struct mfs_target_ops ops = {.boxes = whole_boxes, .name = whole_name};

	whole_init(t, &ops, ckpt, src);
}

void mfs_whole_target_init_saved(struct mfs_whole_target *t, struct mfs_ckpt *ckpt,
				 const struct mfs_global_tensor *src)
{
	static const struct mfs_target_ops ops = {whole_boxes, whole_name, saved};

	whole_init(t, &ops, ckpt, src);
}

void mfs_whole_target_init_add_one(struct mfs_whole_target *t, struct mfs_ckpt *ckpt,
				   const struct mfs_global_tensor *src)
{
	static const struct mfs_target_ops ops = {whole_boxes, whole_name, add_one};

	whole_init(t, &ops, ckpt, src);
}

enum mfs_dtype mfs_run_dtype(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t)
{
	const char *name = mfs_ckpt_args(ckpt)->params_dtype;
	const enum mfs_dtype dtype = name ? mfs_dtype_from_torch(name) : MFS_DTYPE_NONE;

	return mfs_ckpt_format(ckpt)->is_plain && t->state == MFS_STATE_MODEL &&
			       t->dtype == MFS_F32 && dtype != MFS_DTYPE_NONE &&
			       mfs_name_is_parameter(t->name, t->dtype)
		       ? dtype
		       : t->dtype;
}

static int cast_boxes(const struct mfs_target *base, mfs_emit_box emit, void *arg)
{
	return mfs_target_boxes(((const struct mfs_cast_target *)base)->of, emit, arg);
}

static size_t cast_name(const struct mfs_target *base, char *text, size_t size)
{
	return mfs_target_name(((const struct mfs_cast_target *)base)->of, text, size);
}

static enum mfs_op cast_op(const struct mfs_target *base)
{
	return mfs_target_op(((const struct mfs_cast_target *)base)->of);
}

int mfs_cast_target_init(struct mfs_cast_target *t, const struct mfs_target *of,
			 enum mfs_dtype dtype, struct mfs_error *err)
{
	static const struct mfs_target_ops ops = {cast_boxes, cast_name, cast_op};
	char name[MFS_CKPT_NAME_SIZE];

	*t = (struct mfs_cast_target){.base = {.ops = &ops, .ckpt = of->ckpt, .dtype = dtype},
				      .of = of};
	if (mfs_cast_is_possible(of->dtype, dtype))
		return mfs_target_shape(&t->base, of->shape, of->ndim, err);
	mfs_target_name(of, name, sizeof(name));
	return mfs_fail(err, -ENOTSUP, "%s: tensor '%s' is of %s, which is not cast to %s",
			mfs_ckpt_dir(of->ckpt), name, mfs_dtype_torch(of->dtype),
			mfs_dtype_torch(dtype));
}
