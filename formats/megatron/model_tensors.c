#include "formats/megatron/model_tensors.h"

#include <stdio.h>
#include <string.h>

#include "formats/ckpt/ckpt.h"
#include "formats/megatron/modules.h"

/* Which of a run's arguments require a tensor. */
enum need {
	NEED_ALWAYS,
	NEED_POSITIONS, /* learned positions */
	NEED_UNTIED,
	NEED_PRE_NORMS,
	NEED_POST_NORMS,
	NEED_LAYERNORM, /* biases of LayerNorm */
	NEED_QK_NORM_BIAS,
	NEED_Q_LORA_NORM_BIAS,
	NEED_LINEAR_BIAS,
	NEED_QKV_BIAS,
	NEED_QK_NORM,
	NEED_SINKS,
	NEED_Q_LORA,
	NEED_NO_Q_LORA,
	NEED_Q_LORA_NORM,
	NEED_SHARED_EXPERT,
	NEED_SHARED_GATE,
	NEED_EXPERT_BIAS,
};

struct needed {
	const char *name; /* canonical (ckpt.h); in a layer: without the prefix */
	enum mfs_module_condition when;
	enum need need;
	bool experts;
	bool uncertain; /* releases differ, or sources are read that lack it */
};

#define ROW(name_, when_, need_, ...)                                                              \
	{                                                                                          \
		.name = name_, .when = MFS_WHEN_##when_, .need = NEED_##need_, __VA_ARGS__         \
	}

static const struct needed outside[] = {
	ROW("embedding.word_embeddings.weight", ALWAYS, ALWAYS),
	ROW("embedding.position_embeddings.weight", ALWAYS, POSITIONS),
	ROW("decoder.final_layernorm.weight", ALWAYS, ALWAYS),
	ROW("decoder.final_layernorm.bias", ALWAYS, LAYERNORM),
	ROW("output_layer.weight", ALWAYS, UNTIED),
	{0},
};

static const struct needed layer[] = {
	ROW("norm.weight", MAMBA, ALWAYS),
	ROW("norm.bias", MAMBA, LAYERNORM),
	ROW("mixer.in_proj.weight", MAMBA, ALWAYS),
	ROW("mixer.conv1d.weight", MAMBA, ALWAYS),
	ROW("mixer.conv1d.bias", MAMBA, ALWAYS),
	ROW("mixer.A_log", MAMBA, ALWAYS),
	ROW("mixer.D", MAMBA, ALWAYS),
	ROW("mixer.dt_bias", MAMBA, ALWAYS),
	ROW("mixer.norm.weight", MAMBA, ALWAYS),
	ROW("mixer.out_proj.weight", MAMBA, ALWAYS),
	ROW("input_layernorm.weight", ATTENTION, PRE_NORMS),
	ROW("input_layernorm.bias", ATTENTION, LAYERNORM),
	ROW("self_attention.in_proj.weight", LINEAR, ALWAYS),
	ROW("self_attention.conv1d.weight", LINEAR, ALWAYS),
	ROW("self_attention.A_log", LINEAR, ALWAYS),
	ROW("self_attention.dt_bias", LINEAR, ALWAYS),
	ROW("self_attention.out_norm.weight", LINEAR, ALWAYS),
	ROW("self_attention.out_norm.bias", LINEAR, LAYERNORM, .uncertain = true),
	ROW("self_attention.out_proj.weight", LINEAR, ALWAYS),
	ROW("self_attention.linear_proj.weight", FULL, ALWAYS),
	ROW("self_attention.linear_proj.post_layernorm.weight", FULL, POST_NORMS),
	ROW("self_attention.linear_proj.bias", GQA, LINEAR_BIAS),
	ROW("self_attention.linear_proj.bias", MLA, LINEAR_BIAS, .uncertain = true),
	ROW("self_attention.linear_qkv.weight", GQA, ALWAYS),
	ROW("self_attention.linear_qkv.bias", GQA, QKV_BIAS),
	ROW("self_attention.core_attention.softmax_offset", FULL, SINKS),
	ROW("self_attention.q_layernorm.weight", GQA, QK_NORM),
	ROW("self_attention.q_layernorm.bias", GQA, QK_NORM_BIAS, .uncertain = true),
	ROW("self_attention.k_layernorm.weight", GQA, QK_NORM),
	ROW("self_attention.k_layernorm.bias", GQA, QK_NORM_BIAS, .uncertain = true),
	ROW("self_attention.linear_q_proj.weight", MLA, NO_Q_LORA),
	ROW("self_attention.linear_q_down_proj.weight", MLA, Q_LORA),
	ROW("self_attention.linear_q_up_proj.weight", MLA, Q_LORA),
	ROW("self_attention.q_layernorm.weight", MLA, Q_LORA_NORM),
	ROW("self_attention.q_layernorm.bias", MLA, Q_LORA_NORM_BIAS, .uncertain = true),
	ROW("self_attention.linear_kv_down_proj.weight", MLA, ALWAYS),
	ROW("self_attention.linear_kv_up_proj.weight", MLA, ALWAYS),
	ROW("self_attention.kv_layernorm.weight", MLA, QK_NORM),
	ROW("self_attention.kv_layernorm.bias", MLA, QK_NORM_BIAS, .uncertain = true),
	ROW("pre_mlp_layernorm.weight", MLP, PRE_NORMS),
	ROW("pre_mlp_layernorm.bias", MLP, LAYERNORM),
	ROW("mlp.linear_fc1.weight", DENSE, ALWAYS),
	ROW("mlp.linear_fc1.bias", DENSE, LINEAR_BIAS),
	ROW("mlp.linear_fc2.weight", DENSE, ALWAYS),
	ROW("mlp.linear_fc2.post_layernorm.weight", DENSE, POST_NORMS),
	ROW("mlp.linear_fc2.bias", DENSE, LINEAR_BIAS),
	ROW("mlp.router.weight", MOE, ALWAYS),
	ROW("mlp.router.bias", MOE, LINEAR_BIAS, .uncertain = true),
	ROW("mlp.router.expert_bias", MOE, EXPERT_BIAS),
	ROW("mlp.experts.experts.linear_fc1.weight", MOE, ALWAYS, .experts = true),
	ROW("mlp.experts.experts.linear_fc1.bias", MOE, LINEAR_BIAS, .experts = true,
	    .uncertain = true),
	ROW("mlp.experts.experts.linear_fc2.weight", MOE, ALWAYS, .experts = true),
	ROW("mlp.experts.experts.linear_fc2.bias", MOE, LINEAR_BIAS, .experts = true,
	    .uncertain = true),
	ROW("mlp.shared_experts.gate_weight", MOE, SHARED_GATE, .uncertain = true),
	ROW("mlp.shared_experts.linear_fc1.weight", MOE, SHARED_EXPERT),
	ROW("mlp.shared_experts.linear_fc2.weight", MOE, SHARED_EXPERT),
	{0},
};

static const struct needed mtp[] = {
	ROW("enorm.weight", ALWAYS, ALWAYS),
	ROW("enorm.bias", ALWAYS, LAYERNORM, .uncertain = true),
	ROW("hnorm.weight", ALWAYS, ALWAYS),
	ROW("hnorm.bias", ALWAYS, LAYERNORM, .uncertain = true),
	ROW("eh_proj.weight", ALWAYS, ALWAYS),
	ROW("final_layernorm.weight", ALWAYS, ALWAYS),
	ROW("final_layernorm.bias", ALWAYS, LAYERNORM, .uncertain = true),
	{0},
};

static bool is_needed(const struct mfs_megatron_args *a, enum need need)
{
	switch (need) {
	case NEED_POSITIONS:
		return !strcmp(a->position_embedding_type, "learned_absolute");
	case NEED_UNTIED:
		return !a->tied;
	case NEED_PRE_NORMS:
		return !a->post_norms;
	case NEED_POST_NORMS:
		return a->post_norms;
	case NEED_LAYERNORM:
		return a->layernorm;
	case NEED_QK_NORM_BIAS:
		return a->layernorm && a->qk_layernorm;
	case NEED_Q_LORA_NORM_BIAS:
		return a->layernorm && a->q_lora_rank != MFS_ABSENT && a->qk_layernorm;
	case NEED_LINEAR_BIAS:
		return a->add_bias_linear;
	case NEED_QKV_BIAS:
		return a->add_bias_linear || a->add_qkv_bias;
	case NEED_QK_NORM:
		return a->qk_layernorm;
	case NEED_SINKS:
		return a->learnable_softmax;
	case NEED_Q_LORA:
		return a->q_lora_rank != MFS_ABSENT;
	case NEED_NO_Q_LORA:
		return a->q_lora_rank == MFS_ABSENT;
	case NEED_Q_LORA_NORM:
		return a->q_lora_rank != MFS_ABSENT && a->qk_layernorm;
	case NEED_SHARED_EXPERT:
		return a->moe_shared_expert_intermediate_size != MFS_ABSENT;
	case NEED_SHARED_GATE:
		return a->moe_shared_expert_intermediate_size != MFS_ABSENT &&
		       a->moe_shared_expert_gate;
	case NEED_EXPERT_BIAS:
		return a->moe_router_enable_expert_bias;
	case NEED_ALWAYS:
		break;
	}
	return true;
}

/* ---- the walk ---- */

struct walk {
	const struct mfs_megatron_args *args;
	int (*each)(void *arg, const struct mfs_model_tensor *t);
	void *arg;
};

static int add_row(const struct walk *w, const struct needed *row, const char *prefix,
		   int32_t number)
{
	const int64_t experts = row->experts ? w->args->num_experts : 1;
	char name[MFS_CKPT_NAME_SIZE];
	int rc = 0;

	snprintf(name, sizeof(name), "%s%s", prefix, row->name);
	for (int32_t e = 0; e < experts && !rc; e++) {
		const struct mfs_model_tensor t = {.name = name,
						   .layer = number,
						   .expert = row->experts ? e : -1,
						   .certain = !row->uncertain};

		rc = w->each(w->arg, &t);
	}
	return rc;
}

static int add_rows(const struct walk *w, const struct needed *rows, const char *prefix,
		    int32_t number, int64_t like)
{
	int rc = 0;

	for (; rows->name && !rc; rows++)
		if (mfs_module_applies(w->args, rows->when, like) && is_needed(w->args, rows->need))
			rc = add_row(w, rows, prefix, number);
	return rc;
}

int mfs_model_tensors(const struct mfs_megatron_args *a,
		      int (*each)(void *arg, const struct mfs_model_tensor *t), void *arg)
{
	const struct walk w = {a, each, arg};
	int rc = add_rows(&w, outside, "", -1, -1);

	for (int32_t l = 0; l < a->num_layers && !rc; l++)
		rc = add_rows(&w, layer, "decoder.layers.", l, l);
	for (int32_t k = 0; k < a->mtp_num_layers && !rc; k++) {
		rc = add_rows(&w, mtp, "mtp.layers.", k, -1);
		if (!rc)
			rc = add_rows(&w, layer, "mtp.layers.transformer_layer.", k,
				      a->num_layers - 1);
	}
	return rc;
}
