#include "formats/model/hf_quantised.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/numbers/fp4.h"
#include "formats/base/str.h"
#include "formats/ckpt/ckpt_build.h"

struct settler {
	struct mfs_ckpt *ckpt;
	const struct mfs_megatron_args *args;
	struct mfs_hf_tensors *hf;
	struct mfs_error *err;
};

/* Companions of quantised weights: DeepSeek's FP8, GPTQ, AWQ, bitsandbytes, compressed-tensors,
 * MXFP4. */
static bool is_quantised(const char *name)
{
	static const char *const ends[] = {"_scale_inv", ".weight_scale",  ".qweight", ".qzeros",
					   ".scales",	 ".weight_packed", ".absmax",  ".SCB",
					   "_blocks",	 ".weight_format"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ends); i++)
		if (mfs_str_ends(name, ends[i]))
			return true;
	return false;
}

#define SCALES "_scale_inv"

static bool is_grid(const struct settler *b, const struct mfs_hf_tensor *matrix,
		    const struct mfs_hf_tensor *scales)
{
	for (unsigned a = 0; a < 2; a++) {
		const uint64_t block = (uint64_t)b->args->hf_fp8_block[a];

		if (!matrix->shape[a] || scales->shape[a] != (matrix->shape[a] - 1) / block + 1)
			return false;
	}
	return true;
}

/* True if it is a matrix, row after row, that is all of its storage. */
static bool is_alone(const struct settler *b, const struct mfs_hf_tensor *t)
{
	return t->ndim == 2 && !t->origin && t->stride[1] == 1 && t->stride[0] == t->shape[1] &&
	       b->ckpt->storages[t->storage].length / mfs_dtype_size(t->dtype) ==
		       t->shape[0] * t->shape[1];
}

static int add_scales(struct settler *b, struct mfs_hf_tensor *matrix, struct mfs_hf_tensor *t)
{
	const struct mfs_ckpt_scales scales = {.storage = t->storage,
					       .dtype = t->dtype,
					       .rows = matrix->shape[0],
					       .cols = matrix->shape[1],
					       .block_rows = (uint64_t)b->args->hf_fp8_block[0],
					       .block_cols = (uint64_t)b->args->hf_fp8_block[1],
					       .stride = t->shape[1]};
	char a[128], c[128];

	if (matrix->dtype != MFS_F8_E4M3 || (t->dtype != MFS_F32 && t->dtype != MFS_BF16))
		return mfs_fail(b->err, -ENOTSUP,
				"%s: tensors '%s' and '%s' are of %s and %s, expected "
				"float8_e4m3fn with scales of float32 or bfloat16",
				b->ckpt->dir, matrix->name, t->name, mfs_dtype_torch(matrix->dtype),
				mfs_dtype_torch(t->dtype));
	if (!is_alone(b, matrix) || !is_alone(b, t) || !is_grid(b, matrix, t))
		return mfs_fail(
			b->err, -EINVAL,
			"%s: tensor '%s' is %s, which are not the scales of '%s' %s in "
			"blocks of %lld rows and %lld columns",
			b->ckpt->dir, t->name, mfs_shape_text(t->shape, t->ndim, a, sizeof(a)),
			matrix->name, mfs_shape_text(matrix->shape, matrix->ndim, c, sizeof(c)),
			(long long)b->args->hf_fp8_block[0], (long long)b->args->hf_fp8_block[1]);
	t->used = true;
	return mfs_ckpt_add_scales(b->ckpt, &scales, &matrix->scales, b->err);
}

/* "x.weight" of "x.weight_scale_inv". NULL: the name is no such. */
static struct mfs_hf_tensor *matrix_of(const struct settler *b, const char *name)
{
	char text[MFS_CKPT_NAME_SIZE];
	const size_t len = strlen(name), end = strlen(SCALES);

	if (!b->args->hf_fp8_block[0] || !mfs_str_ends(name, ".weight" SCALES) ||
	    len >= sizeof(text))
		return NULL;
	memcpy(text, name, len - end);
	text[len - end] = '\0';
	return mfs_hf_tensors_find(b->hf, text);
}

/* ---- MXFP4 ---- */

#define BLOCKS	  "_blocks"
#define MX_SCALES "_scales"

/* True if it is row after row, and all of its storage. */
static bool is_whole(const struct settler *b, const struct mfs_hf_tensor *t)
{
	uint64_t count = 1;

	if (t->dtype != MFS_U8 || t->origin)
		return false;
	for (unsigned a = t->ndim; a--;) {
		if (!t->shape[a] || t->stride[a] != count ||
		    mfs_mul_overflows(count, t->shape[a], &count))
			return false;
	}
	return b->ckpt->storages[t->storage].length == count;
}

/* [E, out, in / 32, 16] bytes and as many scales of 32 floats each: [E, in, out] in the model, as
 * convert_moe_packed_tensors() has it. */
static int add_mx(struct settler *b, struct mfs_hf_tensor *blocks, struct mfs_hf_tensor *scales,
		  const char *name)
{
	const uint64_t *shape = blocks->shape;
	struct mfs_hf_tensor t = {.name = name,
				  .dtype = MFS_U8,
				  .ndim = 3,
				  .storage = blocks->storage,
				  .file = blocks->file};
	struct mfs_ckpt_scales of = {.storage = scales->storage,
				     .dtype = MFS_U8,
				     .block_rows = 1,
				     .block_cols = MFS_FP4_BLOCK};
	char a[128], c[128];
	int rc;

	if (blocks->ndim != 4 || scales->ndim != 3 || shape[3] != MFS_FP4_BLOCK / 2 ||
	    memcmp(shape, scales->shape, 3 * sizeof(*shape)) || !is_whole(b, blocks) ||
	    !is_whole(b, scales))
		return mfs_fail(
			b->err, -EINVAL,
			"%s: tensors '%s' %s of %s and '%s' %s of %s are no floats of 4 bits "
			"with their scales: expected uint8 [E, out, in / 32, 16] and [E, "
			"out, in / 32]",
			b->ckpt->dir, blocks->name,
			mfs_shape_text(shape, blocks->ndim, a, sizeof(a)),
			mfs_dtype_torch(blocks->dtype), scales->name,
			mfs_shape_text(scales->shape, scales->ndim, c, sizeof(c)),
			mfs_dtype_torch(scales->dtype));
	of.rows = shape[0] * shape[1]; /* no more than the bytes that there are */
	of.cols = shape[2] * MFS_FP4_BLOCK;
	of.stride = shape[2];
	t.shape[0] = shape[0];
	t.shape[1] = t.stride[2] = of.cols;
	t.shape[2] = shape[1];
	t.stride[0] = shape[1] * of.cols;
	t.stride[1] = 1;
	blocks->used = scales->used = true;
	rc = mfs_ckpt_add_scales(b->ckpt, &of, &t.scales, b->err);
	return rc ? rc : mfs_hf_tensors_add(b->ckpt, b->hf, &t, b->err);
}

/* "x" of "x_blocks", into text; *ret: its "x_scales". False: the name is no such. */
static bool is_mx(const struct settler *b, const char *name, char text[MFS_CKPT_NAME_SIZE],
		  struct mfs_hf_tensor **ret)
{
	const size_t end = strlen(BLOCKS), len = strlen(name);

	if (!b->args->hf_mxfp4 || !mfs_str_ends(name, BLOCKS) || len >= MFS_CKPT_NAME_SIZE)
		return false;
	snprintf(text, MFS_CKPT_NAME_SIZE, "%.*s" MX_SCALES, (int)(len - end), name);
	*ret = mfs_hf_tensors_find(b->hf, text);
	text[len - end] = '\0';
	return *ret;
}

/* ---- the whole ---- */

static int warn(struct settler *b, uint32_t count, const char *what)
{
	if (!count || !mfs_ckpt_warn(b->ckpt, "%u %s: they are shown as bfloat16", count, what))
		return 0;
	return mfs_fail_nomem(b->err);
}

int mfs_hf_settle_quantised(struct mfs_ckpt *ckpt, struct mfs_hf_tensors *tensors,
			    struct mfs_error *err)
{
	struct settler settler = {ckpt, &ckpt->args, tensors, err}, *b = &settler;
	struct mfs_hf_tensor *t = NULL, *matrix;
	uint32_t fp8 = 0, mx = 0;
	char name[MFS_CKPT_NAME_SIZE];
	int rc = 0;

	while (!rc && (t = mfs_hf_tensors_next(b->hf, t))) {
		if ((matrix = matrix_of(b, t->name))) {
			rc = add_scales(b, matrix, t);
			fp8++;
		} else if (is_mx(b, t->name, name, &matrix)) {
			rc = add_mx(b, t, matrix, name);
			mx++;
		} else if (is_quantised(t->name)) {
			rc = mfs_fail(
				b->err, -ENOTSUP,
				"%s: tensor '%s': quantised weights of this kind are not read",
				b->ckpt->dir, t->name);
		}
	}
	if (!rc)
		rc = warn(b, fp8, "matrices are float8_e4m3fn in blocks");
	return rc ? rc : warn(b, mx, "tensors are MXFP4");
}
