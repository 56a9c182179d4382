#include "formats/ckpt/target.h"

#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"

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

void mfs_whole_target_init(struct mfs_whole_target *t, struct mfs_ckpt *ckpt,
			   const struct mfs_global_tensor *src)
{
	static const struct mfs_target_kind kind = {.boxes = whole_boxes, .name = whole_name};

	*t = (struct mfs_whole_target){.base = {.kind = &kind, .ckpt = ckpt, .dtype = src->dtype},
				       .src = src};
	/* Chunks of the tensor lie in files, so its size is one that fits. */
	mfs_target_shape(&t->base, src->shape, src->ndim, NULL);
}
