#include "formats/model/families/family.h"

const struct mfs_family_tensor mfs_llama_ends[] = {
	MFS_MATRIX(BEFORE, "model.embed_tokens.weight", "embedding.word_embeddings.weight", VOCAB,
		   VOCAB, HIDDEN),
	MFS_VECTOR(AFTER, "model.norm.weight", "decoder.final_layernorm.weight", DIRECT, HIDDEN,
		   .norm = true),
	MFS_MATRIX(AFTER, "lm_head.weight", "output_layer.weight", VOCAB, VOCAB, HIDDEN,
		   .unless = MFS_HAS(TIED)),
	{0},
};

const struct mfs_family_tensor mfs_llama_norms[] = {
	MFS_VECTOR(LAYER, "input_layernorm.weight", "input_layernorm.weight", DIRECT, HIDDEN,
		   .norm = true),
	MFS_VECTOR(LAYER, "post_attention_layernorm.weight", "pre_mlp_layernorm.weight", DIRECT,
		   HIDDEN, .norm = true),
	{0},
};

#define QKV_BIASES (MFS_HAS(LINEAR_BIAS) | MFS_HAS(QKV_BIAS))

const struct mfs_family_tensor mfs_llama_attention[] = {
	MFS_MATRIX(LAYER, "self_attn.q_proj.weight", "self_attention.linear_qkv.weight", Q, QKV,
		   HIDDEN),
	MFS_MATRIX(LAYER, "self_attn.k_proj.weight", "self_attention.linear_qkv.weight", K, QKV,
		   HIDDEN),
	MFS_MATRIX(LAYER, "self_attn.v_proj.weight", "self_attention.linear_qkv.weight", V, QKV,
		   HIDDEN),
	MFS_MATRIX(LAYER, "self_attn.o_proj.weight", "self_attention.linear_proj.weight", DIRECT,
		   HIDDEN, HEADS),
	MFS_VECTOR(LAYER, "self_attn.q_proj.bias", "self_attention.linear_qkv.bias", Q, QKV,
		   .when = QKV_BIASES),
	MFS_VECTOR(LAYER, "self_attn.k_proj.bias", "self_attention.linear_qkv.bias", K, QKV,
		   .when = QKV_BIASES),
	MFS_VECTOR(LAYER, "self_attn.v_proj.bias", "self_attention.linear_qkv.bias", V, QKV,
		   .when = QKV_BIASES),
	MFS_VECTOR(LAYER, "self_attn.o_proj.bias", "self_attention.linear_proj.bias", DIRECT,
		   HIDDEN, .when = MFS_HAS(LINEAR_BIAS)),
	MFS_VECTOR(LAYER, "self_attn.q_norm.weight", "self_attention.q_layernorm.weight", HEAD,
		   HEAD, .when = MFS_HAS(QK_NORM), .norm = true),
	MFS_VECTOR(LAYER, "self_attn.k_norm.weight", "self_attention.k_layernorm.weight", HEAD,
		   HEAD, .when = MFS_HAS(QK_NORM), .norm = true),
	{0},
};

const struct mfs_family_tensor mfs_llama_mlp[] = {
	MFS_MATRIX(LAYER, "mlp.gate_proj.weight", "mlp.linear_fc1.weight", GATE, FFN_X2, HIDDEN,
		   .kind = MFS_LAYER_DENSE),
	MFS_MATRIX(LAYER, "mlp.up_proj.weight", "mlp.linear_fc1.weight", UP, FFN_X2, HIDDEN,
		   .kind = MFS_LAYER_DENSE),
	MFS_MATRIX(LAYER, "mlp.down_proj.weight", "mlp.linear_fc2.weight", DIRECT, HIDDEN, FFN,
		   .kind = MFS_LAYER_DENSE),
	MFS_VECTOR(LAYER, "mlp.gate_proj.bias", "mlp.linear_fc1.bias", GATE, FFN_X2,
		   .kind = MFS_LAYER_DENSE, .when = MFS_HAS(LINEAR_BIAS)),
	MFS_VECTOR(LAYER, "mlp.up_proj.bias", "mlp.linear_fc1.bias", UP, FFN_X2,
		   .kind = MFS_LAYER_DENSE, .when = MFS_HAS(LINEAR_BIAS)),
	MFS_VECTOR(LAYER, "mlp.down_proj.bias", "mlp.linear_fc2.bias", DIRECT, HIDDEN,
		   .kind = MFS_LAYER_DENSE, .when = MFS_HAS(LINEAR_BIAS)),
	{0},
};

const struct mfs_config_row mfs_config_llama[] = {
	MFS_CONFIG("hidden_size", INT, .field = MFS_FIELD(hidden_size)),
	MFS_CONFIG("intermediate_size", INT, .field = MFS_FIELD(ffn_hidden_size)),
	MFS_CONFIG("num_hidden_layers", INT, .field = MFS_FIELD(num_layers)),
	MFS_CONFIG("num_attention_heads", INT, .field = MFS_FIELD(num_attention_heads)),
	MFS_CONFIG("num_key_value_heads", INT, .field = MFS_FIELD(num_query_groups)),
	MFS_CONFIG("head_dim", INT, .field = MFS_FIELD(kv_channels)),
	MFS_CONFIG("hidden_act", TEXT, .text = "silu"),
	MFS_CONFIG("rms_norm_eps", REAL, .field = MFS_FIELD(norm_epsilon)),
	MFS_CONFIG("attention_dropout", DECIMAL, .ref = MFS_REF_WINS, .number = 0),
	{0},
};

static const struct mfs_config_row config[] = {
	MFS_CONFIG("attention_bias", HAS, .has = MFS_HAS(LINEAR_BIAS)), /* of o_proj, too */
	MFS_CONFIG("mlp_bias", HAS, .has = MFS_HAS(LINEAR_BIAS)),
	{0},
};

/* RAGGED_HEADS is left out: LlamaConfig refuses such sizes even with a head_dim. */
const struct mfs_family mfs_family_llama = {
	.name = "llama",
	.architecture = "LlamaForCausalLM",
	.model_type = "llama",
	.layer_prefix = "model.layers.{i}.",
	.required = MFS_HAS(SWIGLU) | MFS_HAS(ROPE),
	.optional = MFS_LLAMA_OPTIONS | MFS_HAS(LINEAR_BIAS),
	.tensors =
		(const struct mfs_family_tensor *const[]){mfs_llama_ends, mfs_llama_norms,
							  mfs_llama_attention, mfs_llama_mlp, NULL},
	.config = (const struct mfs_config_row *const[]){mfs_config_common, mfs_config_rope,
							 mfs_config_llama, config, NULL},
};
