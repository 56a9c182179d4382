/*
 * A family of HuggingFace models, as data in families/NAME.c. A new family is a new file with
 * tables, and a line in families/families.c.
 *
 *     which models   features that a model must have, and features that it may have. A checkpoint
 *                  with any other feature is refused, so that it is never shown wrong.
 *   tensors        HF name, Megatron's canonical name (ckpt/ckpt.h), rule, Megatron's shape
 *     config         the keys of config.json. Each is a field of the arguments, a constant, or a
 *                  value that hf_config.c computes.
 *   notes          what a person should know before using the model with some readers
 *
 * Sources of the tables: transformers/models/NAME/{configuration,modeling}_NAME.py, and for
 * Megatron's side megatron/core/transformer/{attention,mlp,multi_latent_attention}.py.
 */
#ifndef MFS_MODEL_FAMILIES_FAMILY_H
#define MFS_MODEL_FAMILIES_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/torch/megatron_args.h"

/* Features: what distinguishes models. features.c derives them from the arguments alone. The text
 * names the feature in messages. */
#define MFS_FEATURES(X)                                                                            \
	X(LAYERNORM, "LayerNorm")                                                                  \
	X(ZERO_CENTERED, "norms stored as weight - 1 (apply_layernorm_1p)")                        \
	X(EPS_NOT_1E6, "a norm_epsilon other than 1e-6")                                           \
	X(SWIGLU, "SwiGLU")                                                                        \
	X(GELU, "GELU")                                                                            \
	X(GELU_EXACT, "GELU by erf (bias_gelu_fusion off)")                                        \
	X(QUICK_GEGLU, "quick GEGLU (quick_geglu)")                                                \
	X(RELU2, "squared ReLU (squared_relu)")                                                    \
	X(LINEAR_BIAS, "linear biases (add_bias_linear)")                                          \
	X(QKV_BIAS, "qkv biases alone (add_qkv_bias)")                                             \
	X(QK_NORM, "query and key norms (qk_layernorm)")                                           \
	X(QK_L2_NORM, "L2-normalised queries and keys (qk_l2_norm)")                               \
	X(OUTPUT_GATE, "an attention output gate (attention_output_gate)")                         \
	X(GQA, "grouped queries (num_query_groups)")                                               \
	X(HEAD_DIM, "a head size other than hidden_size / heads (kv_channels)")                    \
	X(RAGGED_HEADS, "a hidden_size that is not a multiple of num_attention_heads")             \
	X(ROPE, "rotary positions (position_embedding_type rope)")                                 \
	X(LEARNED_POSITIONS, "learned positions (position_embedding_type learned_absolute)")       \
	X(OTHER_POSITIONS, "another position_embedding_type than rope or learned_absolute")        \
	X(ROPE_INTERLEAVED, "interleaved rotary pairs (rotary_interleaved)")                       \
	X(ROPE_PARTIAL, "rotary positions on a part of each head (rotary_percent)")                \
	X(ROPE_LLAMA3, "Llama 3's rotary scaling (use_rope_scaling)")                              \
	X(ROPE_LINEAR, "linear rotary scaling (rotary_seq_len_interpolation_factor)")              \
	X(YARN, "YaRN rotary scaling")                                                             \
	X(ROPE_SCALED_TWICE, "two rotary scalings at once")                                        \
	X(WINDOW, "sliding-window attention (window_size)")                                        \
	X(TIED, "a head tied to the embedding")                                                    \
	X(MOE, "experts (num_experts)")                                                            \
	X(MOE_AFTER_DENSE, "leading dense layers (moe_layer_freq)")                                \
	X(MOE_MIXED, "dense layers between MoE layers (moe_layer_freq)")                           \
	X(SHARED_EXPERT, "a shared expert (moe_shared_expert_intermediate_size)")                  \
	X(SHARED_RAGGED, "a shared expert that is not a multiple of moe_ffn_hidden_size")          \
	X(SHARED_GATE, "a gate on the shared expert (moe_shared_expert_gate)")                     \
	X(SIGMOID_ROUTER, "a sigmoid router (moe_router_score_function)")                          \
	X(OTHER_ROUTER, "another moe_router_score_function than softmax, sigmoid")                 \
	X(EXPERT_BIAS, "a router bias (moe_router_enable_expert_bias)")                            \
	X(PRE_SOFTMAX, "router softmax before the top k (moe_router_pre_softmax)")                 \
	X(ROUTER_SCALE, "scaled router scores (moe_router_topk_scaling_factor)")                   \
	X(ROUTER_GROUPS, "expert groups (moe_router_num_groups)")                                  \
	X(GROUPS_NOT_BY_TWO, "expert groups scored by another number than their two best")         \
	X(GLU_INTERLEAVED, "interleaved gate and up rows (moe_mlp_glu_interleave_size)")           \
	X(MLA, "multi-latent attention")                                                           \
	X(Q_LORA, "a low-rank query projection (q_lora_rank)")                                     \
	X(SCALED_SOFTMAX, "mscale_all_dim without YaRN")                                           \
	X(MTP, "multi-token prediction (mtp_num_layers)")                                          \
	X(FOREIGN, "an argument without a counterpart")

enum mfs_feature {
#define MFS_FEATURE_ENUM(name, text) MFS_F_##name,
	MFS_FEATURES(MFS_FEATURE_ENUM)
#undef MFS_FEATURE_ENUM
		MFS_FEATURE_COUNT
};

/* One feature as a set: MFS_HAS(ROPE) | MFS_HAS(SWIGLU). */
#define MFS_HAS(name) (1ull << MFS_F_##name)

/* Sizes of Megatron's tensors, from the arguments (dims.c). X2: gate and up rows together, or the
 * two inputs of eh_proj. */
enum mfs_dim {
	MFS_DIM_NONE,
	MFS_DIM_ONE,
	MFS_DIM_HIDDEN,
	MFS_DIM_HIDDEN_X2,
	MFS_DIM_FFN,
	MFS_DIM_FFN_X2,
	MFS_DIM_HEAD_COUNT,
	/* (heads + 2 groups) * head; with an output gate (2 heads + 2 groups) * head */
	MFS_DIM_QKV,
	MFS_DIM_HEADS, /* heads * head */
	MFS_DIM_HEAD,  /* kv_channels */
	MFS_DIM_VOCAB, /* padded */
	MFS_DIM_POSITIONS,
	MFS_DIM_EXPERTS,
	MFS_DIM_MOE_FFN,
	MFS_DIM_MOE_FFN_X2,
	MFS_DIM_SHARED_FFN,
	MFS_DIM_SHARED_FFN_X2,
	MFS_DIM_Q_LORA,
	MFS_DIM_KV_LORA,
	MFS_DIM_KV_DOWN, /* kv_lora_rank + qk_pos_emb_head_dim */
	MFS_DIM_MLA_Q,	 /* heads * (qk_head_dim + qk_pos_emb_head_dim) */
	MFS_DIM_MLA_KV,	 /* heads * (qk_head_dim + v_head_dim) */
	MFS_DIM_MLA_OUT, /* heads * v_head_dim */
	MFS_DIM_COUNT
};

/* How rows of Megatron's tensor become rows of HF's (rules.h). */
enum mfs_rule {
	MFS_RULE_DIRECT,
	MFS_RULE_VOCAB, /* the rows of the true vocabulary */
	MFS_RULE_Q,	/* of linear_qkv, whose groups are [queries of the group; key; value] */
	MFS_RULE_K,
	MFS_RULE_V,
	MFS_RULE_QKV,  /* [all q; all k; all v] */
	MFS_RULE_HEAD, /* a vector over one head, reordered as rotary pairs are */
	MFS_RULE_GATE, /* first half */
	MFS_RULE_UP,   /* second half */
};

enum mfs_scope {
	MFS_SCOPE_BEFORE, /* before the layers */
	MFS_SCOPE_LAYER,  /* in every layer, and in every MTP layer's inner layer */
	MFS_SCOPE_MTP,	  /* in every MTP layer, outside of its inner layer */
	MFS_SCOPE_AFTER,  /* after the layers */
};

enum mfs_layer_kind { MFS_LAYER_ANY, MFS_LAYER_DENSE, MFS_LAYER_MOE };

/* A table of these ends with a row without a name. */
struct mfs_family_tensor {
	const char *hf;	  /* in a layer: without the family's layer_prefix; {e}: the expert */
	const char *name; /* canonical; in a layer: without "decoder.layers." or MTP's prefix */
	enum mfs_dim shape[2]; /* Megatron's; a vector's second is MFS_DIM_NONE */
	enum mfs_rule rule;
	enum mfs_scope scope;
	enum mfs_layer_kind kind;
	uint64_t when, unless; /* features: any of when (0: always) and none of unless */
	bool experts;	       /* one per expert */
	bool transposed;       /* HF stores [in, out] */
	bool norm;	       /* a weight that zero-centred norms store as weight - 1 */
};

/* Rows of such tables. After the shape come .kind, .when, .unless, .norm, ... if they are not 0. */
#define MFS_MATRIX(scope_, hf_, name_, rule_, rows_, columns_, ...)                                \
	{                                                                                          \
		.scope = MFS_SCOPE_##scope_, .hf = hf_, .name = name_, .rule = MFS_RULE_##rule_,   \
		.shape = {MFS_DIM_##rows_, MFS_DIM_##columns_}, __VA_ARGS__                        \
	}
#define MFS_VECTOR(scope_, hf_, name_, rule_, size_, ...)                                          \
	MFS_MATRIX(scope_, hf_, name_, rule_, size_, NONE, __VA_ARGS__)

enum mfs_config_kind {
	MFS_CONFIG_INT,	 /* an int64_t of the arguments; MFS_UNSET is null */
	MFS_CONFIG_REAL, /* a double of the arguments */
	MFS_CONFIG_HAS,	 /* true if the model has a feature of .has */
	MFS_CONFIG_TEXT, /* constants */
	MFS_CONFIG_NUMBER,
	MFS_CONFIG_DECIMAL,
	MFS_CONFIG_TRUE,
	MFS_CONFIG_FALSE,
	MFS_CONFIG_NULL,
	MFS_CONFIG_VALUE, /* computed: enum mfs_config_value */
};

enum mfs_config_value {
	MFS_VALUE_ARCHITECTURES,
	MFS_VALUE_MODEL_TYPE,
	MFS_VALUE_DTYPE,
	MFS_VALUE_VOCAB,
	MFS_VALUE_BOS,
	MFS_VALUE_EOS,
	MFS_VALUE_PAD,
	MFS_VALUE_ROPE_SCALING,	   /* an object, or null */
	MFS_VALUE_ROPE_PARAMETERS, /* the same with rope_theta: transformers 5 */
	MFS_VALUE_LAYER_TYPES,	   /* "full_attention" or "sliding_attention" for each layer */
	MFS_VALUE_SHARED_EXPERTS,  /* width of the shared expert over a routed expert's */
	MFS_VALUE_ROUTED_SCALE,	   /* 1.0 if unset */
	MFS_VALUE_EXPERT_GROUPS,   /* 1 if unset */
	MFS_VALUE_GROUP_TOPK,
	MFS_VALUE_NORM_TOPK, /* Megatron normalises sigmoid scores if top k is above 1 */
};

/* What is written for a key that the reference's config.json has too. */
enum mfs_config_ref {
	MFS_REF_AGREES,	     /* both must be equal */
	MFS_REF_WINS,	     /* the reference's value: token ids, dropout, ... */
	MFS_REF_WINS_NOTED,  /* the same, with a warning if they differ */
	MFS_REF_LOSES,	     /* the checkpoint's value: dtype */
	MFS_REF_LOSES_NOTED, /* the same, with a warning if they differ */
};

/* A table of these ends with a row without a key. */
struct mfs_config_row {
	const char *key;
	enum mfs_config_kind kind;
	enum mfs_config_ref ref;
	size_t field; /* INT, REAL: offset in struct mfs_megatron_args */
	const char *text;
	double number; /* NUMBER, DECIMAL */
	uint64_t has;
	enum mfs_config_value value;
	uint64_t when, unless; /* as for tensors */
};

#define MFS_FIELD(name) offsetof(struct mfs_megatron_args, name)

/* Rows of such tables: MFS_CONFIG("hidden_size", INT, .field = MFS_FIELD(hidden_size)). */
#define MFS_CONFIG(key_, kind_, ...)                                                               \
	{                                                                                          \
		.key = key_, .kind = MFS_CONFIG_##kind_, __VA_ARGS__                               \
	}

/* A sentence that inspect shows if the model has all features of when. */
struct mfs_family_note {
	uint64_t when;
	const char *text;
};

struct mfs_family {
	const char *name;	  /* for -o arch=: "deepseek-v3" */
	const char *architecture; /* "DeepseekV3ForCausalLM" */
	const char *model_type;	  /* "deepseek_v3" */
	const char *layer_prefix; /* "model.layers.{i}." */
	uint64_t required, optional;
	const struct mfs_family_tensor *const *tensors; /* tables, ended by NULL */
	const struct mfs_config_row *const *config;	/* tables, ended by NULL; a later
						     * row of a key replaces an earlier one */
	const struct mfs_family_note *notes;		/* ended by one without text; or NULL */
};

/* All families, ended by NULL. If several fit, the first is taken. */
extern const struct mfs_family *const mfs_families[];
const char *mfs_family_names(void); /* "llama, qwen2, ..." */

/* Tables that families share. */
extern const struct mfs_family_tensor mfs_llama_ends[];	     /* embedding, last norm, head */
extern const struct mfs_family_tensor mfs_llama_norms[];     /* of a layer */
extern const struct mfs_family_tensor mfs_llama_attention[]; /* q, k, v, o; biases, q/k norms */
extern const struct mfs_family_tensor mfs_llama_mlp[];	     /* gate, up, down of a dense layer */
extern const struct mfs_config_row mfs_config_common[];	     /* every family's first */
extern const struct mfs_config_row mfs_config_rope[];
extern const struct mfs_config_row mfs_config_llama[]; /* sizes under Llama's keys */
extern const struct mfs_config_row mfs_config_window[];

/* Features that the rules handle in every family that uses mfs_llama_attention. */
#define MFS_LLAMA_OPTIONS                                                                          \
	(MFS_HAS(ZERO_CENTERED) | MFS_HAS(EPS_NOT_1E6) | MFS_HAS(GQA) | MFS_HAS(HEAD_DIM) |        \
	 MFS_HAS(ROPE_INTERLEAVED) | MFS_HAS(ROPE_LLAMA3) | MFS_HAS(ROPE_LINEAR) | MFS_HAS(TIED))

/* True if a layer of this kind has the row. */
static inline bool mfs_is_of_kind(const struct mfs_family_tensor *row, bool moe)
{
	return row->kind == MFS_LAYER_ANY || (row->kind == MFS_LAYER_MOE) == moe;
}

/* True if a model with these features has a row of these conditions. */
static inline bool mfs_applies(uint64_t when, uint64_t unless, uint64_t features)
{
	return (!when || (when & features)) && !(unless & features);
}

#endif
