/*
 * Checks that all tensors of a model are there. The source of what a GPTModel has is
 * megatron/core/models/gpt/{gpt_model,gpt_layer_specs}.py and
 * transformer/{attention,multi_latent_attention,mlp,moe/moe_layer}.py.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "formats/megatron/modules.h"
#include "formats/megatron/rank.h"
#include "formats/model/dims.h"

#define EMBEDDING "embedding.word_embeddings.weight"

#define USUAL_DIVISOR 4096 /* rows; make_vocab_size_divisible_by may be any up to this */

#define DECODER	  "decoder.layers."
#define MTP	  "mtp.layers."
#define MTP_INNER "mtp.layers.transformer_layer."

/* Which of a run's arguments require a tensor. */
enum need {
	NEED_ALWAYS,
	NEED_POSITIONS, /* learned positions */
	NEED_UNTIED,
	NEED_LAYERNORM, /* biases of LayerNorm */
	NEED_LINEAR_BIAS,
	NEED_QKV_BIAS,
	NEED_QK_NORM,
	NEED_Q_LORA,
	NEED_NO_Q_LORA,
	NEED_Q_LORA_NORM,
	NEED_SHARED_EXPERT,
	NEED_EXPERT_BIAS,
};

struct needed {
	const char *name; /* canonical (ckpt.h); in a layer: without the prefix */
	enum mfs_module_when when;
	enum need need;
	bool experts;
};

static const struct needed outside[] = {
	{"embedding.word_embeddings.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"embedding.position_embeddings.weight", MFS_WHEN_ALWAYS, NEED_POSITIONS, false},
	{"decoder.final_layernorm.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"decoder.final_layernorm.bias", MFS_WHEN_ALWAYS, NEED_LAYERNORM, false},
	{"output_layer.weight", MFS_WHEN_ALWAYS, NEED_UNTIED, false},
	{0},
};

static const struct needed layer[] = {
	{"input_layernorm.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"input_layernorm.bias", MFS_WHEN_ALWAYS, NEED_LAYERNORM, false},
	{"self_attention.linear_proj.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"self_attention.linear_proj.bias", MFS_WHEN_GQA, NEED_LINEAR_BIAS, false},
	{"self_attention.linear_qkv.weight", MFS_WHEN_GQA, NEED_ALWAYS, false},
	{"self_attention.linear_qkv.bias", MFS_WHEN_GQA, NEED_QKV_BIAS, false},
	{"self_attention.q_layernorm.weight", MFS_WHEN_GQA, NEED_QK_NORM, false},
	{"self_attention.k_layernorm.weight", MFS_WHEN_GQA, NEED_QK_NORM, false},
	{"self_attention.linear_q_proj.weight", MFS_WHEN_MLA, NEED_NO_Q_LORA, false},
	{"self_attention.linear_q_down_proj.weight", MFS_WHEN_MLA, NEED_Q_LORA, false},
	{"self_attention.linear_q_up_proj.weight", MFS_WHEN_MLA, NEED_Q_LORA, false},
	{"self_attention.q_layernorm.weight", MFS_WHEN_MLA, NEED_Q_LORA_NORM, false},
	{"self_attention.linear_kv_down_proj.weight", MFS_WHEN_MLA, NEED_ALWAYS, false},
	{"self_attention.linear_kv_up_proj.weight", MFS_WHEN_MLA, NEED_ALWAYS, false},
	{"self_attention.kv_layernorm.weight", MFS_WHEN_MLA, NEED_QK_NORM, false},
	{"pre_mlp_layernorm.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"pre_mlp_layernorm.bias", MFS_WHEN_ALWAYS, NEED_LAYERNORM, false},
	{"mlp.linear_fc1.weight", MFS_WHEN_DENSE, NEED_ALWAYS, false},
	{"mlp.linear_fc1.bias", MFS_WHEN_DENSE, NEED_LINEAR_BIAS, false},
	{"mlp.linear_fc2.weight", MFS_WHEN_DENSE, NEED_ALWAYS, false},
	{"mlp.linear_fc2.bias", MFS_WHEN_DENSE, NEED_LINEAR_BIAS, false},
	{"mlp.router.weight", MFS_WHEN_MOE, NEED_ALWAYS, false},
	{"mlp.router.expert_bias", MFS_WHEN_MOE, NEED_EXPERT_BIAS, false},
	{"mlp.experts.experts.linear_fc1.weight", MFS_WHEN_MOE, NEED_ALWAYS, true},
	{"mlp.experts.experts.linear_fc2.weight", MFS_WHEN_MOE, NEED_ALWAYS, true},
	{"mlp.shared_experts.linear_fc1.weight", MFS_WHEN_MOE, NEED_SHARED_EXPERT, false},
	{"mlp.shared_experts.linear_fc2.weight", MFS_WHEN_MOE, NEED_SHARED_EXPERT, false},
	{0},
};

static const struct needed mtp[] = {
	{"enorm.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"hnorm.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"eh_proj.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{"final_layernorm.weight", MFS_WHEN_ALWAYS, NEED_ALWAYS, false},
	{0},
};

static bool is_needed(const struct mfs_megatron_args *a, enum need need)
{
	switch (need) {
	case NEED_POSITIONS:
		return !strcmp(a->position_embedding_type, "learned_absolute");
	case NEED_UNTIED:
		return !a->tied;
	case NEED_LAYERNORM:
		return a->layernorm;
	case NEED_LINEAR_BIAS:
		return a->add_bias_linear;
	case NEED_QKV_BIAS:
		return a->add_bias_linear || a->add_qkv_bias;
	case NEED_QK_NORM:
		return a->qk_layernorm;
	case NEED_Q_LORA:
		return a->q_lora_rank != MFS_UNSET;
	case NEED_NO_Q_LORA:
		return a->q_lora_rank == MFS_UNSET;
	case NEED_Q_LORA_NORM:
		return a->q_lora_rank != MFS_UNSET && a->qk_layernorm;
	case NEED_SHARED_EXPERT:
		return a->moe_shared_expert_intermediate_size != MFS_UNSET;
	case NEED_EXPERT_BIAS:
		return a->moe_router_enable_expert_bias;
	case NEED_ALWAYS:
		break;
	}
	return true;
}

static bool applies(const struct mfs_megatron_args *a, enum mfs_module_when when, bool moe)
{
	switch (when) {
	case MFS_WHEN_DENSE:
		return !moe;
	case MFS_WHEN_MOE:
		return moe;
	case MFS_WHEN_MLA:
		return a->multi_latent_attention;
	case MFS_WHEN_GQA:
		return !a->multi_latent_attention;
	case MFS_WHEN_ALWAYS:
		break;
	}
	return true;
}

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

static int check_row(const struct mfs_ckpt *ckpt, const struct needed *row, const char *prefix,
		     int32_t number, struct mfs_error *err)
{
	const int64_t experts = row->experts ? mfs_ckpt_args(ckpt)->num_experts : 1;
	char name[MFS_CKPT_NAME_SIZE];

	snprintf(name, sizeof(name), "%s%s", prefix, row->name);
	for (int32_t e = 0; e < experts; e++)
		if (!mfs_ckpt_find(ckpt, name, number, row->experts ? e : -1))
			return missing(ckpt, name, number, row->experts ? e : -1, err);
	return 0;
}

static int check_rows(const struct mfs_ckpt *ckpt, const struct needed *rows, const char *prefix,
		      int32_t number, bool moe, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	int rc = 0;

	for (; rows->name && !rc; rows++)
		if (applies(a, rows->when, moe) && is_needed(a, rows->need))
			rc = check_row(ckpt, rows, prefix, number, err);
	return rc;
}

static int check_needed(const struct mfs_ckpt *ckpt, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(ckpt);
	int rc = check_rows(ckpt, outside, "", -1, false, err);

	for (int32_t l = 0; l < a->num_layers && !rc; l++)
		rc = check_rows(ckpt, layer, DECODER, l, mfs_args_is_moe(a, l), err);
	for (int32_t k = 0; k < a->mtp_num_layers && !rc; k++) {
		rc = check_rows(ckpt, mtp, MTP, k, false, err);
		if (!rc)
			rc = check_rows(ckpt, layer, MTP_INNER, k,
					mfs_args_is_moe(a, a->num_layers - 1), err);
	}
	return rc;
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

/* True if layers of this kind have tensors of this name. */
static bool in_layer(const struct mfs_megatron_args *a, const char *name, int64_t number)
{
	if (strstr(name, ".mlp.linear_"))
		return !mfs_args_is_moe(a, number);
	return mfs_args_is_moe(a, number) || !strstr(name, ".mlp.");
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
