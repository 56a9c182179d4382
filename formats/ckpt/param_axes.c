#include "formats/ckpt/param_axes.h"

#include <string.h>

#define PARAM(name_, rows_, columns_, ...)                                                         \
	{                                                                                          \
		.name = name_, .axes = {MFS_DIM_##rows_, MFS_DIM_##columns_}, __VA_ARGS__          \
	}
#define MATRIX(name_, rows_, columns_) PARAM(name_, rows_, columns_, .norm = false)
#define VECTOR(name_, size_)	       MATRIX(name_, size_, NONE)
#define LINEAR(name_, rows_, columns_)                                                             \
	MATRIX(name_ ".weight", rows_, columns_), VECTOR(name_ ".bias", rows_)
#define NORM(name_, size_)                                                                         \
	PARAM(name_ ".weight", size_, NONE, .norm = true), VECTOR(name_ ".bias", size_)

static const struct mfs_param outside[] = {
	MATRIX("embedding.word_embeddings.weight", VOCAB, HIDDEN),
	MATRIX("embedding.position_embeddings.weight", POSITIONS, HIDDEN),
	NORM("decoder.final_layernorm", HIDDEN),
	LINEAR("output_layer", VOCAB, HIDDEN),
	{0},
};

/* The rows of fc1 are doubled for a gated model. */
static const struct mfs_param layer[] = {
	NORM("input_layernorm", HIDDEN),
	VECTOR("self_attention.core_attention.softmax_offset", HEAD_COUNT),
	NORM("pre_mlp_layernorm", HIDDEN),
	LINEAR("mlp.linear_fc1", FFN, HIDDEN),
	LINEAR("mlp.linear_fc2", HIDDEN, FFN),
	NORM("mlp.linear_fc2.post_layernorm", HIDDEN),
	NORM("self_attention.linear_proj.post_layernorm", HIDDEN),
	LINEAR("mlp.router", EXPERTS, HIDDEN),
	VECTOR("mlp.router.expert_bias", EXPERTS),
	LINEAR("mlp.experts.experts.linear_fc1", MOE_FFN, HIDDEN),
	LINEAR("mlp.experts.experts.linear_fc2", HIDDEN, MOE_FFN),
	MATRIX("mlp.shared_experts.gate_weight", ONE, HIDDEN),
	LINEAR("mlp.shared_experts.linear_fc1", SHARED_FFN, HIDDEN),
	LINEAR("mlp.shared_experts.linear_fc2", HIDDEN, SHARED_FFN),
	{0},
};

/* All kinds of attention have linear_proj and q_layernorm, with other shapes. */
static const struct mfs_param grouped_queries[] = {
	LINEAR("self_attention.linear_qkv", QKV, HIDDEN),
	LINEAR("self_attention.linear_proj", HIDDEN, HEADS),
	{0},
};

/* Layers of linear attention have these in place of the others. */
static const struct mfs_param delta_net[] = {
	LINEAR("self_attention.in_proj", LINEAR_IN, HIDDEN),
	{.name = "self_attention.conv1d.weight",
	 .axes = {MFS_DIM_LINEAR_CONV, MFS_DIM_ONE, MFS_DIM_LINEAR_KERNEL}},
	VECTOR("self_attention.A_log", LINEAR_HEAD_COUNT),
	VECTOR("self_attention.dt_bias", LINEAR_HEAD_COUNT),
	NORM("self_attention.out_norm", LINEAR_HEAD),
	LINEAR("self_attention.out_proj", HIDDEN, LINEAR_HEADS),
	{0},
};

/* A layer that is a Mamba-2 mixer. Its own norm is never stored as weight - 1. */
static const struct mfs_param mamba[] = {
	NORM("norm", HIDDEN),
	MATRIX("mixer.in_proj.weight", MAMBA_IN, HIDDEN),
	{.name = "mixer.conv1d.weight",
	 .axes = {MFS_DIM_MAMBA_CONV, MFS_DIM_ONE, MFS_DIM_MAMBA_KERNEL}},
	VECTOR("mixer.conv1d.bias", MAMBA_CONV),
	VECTOR("mixer.A_log", MAMBA_HEAD_COUNT),
	VECTOR("mixer.D", MAMBA_HEAD_COUNT),
	VECTOR("mixer.dt_bias", MAMBA_HEAD_COUNT),
	VECTOR("mixer.norm.weight", MAMBA_HEADS),
	MATRIX("mixer.out_proj.weight", HIDDEN, MAMBA_HEADS),
	{0},
};

static const struct mfs_param norms_of_heads[] = {
	NORM("self_attention.q_layernorm", HEAD),
	NORM("self_attention.k_layernorm", HEAD),
	{0},
};

static const struct mfs_param wide_norms[] = {
	NORM("self_attention.q_layernorm", HEADS),
	NORM("self_attention.k_layernorm", KEYS),
	{0},
};

static const struct mfs_param multi_latent[] = {
	LINEAR("self_attention.linear_q_proj", MLA_Q, HIDDEN),
	LINEAR("self_attention.linear_q_down_proj", Q_LORA, HIDDEN),
	LINEAR("self_attention.linear_q_up_proj", MLA_Q, Q_LORA),
	LINEAR("self_attention.linear_kv_down_proj", KV_DOWN, HIDDEN),
	LINEAR("self_attention.linear_kv_up_proj", MLA_KV, KV_LORA),
	LINEAR("self_attention.linear_proj", HIDDEN, MLA_OUT),
	NORM("self_attention.q_layernorm", Q_LORA),
	NORM("self_attention.kv_layernorm", KV_LORA),
	{0},
};

static const struct mfs_param mtp[] = {
	NORM("enorm", HIDDEN),
	NORM("hnorm", HIDDEN),
	LINEAR("eh_proj", HIDDEN, HIDDEN_X2),
	NORM("final_layernorm", HIDDEN),
	{0},
};

static const struct mfs_param *find(const struct mfs_param *rows, const char *name)
{
	for (; rows->name; rows++)
		if (!strcmp(rows->name, name))
			return rows;
	return NULL;
}

enum mfs_attention mfs_attention_kind(bool mla, bool wide)
{
	if (mla)
		return MFS_ATTENTION_MLA;
	return wide ? MFS_ATTENTION_WIDE : MFS_ATTENTION_GQA;
}

/* The tables of a scope, ended by NULL. */
static const struct mfs_param *const *tables_of(enum mfs_scope scope, enum mfs_attention attention)
{
	static const struct mfs_param *const ends[] = {outside, NULL};
	static const struct mfs_param *const layers[][6] = {
		[MFS_ATTENTION_GQA] = {layer, grouped_queries, norms_of_heads, delta_net, mamba,
				       NULL},
		[MFS_ATTENTION_WIDE] = {layer, grouped_queries, wide_norms, NULL},
		[MFS_ATTENTION_MLA] = {layer, multi_latent, NULL},
	};
	static const struct mfs_param *const mtp_layer[] = {mtp, NULL};

	if (scope == MFS_SCOPE_LAYER)
		return layers[attention];
	return scope == MFS_SCOPE_MTP ? mtp_layer : ends;
}

const struct mfs_param *mfs_param_find(enum mfs_scope scope, const char *name,
				       enum mfs_attention attention)
{
	const struct mfs_param *const *tables = tables_of(scope, attention), *row = NULL;

	while (*tables && !row)
		row = find(*tables++, name);
	return row;
}

void mfs_param_nearest(enum mfs_scope scope, enum mfs_attention attention, struct mfs_nearest *near)
{
	for (const struct mfs_param *const *t = tables_of(scope, attention); *t; t++)
		for (const struct mfs_param *row = *t; row->name; row++)
			mfs_nearest_try(near, row->name);
}

/* A gate half and an up half. */
static enum mfs_dim doubled(enum mfs_dim dim)
{
	switch (dim) {
	case MFS_DIM_FFN:
		return MFS_DIM_FFN_X2;
	case MFS_DIM_MOE_FFN:
		return MFS_DIM_MOE_FFN_X2;
	case MFS_DIM_SHARED_FFN:
		return MFS_DIM_SHARED_FFN_X2;
	default:
		return dim;
	}
}

void mfs_param_axes(const struct mfs_param *p, bool gated, enum mfs_dim ret[MFS_PARAM_AXES])
{
	ret[0] = gated ? doubled(p->axes[0]) : p->axes[0];
	memcpy(ret + 1, p->axes + 1, (MFS_PARAM_AXES - 1) * sizeof(*ret));
}

bool mfs_param_is_halved(const struct mfs_param *p)
{
	return doubled(p->axes[0]) != p->axes[0];
}

bool mfs_param_is_of_experts(const struct mfs_param *p)
{
	static const char experts[] = "mlp.experts.experts.";

	return !strncmp(p->name, experts, strlen(experts));
}
