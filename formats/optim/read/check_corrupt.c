/*
 * fully_reshardable saves of core 0.15 to 0.19 removed the padding of buckets, but then read
 * parameters at their places with padding (fixed in 32a03b77c5, 2026-08-21). So with several
 * buckets all states after the first bucket are shifted. The files do not say which release wrote
 * them. But a weight must be its fp32 parameter, rounded; this shows a shift.
 *
 * It shows, too, where flat buffers or the files of a layer-wise optimizer's ranks have another
 * order of parameters than the arguments say.
 */
#include <errno.h>
#include <string.h>

#include "formats/base/bytes.h"
#include "formats/numbers/half.h"
#include "formats/optim/read/optim_i.h"

#define SAMPLES	     8	  /* elements of each chunk */
#define CHUNKS	     64	  /* of each tensor */
#define MANY_TENSORS 2048 /* of more tensors only a part is checked */

/* A buffer may have several buckets if overlap_grad_reduce is set, or if two stages share an
 * embedding. */
static bool may_have_buckets(const struct mfs_ckpt *ckpt, const struct mfs_optim_rules *rules)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);

	return rules->overlap_grad_reduce ||
	       ((a->tied || a->mtp_num_layers > 0) && mfs_ckpt_layout(ckpt)->pp > 1);
}

static const struct mfs_chunk *chunk_with(const struct mfs_ckpt *ckpt,
					  const struct mfs_global_tensor *t, const uint64_t *lo)
{
	const struct mfs_chunk *c = mfs_ckpt_chunks(ckpt, t);

	for (uint32_t i = 0; i < t->chunk_count; i++) {
		bool in = true;

		for (unsigned d = 0; d < t->ndim; d++)
			in &= lo[d] >= c[i].lo[d] && lo[d] - c[i].lo[d] < c[i].size[d];
		if (in)
			return &c[i];
	}
	return NULL;
}

/* Reads count elements from lo on along the last axis, where they must be contiguous. */
static int read_elements(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
			 const struct mfs_chunk *c, const uint64_t *lo, size_t count, void *ret,
			 struct mfs_error *err)
{
	const size_t size = mfs_dtype_size(t->dtype);
	uint64_t at = c->origin, offset;
	uint32_t file;
	int rc = mfs_ckpt_locate(ckpt, t, c->storage, &file, &offset, err);

	if (rc)
		return rc;
	for (unsigned d = 0; d < t->ndim; d++)
		at += (lo[d] - c->lo[d]) * c->stride[d];
	if (!mfs_range_ok(offset, at * size, UINT64_MAX) ||
	    !mfs_range_ok(offset + at * size, count * size,
			  mfs_fileset_size(mfs_ckpt_files(ckpt), file)))
		return mfs_fail(err, -EINVAL, "%s/%s: a tensor reaches beyond the file",
				mfs_ckpt_dir(ckpt), mfs_fileset_name(mfs_ckpt_files(ckpt), file));
	return mfs_fileset_read(mfs_ckpt_files(ckpt), file, offset + at * size, ret, count * size,
				err);
}

/* True if a weight is its fp32 parameter, rounded. */
static bool is_rounded(enum mfs_dtype dtype, const uint8_t *weight, const uint8_t *main)
{
	float f;

	memcpy(&f, main, sizeof(f));
	if (dtype == MFS_F32)
		return !memcmp(weight, main, sizeof(f));
	if (f != f)
		return true;
	return mfs_le16(weight) == (dtype == MFS_BF16 ? mfs_float_to_bf16(f) : mfs_float_to_f16(f));
}

/* The number of contiguous elements of a chunk from lo on. */
static uint64_t side_by_side(const struct mfs_global_tensor *t, const struct mfs_chunk *c,
			     const uint64_t *lo)
{
	const unsigned last = t->ndim - 1u;

	return t->ndim && c->stride[last] == 1 ? c->lo[last] + c->size[last] - lo[last] : 1;
}

static int compare_chunk(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *model,
			 const struct mfs_global_tensor *main, const struct mfs_chunk *c,
			 const char *why, struct mfs_error *err)
{
	const struct mfs_chunk *w = chunk_with(ckpt, model, c->lo);
	const size_t size = mfs_dtype_size(model->dtype);
	uint8_t weights[SAMPLES * 4], mains[SAMPLES * 4];
	char name[MFS_CKPT_NAME_SIZE];
	size_t count;
	int rc;

	if (!w || main->dtype != MFS_F32)
		return 0;
	count = mfs_min_u64(
		SAMPLES, mfs_min_u64(side_by_side(main, c, c->lo), side_by_side(model, w, c->lo)));
	rc = read_elements(ckpt, model, w, c->lo, count, weights, err);
	if (!rc)
		rc = read_elements(ckpt, main, c, c->lo, count, mains, err);
	for (size_t i = 0; i < count && !rc; i++)
		if (!is_rounded(model->dtype, weights + i * size, mains + i * 4))
			rc = mfs_fail(
				err, -EINVAL,
				"%s: the optimizer's state of '%s' is not that of the weights: %s",
				mfs_ckpt_dir(ckpt),
				mfs_global_tensor_name(model, name, sizeof(name)), why);
	return rc;
}

static int compare(struct mfs_ckpt *ckpt, const struct mfs_global_tensor *model, const char *why,
		   struct mfs_error *err)
{
	const struct mfs_global_tensor *main =
		mfs_ckpt_find_state(ckpt, MFS_STATE_MAIN, model->name, model->layer, model->expert);
	const struct mfs_chunk *c = main ? mfs_ckpt_chunks(ckpt, main) : NULL;
	int rc = 0;

	for (uint32_t i = 0; c && i < main->chunk_count && i < CHUNKS && !rc; i++)
		rc = compare_chunk(ckpt, model, main, &c[i], why, err);
	return rc;
}

/* True if a shift shows in this tensor. The last bucket of a first stage ends with its first
 * parameters; that of a last stage has all but its head. */
static bool is_telling(const struct mfs_global_tensor *t)
{
	return t->layer <= 0 || strstr(t->name, "final_layernorm");
}

int mfs_optim_check_corrupt(struct mfs_ckpt *ckpt, bool flat, struct mfs_error *err)
{
	const uint32_t count = mfs_ckpt_count(ckpt), step = count / MANY_TENSORS + 1;
	const char *why = flat ? "its flat buffers, or files of ranks, have parameters in another "
				 "order than the arguments and the model's layers say"
			       : "saves of core 0.15 to 0.19 with fully_reshardable and several "
				 "buckets are corrupt (fixed in Megatron-LM 32a03b77c5)";
	struct mfs_optim_rules rules;
	int rc = 0;

	mfs_optim_rules_of(ckpt, &rules);
	if (rules.quantised_weights || (!flat && !may_have_buckets(ckpt, &rules)))
		return 0;
	for (uint32_t i = 0; i < count && !rc; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		if (mfs_name_is_parameter(t->name, t->dtype) && (i % step == 0 || is_telling(t)))
			rc = compare(ckpt, t, why, err);
	}
	return rc;
}
