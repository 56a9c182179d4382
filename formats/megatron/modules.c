/*
 * Order and names: the constructors of megatron/core/transformer/{transformer_layer,attention,
 * multi_latent_attention,mlp}.py, moe/{moe_layer,router,experts,shared_experts}.py, models/gpt/
 * gpt_model.py, multi_token_prediction.py; and of Transformer Engine's LayerNormLinear, Linear and
 * GroupedLinear (a norm's weight before the linear's, each expert's weight before its bias).
 */
#include "formats/megatron/modules.h"

bool mfs_module_applies(const struct mfs_megatron_args *a, enum mfs_module_condition when,
			int64_t layer)
{
	const bool inside = layer >= 0;
	const bool mlp = !inside || mfs_args_has_mlp(a, layer);
	const bool moe = inside && mfs_args_is_moe(a, layer);
	const bool linear = inside && mfs_args_is_linear(a, layer);
	const bool attention = !inside || mfs_args_has_attention(a, layer);

	switch (when) {
	case MFS_WHEN_HYBRID:
		return a->hybrid_layers;
	case MFS_WHEN_PAIRED:
		return !a->hybrid_layers;
	case MFS_WHEN_MAMBA:
		return inside && mfs_args_is_mamba(a, layer);
	case MFS_WHEN_CONV_MODULE:
		return !a->mamba_conv_params;
	case MFS_WHEN_CONV_PARAMS:
		return a->mamba_conv_params;
	case MFS_WHEN_MLP:
		return mlp;
	case MFS_WHEN_DENSE:
		return mlp && !moe;
	case MFS_WHEN_MOE:
		return moe;
	case MFS_WHEN_ATTENTION:
		return attention;
	case MFS_WHEN_LINEAR:
		return linear;
	case MFS_WHEN_FULL:
		return attention && !linear;
	case MFS_WHEN_MLA:
		return attention && !linear && a->multi_latent_attention;
	case MFS_WHEN_GQA:
		return attention && !linear && !a->multi_latent_attention;
	case MFS_WHEN_ALWAYS:
		break;
	}
	return true;
}

/* A parameter whose name is its canonical name. */
#define SAME(name_, ...)                                                                           \
	{                                                                                          \
		.name = name_, .canonical = name_, __VA_ARGS__                                     \
	}
#define PARAM(name_, canonical_, ...)                                                              \
	{                                                                                          \
		.name = name_, .canonical = canonical_, __VA_ARGS__                                \
	}
#define EXTRA(name_, owner_, ...)                                                                  \
	{                                                                                          \
		.name = name_ "._extra_state", .canonical = owner_, .extra = true, __VA_ARGS__     \
	}
/* A linear with its bias, if it has one, and its _extra_state. */
#define LINEAR(name_, ...)                                                                         \
	SAME(name_ ".weight", __VA_ARGS__), SAME(name_ ".bias", __VA_ARGS__),                      \
		EXTRA(name_, name_ ".weight", __VA_ARGS__)
#define NORM(name_, ...) SAME(name_ ".weight", __VA_ARGS__), SAME(name_ ".bias", __VA_ARGS__)
/* A norm that Transformer Engine fuses into the next linear. */
#define FUSED(linear_, norm_, ...)                                                                 \
	PARAM(linear_ ".layer_norm_weight", norm_ ".weight", __VA_ARGS__),                         \
		PARAM(linear_ ".layer_norm_bias", norm_ ".bias", __VA_ARGS__)
#define EXPERT(name_, linear_)                                                                     \
	PARAM(name_ ".weight", "mlp.experts.experts." linear_ ".weight", .experts = 1),            \
		PARAM(name_ ".bias", "mlp.experts.experts." linear_ ".bias", .experts = 1),        \
		EXTRA(name_, "mlp.experts.experts." linear_ ".weight", .experts = 1)

#define SEQUENTIAL_EXPERTS                                                                         \
	EXPERT("mlp.experts.local_experts.{e}.linear_fc1", "linear_fc1"),                          \
		EXPERT("mlp.experts.local_experts.{e}.linear_fc2", "linear_fc2")
#define GROUPED(linear_, block_)                                                                   \
	PARAM("mlp.experts." linear_ ".weight{e}", "mlp.experts.experts." linear_ ".weight",       \
	      .experts = block_),                                                                  \
		PARAM("mlp.experts." linear_ ".bias{e}", "mlp.experts.experts." linear_ ".bias",   \
		      .experts = block_),                                                          \
		EXTRA("mlp.experts." linear_, "mlp.experts.experts." linear_ ".weight")
#define ROUTER                                                                                     \
	SAME("mlp.router.weight"), SAME("mlp.router.bias"),                                        \
		SAME("mlp.router.expert_bias", .buffer = true)
#define SHARED_EXPERTS                                                                             \
	SAME("mlp.shared_experts.gate_weight"), LINEAR("mlp.shared_experts.linear_fc1"),           \
		LINEAR("mlp.shared_experts.linear_fc2")

/* A gated delta net (ssm/gated_delta_net.py). A module's own parameters come before its parts'. */
#define DELTA_NET SAME("self_attention.dt_bias"), SAME("self_attention.A_log")
#define DELTA_NET_PARTS                                                                            \
	LINEAR("self_attention.in_proj"), SAME("self_attention.conv1d.weight"),                    \
		NORM("self_attention.out_norm"), LINEAR("self_attention.out_proj")

/* A layer of a Mamba-2 mixer (ssm/mamba_layer.py, mamba_mixer.py). Its norm is built after it. */
#define MAMBA                                                                                      \
	PARAM("mixer.conv1d_weight", "mixer.conv1d.weight", .when = MFS_WHEN_CONV_PARAMS),         \
		PARAM("mixer.conv1d_bias", "mixer.conv1d.bias", .when = MFS_WHEN_CONV_PARAMS),     \
		SAME("mixer.dt_bias"), SAME("mixer.A_log"), SAME("mixer.D")
#define MAMBA_PARTS                                                                                \
	LINEAR("mixer.in_proj"), SAME("mixer.conv1d.weight", .when = MFS_WHEN_CONV_MODULE),        \
		SAME("mixer.conv1d.bias", .when = MFS_WHEN_CONV_MODULE),                           \
		SAME("mixer.norm.weight"), LINEAR("mixer.out_proj")

const struct mfs_module_row mfs_modules_local[] = {
	MAMBA,
	MAMBA_PARTS,
	NORM("norm"),
	NORM("input_layernorm"),
	SAME("self_attention.core_attention.softmax_offset"),
	LINEAR("self_attention.linear_proj"),
	NORM("self_attention.linear_proj.post_layernorm"),
	LINEAR("self_attention.linear_qkv"),
	LINEAR("self_attention.linear_q_proj"),
	LINEAR("self_attention.linear_q_down_proj"),
	LINEAR("self_attention.linear_q_up_proj"),
	LINEAR("self_attention.linear_kv_down_proj"),
	LINEAR("self_attention.linear_kv_up_proj"),
	NORM("self_attention.q_layernorm"),
	NORM("self_attention.k_layernorm"),
	NORM("self_attention.kv_layernorm"),
	DELTA_NET,
	DELTA_NET_PARTS,
	NORM("pre_mlp_layernorm"),
	LINEAR("mlp.linear_fc1"),
	LINEAR("mlp.linear_fc2"),
	NORM("mlp.linear_fc2.post_layernorm"),
	ROUTER,
	SEQUENTIAL_EXPERTS,
	SHARED_EXPERTS,
	{0},
};

#define TE_FRONT                                                                                   \
	MAMBA, FUSED("mixer.in_proj", "norm"), MAMBA_PARTS,                                        \
		NORM("input_layernorm", .when = MFS_WHEN_MLA),                                     \
		SAME("self_attention.core_attention.softmax_offset"),                              \
		EXTRA("self_attention.core_attention", "self_attention.linear_proj.weight"),       \
		LINEAR("self_attention.linear_proj"),                                              \
		NORM("self_attention.linear_proj.post_layernorm"),                                 \
		FUSED("self_attention.linear_qkv", "input_layernorm", .when = MFS_WHEN_GQA),       \
		LINEAR("self_attention.linear_qkv"),                                               \
		NORM("self_attention.q_layernorm", .when = MFS_WHEN_GQA),                          \
		NORM("self_attention.k_layernorm"), LINEAR("self_attention.linear_q_proj"),        \
		LINEAR("self_attention.linear_q_down_proj"),                                       \
		FUSED("self_attention.linear_q_up_proj", "self_attention.q_layernorm",             \
		      .when = MFS_WHEN_MLA),                                                       \
		LINEAR("self_attention.linear_q_up_proj"),                                         \
		LINEAR("self_attention.linear_kv_down_proj"),                                      \
		FUSED("self_attention.linear_kv_up_proj", "self_attention.kv_layernorm"),          \
		LINEAR("self_attention.linear_kv_up_proj"), DELTA_NET,                             \
		FUSED("self_attention.in_proj", "input_layernorm", .when = MFS_WHEN_LINEAR),       \
		DELTA_NET_PARTS, NORM("pre_mlp_layernorm", .when = MFS_WHEN_MOE),                  \
		FUSED("mlp.linear_fc1", "pre_mlp_layernorm", .when = MFS_WHEN_DENSE),              \
		LINEAR("mlp.linear_fc1"), LINEAR("mlp.linear_fc2"),                                \
		NORM("mlp.linear_fc2.post_layernorm"), ROUTER

const struct mfs_module_row mfs_modules_te[] = {
	TE_FRONT,
	SEQUENTIAL_EXPERTS,
	SHARED_EXPERTS,
	{0},
};

const struct mfs_module_row mfs_modules_te_grouped[] = {
	TE_FRONT, GROUPED("linear_fc1", 1), GROUPED("linear_fc2", 2), SHARED_EXPERTS, {0},
};

const struct mfs_module_row mfs_modules_before[] = {
	SAME("embedding.word_embeddings.weight"),
	SAME("embedding.position_embeddings.weight"),
	{0},
};

const struct mfs_module_row mfs_modules_after[] = {
	NORM("decoder.final_layernorm", .when = MFS_WHEN_PAIRED),
	PARAM("decoder.final_norm.weight", "decoder.final_layernorm.weight",
	      .when = MFS_WHEN_HYBRID),
	PARAM("decoder.final_norm.bias", "decoder.final_layernorm.bias", .when = MFS_WHEN_HYBRID),
	{0},
};

const struct mfs_module_row mfs_modules_output[] = {
	SAME("output_layer.weight"),
	EXTRA("output_layer", "embedding.word_embeddings.weight"), /* also if the head is tied */
	{0},
};

const struct mfs_module_row mfs_modules_mtp_before[] = {
	NORM("enorm"),
	NORM("hnorm"),
	LINEAR("eh_proj"),
	{0},
};

const struct mfs_module_row mfs_modules_mtp_after[] = {
	NORM("final_layernorm"),
	{0},
};
