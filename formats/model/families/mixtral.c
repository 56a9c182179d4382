#include "formats/model/families/family.h"

static const struct mfs_family_tensor experts[] = {
	MFS_MATRIX(LAYER, "block_sparse_moe.gate.weight", "mlp.router.weight", DIRECT, EXPERTS,
		   HIDDEN, .kind = MFS_LAYER_MOE),
	MFS_MATRIX(LAYER, "block_sparse_moe.experts.{e}.w1.weight",
		   "mlp.experts.experts.linear_fc1.weight", GATE, MOE_FFN_X2, HIDDEN,
		   .kind = MFS_LAYER_MOE, .experts = true),
	MFS_MATRIX(LAYER, "block_sparse_moe.experts.{e}.w2.weight",
		   "mlp.experts.experts.linear_fc2.weight", DIRECT, HIDDEN, MOE_FFN,
		   .kind = MFS_LAYER_MOE, .experts = true),
	MFS_MATRIX(LAYER, "block_sparse_moe.experts.{e}.w3.weight",
		   "mlp.experts.experts.linear_fc1.weight", UP, MOE_FFN_X2, HIDDEN,
		   .kind = MFS_LAYER_MOE, .experts = true),
	{0},
};

static const struct mfs_config_row config[] = {
	MFS_CONFIG("intermediate_size", INT, .field = MFS_FIELD(moe_ffn_hidden_size)),
	MFS_CONFIG("num_local_experts", INT, .field = MFS_FIELD(num_experts)),
	MFS_CONFIG("num_experts_per_tok", INT, .field = MFS_FIELD(moe_router_topk)),
	MFS_CONFIG("sliding_window", INT, .field = MFS_FIELD(window_size)),
	MFS_CONFIG("router_aux_loss_coef", REAL, .ref = MFS_REF_WINS,
		   .field = MFS_FIELD(moe_aux_loss_coeff)),
	MFS_CONFIG("router_jitter_noise", DECIMAL, .ref = MFS_REF_WINS, .number = 0),
	MFS_CONFIG("output_router_logits", FALSE, .ref = MFS_REF_WINS),
	{0},
};

static const struct mfs_family_note notes[] = {
	{MFS_HAS(HEAD_DIM),
	 "transformers and vLLM take the head size from config.json, but MLX computes "
	 "hidden_size / heads for mixtral and cannot run this model"},
	{MFS_HAS(ROPE_LLAMA3), "MLX ignores rope_scaling for mixtral: its output will differ"},
	{MFS_HAS(ROPE_LINEAR), "MLX ignores rope_scaling for mixtral: its output will differ"},
	{0},
};

/* PRE_SOFTMAX is left out: Mixtral renormalises the scores of the experts chosen. */
const struct mfs_family mfs_family_mixtral = {
	.name = "mixtral",
	.architecture = "MixtralForCausalLM",
	.model_type = "mixtral",
	.layer_prefix = "model.layers.{i}.",
	.required = MFS_HAS(SWIGLU) | MFS_HAS(ROPE) | MFS_HAS(MOE),
	.optional = MFS_LLAMA_OPTIONS | MFS_HAS(RAGGED_HEADS) | MFS_HAS(WINDOW),
	.tensors = (const struct mfs_family_tensor *const[]){mfs_llama_ends, mfs_llama_norms,
							     mfs_llama_attention, experts, NULL},
	.config = (const struct mfs_config_row *const[]){mfs_config_common, mfs_config_rope,
							 mfs_config_llama, config, NULL},
	.notes = notes,
};
