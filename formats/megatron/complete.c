/* Checks that all tensors of a model are there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/dims.h"
#include "formats/megatron/model_tensors.h"
#include "formats/megatron/modules.h"
#include "formats/megatron/rank.h"

#define EMBEDDING "embedding.word_embeddings.weight"

#define USUAL_DIVISOR 4096 /* rows; make_vocab_size_divisible_by may be any up to this */

#define DECODER	  "decoder.layers."
#define MTP	  "mtp.layers."
#define MTP_INNER "mtp.layers.transformer_layer."

static int missing(const struct mfs_ckpt *ckpt, const char *name, int32_t number, int32_t expert,
		   struct mfs_error *err)
{
	const struct mfs_global_tensor absent = {.name = name, .layer = number, .expert = expert};
	char text[MFS_CKPT_NAME_SIZE];

	return mfs_fail(err, -ENODATA,
			"%s: tensor '%s' is missing; a model with these arguments has it",
			mfs_ckpt_dir(ckpt), mfs_global_tensor_name(&absent, text, sizeof(text)));
}

/* ---- what must be there ---- */

struct needing {
	const struct mfs_ckpt *ckpt;
	struct mfs_error *err;
};

static int check_one(void *arg, const struct mfs_model_tensor *t)
{
	const struct needing *n = arg;

	if (!t->certain || mfs_ckpt_find(n->ckpt, t->name, t->layer, t->expert))
		return 0;
	return missing(n->ckpt, t->name, t->layer, t->expert, n->err);
}

static int check_needed(const struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	struct needing n = {ckpt, err};

	return mfs_model_tensors(mfs_ckpt_args(ckpt), check_one, &n);
}

/* ---- what is there beyond that ---- */

static bool in_table(const struct mfs_module_row *rows, const char *name)
{
	for (; rows->name; rows++)
		if (!rows->extra && !strcmp(rows->canonical, name))
			return true;
	return false;
}

static bool is_known(const char *name, enum mfs_layer_spec spec)
{
	const struct mfs_module_row *rows =
		spec == MFS_LAYER_SPEC_LOCAL ? mfs_modules_local : mfs_modules_te;

	if (!strncmp(name, DECODER, strlen(DECODER)))
		return in_table(rows, name + strlen(DECODER));
	if (!strncmp(name, MTP_INNER, strlen(MTP_INNER)))
		return in_table(rows, name + strlen(MTP_INNER));
	if (!strncmp(name, MTP, strlen(MTP)))
		return in_table(mfs_modules_mtp_before, name + strlen(MTP)) ||
		       in_table(mfs_modules_mtp_after, name + strlen(MTP));
	return in_table(mfs_modules_before, name) || in_table(mfs_modules_after, name) ||
	       in_table(mfs_modules_output, name);
}

/* True if linear attention has tensors of this name. */
static bool is_of_linear(const char *name)
{
	static const char *const parts[] = {".in_proj.", ".conv1d.",   ".A_log",
					    ".dt_bias",	 ".out_norm.", ".out_proj."};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(parts); i++)
		if (strstr(name, parts[i]))
			return true;
	return false;
}

/* True if layers of this kind have tensors of this name. */
static bool in_layer(const struct mfs_megatron_args *a, const char *name, int64_t number)
{
	if (strstr(name, ".mixer.") || strstr(name, ".norm."))
		return mfs_args_is_mamba(a, number);
	if (strstr(name, ".self_attention."))
		return mfs_args_has_attention(a, number) &&
		       mfs_args_is_linear(a, number) == is_of_linear(name);
	if (strstr(name, ".input_layernorm."))
		return mfs_args_has_attention(a, number);
	if (strstr(name, ".pre_mlp_layernorm."))
		return mfs_args_has_mlp(a, number);
	if (strstr(name, ".mlp.linear_"))
		return mfs_args_has_mlp(a, number) && !mfs_args_is_moe(a, number);
	return mfs_args_is_moe(a, number);
}

/* All layers of a kind, and all experts, must have a tensor that one of them has. */
static int check_siblings(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
			  struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	const bool of_mtp = !strncmp(t->name, MTP, strlen(MTP));
	const int64_t layers = of_mtp ? a->mtp_num_layers : a->num_layers;
	const int64_t experts = t->expert < 0 ? 1 : a->num_experts;

	for (int32_t l = 0; l < layers; l++) {
		if (!of_mtp && !in_layer(a, t->name, l))
			continue;
		for (int32_t e = 0; e < experts; e++)
			if (!mfs_ckpt_find(ckpt, t->name, l, t->expert < 0 ? -1 : e))
				return missing(ckpt, t->name, l, t->expert < 0 ? -1 : e, err);
	}
	return 0;
}

/* Checks one tensor for all tensors of its name. */
static int check_name(const struct mfs_ckpt *ckpt, const struct mfs_global_tensor *t,
		      enum mfs_layer_spec spec, struct mfs_error *err)
{
	char name[MFS_CKPT_NAME_SIZE];

	if (!is_known(t->name, spec))
		return mfs_fail(err, -ENOTSUP, "%s: tensor '%s' belongs to no module of a GPTModel",
				mfs_ckpt_dir(ckpt), mfs_global_tensor_name(t, name, sizeof(name)));
	return t->layer >= 0 ? check_siblings(ckpt, t, err) : 0;
}

/*
 * Views pad the vocabulary to a multiple of make_vocab_size_divisible_by and TP. The run padded its
 * own embedding so, unless it was given the size (--padded-vocab-size). So a divisor larger than
 * the embedding was never used, and is refused if it is not a usual one.
 */
static int check_divisor(const struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const int64_t divisor = mfs_ckpt_args(ckpt)->make_vocab_size_divisible_by;
	const struct mfs_global_tensor *t = mfs_ckpt_find(ckpt, EMBEDDING, -1, -1);
	const uint64_t rows = t && t->ndim ? t->shape[0] : 0;

	if (divisor <= USUAL_DIVISOR || (uint64_t)divisor <= rows)
		return 0;
	return mfs_fail(err, -EINVAL,
			"%s: tensor '" EMBEDDING "' is too small for the run's "
			"make_vocab_size_divisible_by: expected %lld rows or more, found %llu",
			mfs_ckpt_dir(ckpt), (long long)divisor, (unsigned long long)rows);
}

int mfs_rank_check(const struct mfs_ckpt *ckpt, enum mfs_layer_spec spec, struct mfs_error *err)
{
	uint64_t dims[MFS_DIM_COUNT];
	int rc = check_needed(ckpt, err);

	if (!rc)
		rc = check_divisor(ckpt, err);
	mfs_dims(mfs_ckpt_args(ckpt), mfs_dims_padded_vocab(ckpt), dims);
	for (uint32_t i = 0; i < mfs_ckpt_count(ckpt) && !rc; i++) {
		const struct mfs_global_tensor *t = mfs_ckpt_at(ckpt, i);

		/* Tensors are sorted by name: this is the first of its name. */
		if (!i || mfs_ckpt_at(ckpt, i - 1)->name != t->name)
			rc = check_name(ckpt, t, spec, err);
		if (!rc)
			rc = mfs_dims_check(ckpt, dims, t, err);
	}
	return rc;
}
