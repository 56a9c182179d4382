#include "formats/model/families/family.h"

static const struct mfs_family_tensor ends[] = {
	MFS_MATRIX(BEFORE, "transformer.wte.weight", "embedding.word_embeddings.weight", VOCAB,
		   VOCAB, HIDDEN),
	MFS_MATRIX(BEFORE, "transformer.wpe.weight", "embedding.position_embeddings.weight", DIRECT,
		   POSITIONS, HIDDEN),
	MFS_VECTOR(AFTER, "transformer.ln_f.weight", "decoder.final_layernorm.weight", DIRECT,
		   HIDDEN, .norm = true),
	MFS_VECTOR(AFTER, "transformer.ln_f.bias", "decoder.final_layernorm.bias", DIRECT, HIDDEN),
	MFS_MATRIX(AFTER, "lm_head.weight", "output_layer.weight", VOCAB, VOCAB, HIDDEN,
		   .unless = MFS_HAS(TIED)),
	{0},
};

/* Weights of transformers' Conv1D are [in, out]. */
static const struct mfs_family_tensor layer[] = {
	MFS_VECTOR(LAYER, "ln_1.weight", "input_layernorm.weight", DIRECT, HIDDEN, .norm = true),
	MFS_VECTOR(LAYER, "ln_1.bias", "input_layernorm.bias", DIRECT, HIDDEN),
	MFS_MATRIX(LAYER, "attn.c_attn.weight", "self_attention.linear_qkv.weight", QKV, QKV,
		   HIDDEN, .transposed = true),
	MFS_VECTOR(LAYER, "attn.c_attn.bias", "self_attention.linear_qkv.bias", QKV, QKV),
	MFS_MATRIX(LAYER, "attn.c_proj.weight", "self_attention.linear_proj.weight", DIRECT, HIDDEN,
		   HEADS, .transposed = true),
	MFS_VECTOR(LAYER, "attn.c_proj.bias", "self_attention.linear_proj.bias", DIRECT, HIDDEN),
	MFS_VECTOR(LAYER, "ln_2.weight", "pre_mlp_layernorm.weight", DIRECT, HIDDEN, .norm = true),
	MFS_VECTOR(LAYER, "ln_2.bias", "pre_mlp_layernorm.bias", DIRECT, HIDDEN),
	MFS_MATRIX(LAYER, "mlp.c_fc.weight", "mlp.linear_fc1.weight", DIRECT, FFN, HIDDEN,
		   .transposed = true),
	MFS_VECTOR(LAYER, "mlp.c_fc.bias", "mlp.linear_fc1.bias", DIRECT, FFN),
	MFS_MATRIX(LAYER, "mlp.c_proj.weight", "mlp.linear_fc2.weight", DIRECT, HIDDEN, FFN,
		   .transposed = true),
	MFS_VECTOR(LAYER, "mlp.c_proj.bias", "mlp.linear_fc2.bias", DIRECT, HIDDEN),
	{0},
};

/* MLX needs n_ctx. */
static const struct mfs_config_row config[] = {
	MFS_CONFIG("n_embd", INT, .field = MFS_FIELD(hidden_size)),
	MFS_CONFIG("n_layer", INT, .field = MFS_FIELD(num_layers)),
	MFS_CONFIG("n_head", INT, .field = MFS_FIELD(num_attention_heads)),
	MFS_CONFIG("n_inner", INT, .field = MFS_FIELD(ffn_hidden_size)),
	MFS_CONFIG("n_positions", INT, .field = MFS_FIELD(max_position_embeddings)),
	MFS_CONFIG("n_ctx", INT, .field = MFS_FIELD(max_position_embeddings)),
	MFS_CONFIG("activation_function", TEXT, .text = "gelu", .when = MFS_HAS(GELU_EXACT)),
	MFS_CONFIG("activation_function", TEXT, .text = "gelu_new", .unless = MFS_HAS(GELU_EXACT)),
	MFS_CONFIG("layer_norm_epsilon", REAL, .field = MFS_FIELD(norm_epsilon)),
	MFS_CONFIG("scale_attn_weights", TRUE),
	MFS_CONFIG("scale_attn_by_inverse_layer_idx", FALSE),
	MFS_CONFIG("reorder_and_upcast_attn", FALSE, .ref = MFS_REF_WINS),
	MFS_CONFIG("add_cross_attention", FALSE),
	MFS_CONFIG("attn_pdrop", DECIMAL, .ref = MFS_REF_WINS, .number = 0),
	MFS_CONFIG("embd_pdrop", DECIMAL, .ref = MFS_REF_WINS, .number = 0),
	MFS_CONFIG("resid_pdrop", DECIMAL, .ref = MFS_REF_WINS, .number = 0),
	{0},
};

static const struct mfs_family_note notes[] = {
	{MFS_HAS(GELU_EXACT),
	 "MLX always computes GELU by tanh for gpt2: its output will differ a little"},
	{0},
};

const struct mfs_family mfs_family_gpt2 = {
	.name = "gpt2",
	.architecture = "GPT2LMHeadModel",
	.model_type = "gpt2",
	.layer_prefix = "transformer.h.{i}.",
	.required = MFS_HAS(LAYERNORM) | MFS_HAS(GELU) | MFS_HAS(LINEAR_BIAS) |
		    MFS_HAS(LEARNED_POSITIONS),
	.optional =
		MFS_HAS(ZERO_CENTERED) | MFS_HAS(EPS_NOT_1E6) | MFS_HAS(GELU_EXACT) | MFS_HAS(TIED),
	.tensors = (const struct mfs_family_tensor *const[]){ends, layer, NULL},
	.config = (const struct mfs_config_row *const[]){mfs_config_common, config, NULL},
	.notes = notes,
};
