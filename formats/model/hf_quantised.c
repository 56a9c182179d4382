#include "formats/model/hf_quantised.h"

#include <errno.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/ckpt/build.h"

struct settler {
	struct mfs_ckpt *ckpt;
	const struct mfs_megatron_args *args;
	struct mfs_hf_tensors *hf;
	struct mfs_error *err;
};

/* Companions of quantised weights: DeepSeek's FP8, GPTQ, AWQ, bitsandbytes, compressed-tensors. */
static bool is_quantised(const char *name)
{
	static const char *const ends[] = {"_scale_inv", ".weight_scale",  ".qweight", ".qzeros",
					   ".scales",	 ".weight_packed", ".absmax",  ".SCB",
					   "_blocks",	 ".weight_format"};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
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
					       .block_cols = (uint64_t)b->args->hf_fp8_block[1]};
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
	if (matrix->quantised || mfs_ckpt_scales(b->ckpt, matrix->storage))
		return mfs_fail(b->err, -EINVAL, "%s: tensor '%s' has the storage of another",
				b->ckpt->dir, matrix->name);
	t->used = matrix->quantised = true;
	return mfs_ckpt_add_scales(b->ckpt, matrix->storage, &scales, b->err);
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

int mfs_hf_settle_quantised(struct mfs_ckpt *ckpt, struct mfs_hf_tensors *tensors,
			    struct mfs_error *err)
{
	struct settler settler = {ckpt, &ckpt->args, tensors, err}, *b = &settler;
	struct mfs_hf_tensor *t = NULL;
	uint32_t count = 0;
	int rc = 0;

	while (!rc && (t = (struct mfs_hf_tensor *)mfs_hf_tensors_next(b->hf, t))) {
		struct mfs_hf_tensor *matrix = matrix_of(b, t->name);

		if (matrix)
			rc = add_scales(b, matrix, t);
		else if (is_quantised(t->name))
			rc = mfs_fail(
				b->err, -ENOTSUP,
				"%s: tensor '%s': quantised weights of this kind are not read",
				b->ckpt->dir, t->name);
		count += matrix != NULL;
	}
	if (!rc && count &&
	    mfs_ckpt_warn(b->ckpt,
			  "%u matrices are float8_e4m3fn in blocks: they are shown as bfloat16",
			  count))
		rc = mfs_fail_nomem(b->err);
	return rc;
}
