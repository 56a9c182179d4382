#include "formats/model/families/family.h"

static const struct mfs_family_tensor attention[] = {
	MFS_MATRIX(LAYER, "self_attn.q_proj.weight", "self_attention.linear_q_proj.weight", DIRECT,
		   MLA_Q, HIDDEN, .unless = MFS_HAS(Q_LORA)),
	MFS_MATRIX(LAYER, "self_attn.q_a_proj.weight", "self_attention.linear_q_down_proj.weight",
		   DIRECT, Q_LORA, HIDDEN, .when = MFS_HAS(Q_LORA)),
	MFS_VECTOR(LAYER, "self_attn.q_a_layernorm.weight", "self_attention.q_layernorm.weight",
		   DIRECT, Q_LORA, .when = MFS_HAS(Q_LORA), .norm = true),
	MFS_MATRIX(LAYER, "self_attn.q_b_proj.weight", "self_attention.linear_q_up_proj.weight",
		   DIRECT, MLA_Q, Q_LORA, .when = MFS_HAS(Q_LORA)),
	MFS_MATRIX(LAYER, "self_attn.kv_a_proj_with_mqa.weight",
		   "self_attention.linear_kv_down_proj.weight", DIRECT, KV_DOWN, HIDDEN),
	MFS_VECTOR(LAYER, "self_attn.kv_a_layernorm.weight", "self_attention.kv_layernorm.weight",
		   DIRECT, KV_LORA, .norm = true),
	MFS_MATRIX(LAYER, "self_attn.kv_b_proj.weight", "self_attention.linear_kv_up_proj.weight",
		   DIRECT, MLA_KV, KV_LORA),
	MFS_MATRIX(LAYER, "self_attn.o_proj.weight", "self_attention.linear_proj.weight", DIRECT,
		   HIDDEN, MLA_OUT),
	{0},
};

static const struct mfs_family_tensor experts[] = {
	MFS_MATRIX(LAYER, "mlp.gate.weight", "mlp.router.weight", DIRECT, EXPERTS, HIDDEN,
		   .kind = MFS_LAYER_MOE),
	MFS_VECTOR(LAYER, "mlp.gate.e_score_correction_bias", "mlp.router.expert_bias", DIRECT,
		   EXPERTS, .kind = MFS_LAYER_MOE),
	MFS_MATRIX(LAYER, "mlp.experts.{e}.gate_proj.weight",
		   "mlp.experts.experts.linear_fc1.weight", GATE, MOE_FFN_X2, HIDDEN,
		   .kind = MFS_LAYER_MOE, .experts = true),
	MFS_MATRIX(LAYER, "mlp.experts.{e}.up_proj.weight", "mlp.experts.experts.linear_fc1.weight",
		   UP, MOE_FFN_X2, HIDDEN, .kind = MFS_LAYER_MOE, .experts = true),
	MFS_MATRIX(LAYER, "mlp.experts.{e}.down_proj.weight",
		   "mlp.experts.experts.linear_fc2.weight", DIRECT, HIDDEN, MOE_FFN,
		   .kind = MFS_LAYER_MOE, .experts = true),
	MFS_MATRIX(LAYER, "mlp.shared_experts.gate_proj.weight",
		   "mlp.shared_experts.linear_fc1.weight", GATE, SHARED_FFN_X2, HIDDEN,
		   .kind = MFS_LAYER_MOE),
	MFS_MATRIX(LAYER, "mlp.shared_experts.up_proj.weight",
		   "mlp.shared_experts.linear_fc1.weight", UP, SHARED_FFN_X2, HIDDEN,
		   .kind = MFS_LAYER_MOE),
	MFS_MATRIX(LAYER, "mlp.shared_experts.down_proj.weight",
		   "mlp.shared_experts.linear_fc2.weight", DIRECT, HIDDEN, SHARED_FFN,
		   .kind = MFS_LAYER_MOE),
	{0},
};

/* MTP layer k is HF's layer L+k. Readers share the model's embedding and head with it, so no copies
 * are shown. eh_proj takes [embedding, hidden] on both sides. */
static const struct mfs_family_tensor mtp[] = {
	MFS_VECTOR(MTP, "enorm.weight", "enorm.weight", DIRECT, HIDDEN, .norm = true),
	MFS_VECTOR(MTP, "hnorm.weight", "hnorm.weight", DIRECT, HIDDEN, .norm = true),
	MFS_MATRIX(MTP, "eh_proj.weight", "eh_proj.weight", DIRECT, HIDDEN, HIDDEN_X2),
	MFS_VECTOR(MTP, "shared_head.norm.weight", "final_layernorm.weight", DIRECT, HIDDEN,
		   .norm = true),
	{0},
};

/* vLLM loads e_score_correction_bias only with topk_method noaux_tc, the one that transformers
 * has. */
static const struct mfs_config_row config[] = {
	MFS_CONFIG("hidden_size", INT, .field = MFS_FIELD(hidden_size)),
	MFS_CONFIG("intermediate_size", INT, .field = MFS_FIELD(ffn_hidden_size)),
	MFS_CONFIG("moe_intermediate_size", INT, .field = MFS_FIELD(moe_ffn_hidden_size)),
	MFS_CONFIG("num_hidden_layers", INT, .field = MFS_FIELD(num_layers)),
	MFS_CONFIG("num_attention_heads", INT, .field = MFS_FIELD(num_attention_heads)),
	MFS_CONFIG("num_key_value_heads", INT, .field = MFS_FIELD(num_attention_heads)),
	MFS_CONFIG("q_lora_rank", INT, .field = MFS_FIELD(q_lora_rank)),
	MFS_CONFIG("kv_lora_rank", INT, .field = MFS_FIELD(kv_lora_rank)),
	MFS_CONFIG("qk_nope_head_dim", INT, .field = MFS_FIELD(qk_head_dim)),
	MFS_CONFIG("qk_rope_head_dim", INT, .field = MFS_FIELD(qk_pos_emb_head_dim)),
	MFS_CONFIG("v_head_dim", INT, .field = MFS_FIELD(v_head_dim)),
	MFS_CONFIG("n_routed_experts", INT, .field = MFS_FIELD(num_experts)),
	MFS_CONFIG("n_shared_experts", VALUE, .value = MFS_VALUE_SHARED_EXPERTS),
	MFS_CONFIG("num_experts_per_tok", INT, .field = MFS_FIELD(moe_router_topk)),
	MFS_CONFIG("n_group", VALUE, .value = MFS_VALUE_EXPERT_GROUPS),
	MFS_CONFIG("topk_group", VALUE, .value = MFS_VALUE_GROUP_TOPK),
	MFS_CONFIG("topk_method", TEXT, .text = "noaux_tc"),
	MFS_CONFIG("scoring_func", TEXT, .text = "sigmoid"),
	MFS_CONFIG("norm_topk_prob", VALUE, .value = MFS_VALUE_NORM_TOPK),
	MFS_CONFIG("routed_scaling_factor", VALUE, .value = MFS_VALUE_ROUTED_SCALE),
	MFS_CONFIG("first_k_dense_replace", INT, .field = MFS_FIELD(first_dense_layers)),
	MFS_CONFIG("moe_layer_freq", NUMBER, .number = 1),
	MFS_CONFIG("num_nextn_predict_layers", INT, .ref = MFS_REF_LOSES_NOTED,
		   .field = MFS_FIELD(mtp_num_layers)),
	MFS_CONFIG("ep_size", NUMBER, .ref = MFS_REF_WINS, .number = 1),
	MFS_CONFIG("aux_loss_alpha", REAL, .ref = MFS_REF_WINS,
		   .field = MFS_FIELD(moe_aux_loss_coeff)),
	MFS_CONFIG("rope_interleave", TRUE),
	MFS_CONFIG("attention_bias", FALSE),
	MFS_CONFIG("attention_dropout", DECIMAL, .ref = MFS_REF_WINS, .number = 0),
	MFS_CONFIG("hidden_act", TEXT, .text = "silu"),
	MFS_CONFIG("rms_norm_eps", REAL, .field = MFS_FIELD(norm_epsilon)),
	{0},
};

static const struct mfs_family_note notes[] = {
	{MFS_HAS(EPS_NOT_1E6),
	 "transformers and MLX build q_a_layernorm and kv_a_layernorm with eps 1e-6, "
	 "whatever config.json says; this model was trained with another norm_epsilon, "
	 "so their logits differ a little until it is set in the loaded modules"},
	{0},
};

/* RoPE is de-interleaved at run time on both sides (rope_interleave), so no rows move. */
const struct mfs_family mfs_family_deepseek_v3 = {
	.name = "deepseek-v3",
	.architecture = "DeepseekV3ForCausalLM",
	.model_type = "deepseek_v3",
	.layer_prefix = "model.layers.{i}.",
	.required = MFS_HAS(SWIGLU) | MFS_HAS(ROPE) | MFS_HAS(MLA) | MFS_HAS(QK_NORM) |
		    MFS_HAS(MOE) | MFS_HAS(SHARED_EXPERT) | MFS_HAS(SIGMOID_ROUTER) |
		    MFS_HAS(EXPERT_BIAS),
	.optional = MFS_HAS(ZERO_CENTERED) | MFS_HAS(EPS_NOT_1E6) | MFS_HAS(TIED) |
		    MFS_HAS(Q_LORA) | MFS_HAS(YARN) | MFS_HAS(MOE_AFTER_DENSE) |
		    MFS_HAS(ROUTER_SCALE) | MFS_HAS(ROUTER_GROUPS) | MFS_HAS(MTP),
	.tensors = (const struct mfs_family_tensor *const[]){mfs_llama_ends, mfs_llama_norms,
							     attention, mfs_llama_mlp, experts, mtp,
							     NULL},
	.config = (const struct mfs_config_row *const[]){mfs_config_common, mfs_config_rope, config,
							 NULL},
	.notes = notes,
};
