#include "formats/ckpt/fp8_target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/bytes.h"

static const struct mfs_fp8_target *fp8(const struct mfs_target *t)
{
	return (const struct mfs_fp8_target *)t;
}

static int boxes(const struct mfs_target *t, mfs_emit_box emit, void *arg)
{
	return mfs_target_boxes(fp8(t)->of, emit, arg);
}

static size_t name(const struct mfs_target *t, char *text, size_t size)
{
	const size_t len = mfs_target_name(fp8(t)->of, text, size);
	const int more = snprintf(len < size ? text + len : NULL, len < size ? size - len : 0, "%s",
				  fp8(t)->suffix);

	return len + (size_t)more;
}

static enum mfs_op quantise(const struct mfs_target *t)
{
	(void)t;
	return MFS_OP_QUANTISE;
}

static enum mfs_op scales(const struct mfs_target *t)
{
	(void)t;
	return MFS_OP_SCALES;
}

static const struct mfs_target_ops weight_ops = {boxes, name, quantise};
static const struct mfs_target_ops scale_ops = {boxes, name, scales};

static int no_matrix(const struct mfs_target *t, struct mfs_error *err)
{
	char text[MFS_CKPT_NAME_SIZE];

	mfs_target_name(t, text, sizeof(text));
	return mfs_fail(err, -ENOTSUP, "%s: tensor '%s' is of %s, which is not cast to %s",
			mfs_ckpt_dir(t->ckpt), text, mfs_dtype_torch(t->dtype),
			mfs_dtype_torch(MFS_F8_E4M3));
}

/* A matrix, or several of whole blocks, which are then as one. */
static bool is_matrix(const struct mfs_target *t, uint64_t block_rows)
{
	const uint64_t rows = t->ndim < 2 ? 0 : t->shape[t->ndim - 2];

	return (t->ndim == 2 || (t->ndim == 3 && block_rows && rows % block_rows == 0)) && rows &&
	       t->shape[0] && t->shape[t->ndim - 1] &&
	       (t->dtype == MFS_F32 || t->dtype == MFS_BF16 || t->dtype == MFS_F16) &&
	       mfs_target_op(t) == MFS_OP_COPY;
}

int mfs_fp8_targets_init(struct mfs_fp8_target *weight, struct mfs_fp8_target *scale,
			 struct mfs_fp8_scales *known, const struct mfs_target *of,
			 uint64_t block_rows, uint64_t block_cols, const char *suffix,
			 struct mfs_error *err)
{
	const unsigned row = of->ndim - 2u;
	uint64_t grid[MFS_CKPT_DIMS];
	int rc;

	if (!is_matrix(of, block_rows))
		return no_matrix(of, err);
	memcpy(grid, of->shape, sizeof(grid));
	known->rows = of->shape[row] * (row ? of->shape[0] : 1);
	known->cols = of->shape[row + 1];
	known->block_rows = block_rows ? mfs_min_u64(block_rows, known->rows) : known->rows;
	known->block_cols = block_cols ? mfs_min_u64(block_cols, known->cols) : known->cols;
	known->grid_rows = (known->rows - 1) / known->block_rows + 1;
	known->grid_cols = (known->cols - 1) / known->block_cols + 1;
	grid[row] = known->grid_rows / (row ? of->shape[0] : 1);
	grid[row + 1] = known->grid_cols;
	*weight = (struct mfs_fp8_target){
		.base = {.ops = &weight_ops, .ckpt = of->ckpt, .dtype = MFS_F8_E4M3},
		.of = of,
		.scales = known,
		.suffix = ""};
	*scale = *weight;
	scale->base.ops = &scale_ops;
	scale->base.dtype = MFS_F32;
	scale->suffix = suffix;
	rc = mfs_target_shape(&weight->base, of->shape, of->ndim, err);
	return rc ? rc : mfs_target_shape(&scale->base, grid, block_rows ? of->ndim : 0, err);
}

int mfs_fp8_part_targets_init(struct mfs_fp8_target *weight, struct mfs_fp8_target *scale,
			      const struct mfs_target *of, const struct mfs_fp8_parts *parts,
			      uint32_t stacks, const char *suffix, struct mfs_error *err)
{
	const uint64_t shape[MFS_CKPT_DIMS] = {stacks ? stacks : parts->count,
					       stacks ? parts->count / stacks : 1};
	int rc;

	if (!is_matrix(of, 1))
		return no_matrix(of, err);
	*weight = (struct mfs_fp8_target){
		.base = {.ops = &weight_ops, .ckpt = of->ckpt, .dtype = MFS_F8_E4M3},
		.of = of,
		.parts = *parts,
		.suffix = ""};
	*scale = *weight;
	scale->base.ops = &scale_ops;
	scale->base.dtype = MFS_F32;
	scale->suffix = suffix;
	rc = mfs_target_shape(&weight->base, of->shape, of->ndim, err);
	return rc ? rc : mfs_target_shape(&scale->base, shape, shape[1] > 1 ? 2 : 1, err);
}

int mfs_fp8_scales_ready(struct mfs_fp8_scales *s, struct mfs_error *err)
{
	_Atomic uint32_t *bits, *first = NULL;

	if (atomic_load(&s->bits))
		return 0;
	bits = calloc(s->grid_rows * s->grid_cols, sizeof(*bits)); /* the grid fits in a target */
	if (!bits)
		return mfs_fail_nomem(err);
	if (!atomic_compare_exchange_strong(&s->bits, &first, bits))
		free((void *)bits);
	return 0;
}

void mfs_fp8_scales_release(struct mfs_fp8_scales *s)
{
	free((void *)atomic_load(&s->bits));
}
