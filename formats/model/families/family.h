/*
 * A family of HuggingFace models. It is read from a text file (docs/FAMILIES.md): the built-in ones
 * are configs/models/NAME.conf, and a person may name one of his own.
 *
 *   which models   features that a model must have, and features that it may have. A checkpoint
 *                  with any other feature is refused, so that it is never shown wrong.
 *   tensors        HF name, Megatron's canonical name (ckpt/ckpt.h), rule
 *   config         the keys of config.json. Each is a field of the arguments, a constant, or a
 *                  value that hf_config.c computes.
 *   defaults       what transformers' class takes for keys that a config.json leaves out
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
#include "formats/base/prefixes.h"
#include "formats/ckpt/language_part.h"
#include "formats/ckpt/param_axes.h"
#include "formats/model/rules/rules.h"
#include "formats/args/megatron_args.h"

/* Features: what distinguishes models. features.c derives them from the arguments alone. The text
 * names the feature in messages, the word in families' files. */
#define MFS_FEATURES(X)                                                                            \
	X(LAYERNORM, "layernorm", "LayerNorm")                                                     \
	X(ZERO_CENTERED, "zero-centered", "norms stored as weight - 1 (apply_layernorm_1p)")       \
	X(EPS_NOT_1E6, "eps-not-1e6", "a norm_epsilon other than 1e-6")                            \
	X(SWIGLU, "swiglu", "SwiGLU")                                                              \
	X(GELU, "gelu", "GELU")                                                                    \
	X(GELU_EXACT, "gelu-exact", "GELU by erf (bias_gelu_fusion off)")                          \
	X(QUICK_GEGLU, "quick-geglu", "quick GEGLU (quick_geglu)")                                 \
	X(GLU_OFFSET, "glu-offset", "1 added to the linear half of a GLU (glu_linear_offset)")     \
	X(GLU_CLAMP, "glu-clamp", "a clamped GLU (activation_func_clamp_value)")                   \
	X(GEGLU, "geglu", "GELU with a gate (GEGLU)")                                              \
	X(RELU2, "relu2", "squared ReLU (squared_relu)")                                           \
	X(LINEAR_BIAS, "linear-bias", "linear biases (add_bias_linear)")                           \
	X(QKV_BIAS, "qkv-bias", "qkv biases alone (add_qkv_bias)")                                 \
	X(QK_NORM, "qk-norm", "query and key norms (qk_layernorm)")                                \
	X(QK_NORM_WIDE, "qk-norm-wide", "query and key norms over all heads at once")              \
	X(POST_NORMS, "post-norms", "norms after attention and MLP and none before")               \
	X(QK_L2_NORM, "qk-l2-norm", "L2-normalised queries and keys (qk_l2_norm)")                 \
	X(SINKS, "sinks", "a learned offset in the softmax of each head (softmax_type learnable)") \
	X(SOFTMAX_SCALE, "softmax-scale", "another scale of attention scores (softmax_scale)")     \
	X(SOFT_CAPS, "soft-caps", "soft caps (attn_logit_softcapping, final_logit_softcapping)")   \
	X(OUTPUT_GATE, "output-gate", "an attention output gate (attention_output_gate)")          \
	X(GQA, "gqa", "grouped queries (num_query_groups)")                                        \
	X(HEAD_DIM, "head-dim", "a head size other than hidden_size / heads (kv_channels)")        \
	X(RAGGED_HEADS, "ragged-heads",                                                            \
	  "a hidden_size that is not a multiple of num_attention_heads")                           \
	X(ROPE, "rope", "rotary positions (position_embedding_type rope)")                         \
	X(LEARNED_POSITIONS, "learned-positions",                                                  \
	  "learned positions (position_embedding_type learned_absolute)")                          \
	X(NO_POSITIONS, "no-positions", "no positions (position_embedding_type none)")             \
	X(OTHER_POSITIONS, "other-positions",                                                      \
	  "another position_embedding_type than rope, learned_absolute or none")                   \
	X(ROPE_INTERLEAVED, "rope-interleaved", "interleaved rotary pairs (rotary_interleaved)")   \
	X(ROPE_PARTIAL, "rope-partial",                                                            \
	  "rotary positions on a part of each head (rotary_percent)")                              \
	X(ROPE_LLAMA3, "rope-llama3", "Llama 3's rotary scaling (use_rope_scaling)")               \
	X(ROPE_LINEAR, "rope-linear",                                                              \
	  "linear rotary scaling (rotary_seq_len_interpolation_factor)")                           \
	X(ROPE_TWO_BASES, "rope-two-bases",                                                        \
	  "another rotary base in layers with a window (rotary_base)")                             \
	X(YARN, "yarn", "YaRN rotary scaling")                                                     \
	X(YARN_UNROUNDED, "yarn-unrounded",                                                        \
	  "YaRN between fractions of pairs (yarn_correction_range_round_to_int off)")              \
	X(ROPE_SCALED_TWICE, "rope-scaled-twice", "two rotary scalings at once")                   \
	X(WINDOW, "window", "sliding-window attention (window_size)")                              \
	X(WINDOW_MIXED, "window-mixed", "layers without the window (window_attn_skip_freq)")       \
	X(TIED, "tied", "a head tied to the embedding")                                            \
	X(MOE, "moe", "experts (num_experts)")                                                     \
	X(MOE_AFTER_DENSE, "moe-after-dense", "leading dense layers (moe_layer_freq)")             \
	X(MOE_MIXED, "moe-mixed", "dense layers between MoE layers (moe_layer_freq)")              \
	X(SHARED_EXPERT, "shared-expert", "a shared expert (moe_shared_expert_intermediate_size)") \
	X(SHARED_RAGGED, "shared-ragged",                                                          \
	  "a shared expert that is not a multiple of moe_ffn_hidden_size")                         \
	X(SHARED_GATE, "shared-gate", "a gate on the shared expert (moe_shared_expert_gate)")      \
	X(SIGMOID_ROUTER, "sigmoid-router", "a sigmoid router (moe_router_score_function)")        \
	X(OTHER_ROUTER, "other-router", "another moe_router_score_function than softmax, sigmoid") \
	X(EXPERT_BIAS, "expert-bias", "a router bias (moe_router_enable_expert_bias)")             \
	X(PRE_SOFTMAX, "pre-softmax", "router softmax before the top k (moe_router_pre_softmax)")  \
	X(ROUTER_SCALE, "router-scale", "scaled router scores (moe_router_topk_scaling_factor)")   \
	X(ROUTER_GROUPS, "router-groups", "expert groups (moe_router_num_groups)")                 \
	X(GROUPS_NOT_BY_TWO, "groups-not-by-two",                                                  \
	  "expert groups scored by another number than their two best")                            \
	X(GLU_INTERLEAVED, "glu-interleaved",                                                      \
	  "interleaved gate and up rows (moe_mlp_glu_interleave_size)")                            \
	X(LINEAR_ATTENTION, "linear-attention",                                                    \
	  "linear attention by a gated delta net (experimental_attention_variant)")                \
	X(HYBRID, "hybrid", "layers of one sublayer each (hybrid_layer_pattern)")                  \
	X(MAMBA_EPS, "mamba-eps",                                                                  \
	  "another norm_epsilon than 1e-5 with Mamba mixers, whose own "                           \
	  "is 1e-5")                                                                               \
	X(MLA, "mla", "multi-latent attention")                                                    \
	X(Q_LORA, "q-lora", "a low-rank query projection (q_lora_rank)")                           \
	X(SCALED_SOFTMAX, "scaled-softmax", "mscale_all_dim without YaRN")                         \
	X(MTP, "mtp", "multi-token prediction (mtp_num_layers)")                                   \
	X(OWN_MODULES, "own-modules", "modules of Megatron-Bridge's own")                          \
	X(FOREIGN, "foreign", "an argument without a counterpart")

enum mfs_feature {
#define MFS_FEATURE_ENUM(name, word, text) MFS_F_##name,
	MFS_FEATURES(MFS_FEATURE_ENUM)
#undef MFS_FEATURE_ENUM
		MFS_FEATURE_COUNT
};

/* A set of features. */
typedef unsigned __int128 mfs_features;

/* One feature as a set: MFS_HAS(ROPE) | MFS_HAS(SWIGLU). */
#define MFS_HAS(name) ((mfs_features)1 << MFS_F_##name)

/* Layers differ in what follows attention, and in attention. In a hybrid model a layer is of one
 * kind. */
enum mfs_layer_kind {
	MFS_LAYER_ANY,
	MFS_LAYER_DENSE, /* without experts */
	MFS_LAYER_MOE,
	MFS_LAYER_FULL, /* attention that is not linear */
	MFS_LAYER_LINEAR,
	MFS_LAYER_MAMBA,
};

/* A table of these ends with a row without a name. Shape, experts and norm follow from the name
 * (formats/ckpt/param_axes.h). */
struct mfs_family_tensor {
	const char *hf;	  /* in a layer: without the family's layer_prefix; {e}: the expert */
	const char *name; /* canonical; in a layer: without "decoder.layers." or MTP's prefix */
	/* Megatron's; axes that there are not are MFS_DIM_NONE */
	enum mfs_dim shape[MFS_PARAM_AXES];
	enum mfs_rule rule;
	enum mfs_scope scope;
	enum mfs_layer_kind kind;
	mfs_features when, unless; /* any of when (0: always) and none of unless */
	bool experts;		   /* of experts: one for each, or stacked */
	bool stacked;	 /* HF has those of all experts in one tensor, along its first axis */
	bool transposed; /* HF stores [in, out] */
	bool plain; /* a norm that HF stores as it is, though the family's norms are weight - 1 */
	bool norm;  /* a weight that zero-centred norms store as weight - 1, and HF does not */
	/* NULL: HF's name; SGLang's: vLLM's */
	const struct mfs_vllm_name *vllm, *sglang;
};

enum mfs_config_kind {
	MFS_CONFIG_INT,	  /* an int64_t of the arguments; MFS_ABSENT is null */
	MFS_CONFIG_REAL,  /* a double of the arguments */
	MFS_CONFIG_HAS,	  /* true if the model has a feature of .has */
	MFS_CONFIG_LACKS, /* true if it has none of these */
	MFS_CONFIG_TEXT,  /* constants */
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
	/* "full_attention" or "linear_attention" for each layer; and N, if each Nth has the
	 * first */
	MFS_VALUE_LINEAR_LAYER_TYPES,
	MFS_VALUE_FULL_ATTENTION_INTERVAL,
	MFS_VALUE_HYBRID_PATTERN, /* a letter a layer */
	MFS_VALUE_LAYER_TYPES,	  /* "full_attention" or "sliding_attention" for each layer */
	MFS_VALUE_SHARED_EXPERTS, /* width of the shared expert over a routed expert's */
	MFS_VALUE_ROUTED_SCALE,	  /* 1.0 if absent */
	MFS_VALUE_EXPERT_GROUPS,  /* 1 if absent */
	MFS_VALUE_GROUP_TOPK,
	MFS_VALUE_DENSE_LAYERS,	   /* numbers of the layers without experts */
	MFS_VALUE_MLP_LAYER_TYPES, /* "dense" or "sparse" for each layer */
	MFS_VALUE_GELU_TANH,	   /* "gelu_pytorch_tanh", under any of its names */
	MFS_VALUE_LEGACY_GELU,	   /* the same, and "gelu", which the class takes for it */
	MFS_VALUE_QUERY_PRE_ATTN,  /* 1 / softmax_scale^2 */
	MFS_VALUE_WINDOW_LEFT,	   /* without the token itself */
	MFS_VALUE_WINDOW_INTERVAL, /* N, if each Nth layer alone has no window */
	MFS_VALUE_ALTERNATING,	   /* layer types: sliding, full, sliding, ... */
	MFS_VALUE_ROTARY_DIM,	   /* how many numbers of a head are rotated */
	MFS_VALUE_NORM_TOPK,	   /* Megatron normalises sigmoid scores if top k is above 1 */
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
	double number;	  /* NUMBER, DECIMAL */
	mfs_features has; /* HAS, LACKS */
	enum mfs_config_value value;
	mfs_features when, unless; /* as for tensors */
};

#define MFS_FIELD(name) offsetof(struct mfs_megatron_args, name)

/* Another name that transformers' class has for a key (attribute_map in configuration_NAME.py). A
 * table of these ends with a row without a key. */
struct mfs_config_alias {
	const char *other, *key;
};

/* A sentence that inspect shows if the model has all features of when. A table of these ends with a
 * row without text. */
struct mfs_family_note {
	mfs_features when;
	const char *text;
};

/*
 * A tensor of a layer that files may have in the place of several others: of all experts, along its
 * first axis, and the parts of one follow each other. A table of these ends with a row without
 * from.
 */
#define MFS_FUSED_PARTS 2
struct mfs_fused {
	const char *from;		 /* after the layer's prefix */
	const char *to[MFS_FUSED_PARTS]; /* likewise; {e}: the expert */
	uint32_t count;
	bool transposed; /* files may also store [in, out] */
};

/* What vLLM or SGLang calls an HF tensor, both without layer_prefix. Tensors of one name follow
 * each other in the engine's, in the order of the family's rows, and those of experts are stacked.
 * A table of these ends with a row without hf. */
struct mfs_vllm_name {
	const char *hf, *name;
	mfs_features when, unless; /* as for tensors; another model has HF's name */
	bool f32;		   /* the engine has it in float32 */
	bool rows, heads; /* a worker has its part of the rows, or of those of the key heads */
};

/*
 * What a vision-language model's file says: where its language model is, which is of another
 * family. Such a family has no features, tensors and keys of its own.
 */
struct mfs_language {
	/* of Megatron's files; shown: the families that the language model may be of. Of several,
	 * the text config's model_type names it, and the first is meant without one */
	struct mfs_ckpt_part part;
	const struct mfs_prefix *hf; /* of HF's tensors, from names in these to the family's */
	const char *config;	     /* the key of config.json that has the text config */
	bool whole;		     /* or, where it lacks this, the file is the text config, too */
};

/* Texts and tables live as long as the program. */
struct mfs_family {
	const char *file;	  /* that it was read from, for people */
	const char *name;	  /* for -o arch=: "deepseek-v3" */
	const char *architecture; /* "DeepseekV3ForCausalLM"; NULL: only a base of others */
	const char *model_type;	  /* "deepseek_v3" */
	/* the family that readers take a model for whose config.json has layer_types
	 * (transformers/models/auto/configuration_auto.py); NULL: this one */
	const char *with_layer_types;
	const char *also;	  /* other model types and architectures, "a, b"; NULL: none */
	const char *layer_prefix; /* "model.layers.{i}." */
	const char *mtp_prefix;	  /* of MTP layers from 0; NULL: layer_prefix from num_layers */
	const char *about;	  /* which models these are, for people; NULL: not given */
	/* Megatron-Bridge's and NeMo's classes of this family's models, "Gemma, CodeGemma", without
	 * ModelProvider and what follows it. Such a class adds nothing to its fields, unless the
	 * family requires own-modules. */
	const char *providers;
	const char *proved;	    /* by which peers; NULL: none can check it */
	const char *vllm;	    /* the version of vLLM whose names are known; NULL: none */
	const char *sglang;	    /* likewise of SGLang */
	mfs_features sglang_unless; /* with any of these its class drops or adds tensors */
	/* vLLM's module of a layer that has the scales of an 8-bit cache */
	const char *vllm_cache;
	const char *gguf; /* llama.cpp's architecture of such models; NULL: none is known */
	/* what names of tensors begin with that are no part of the class' model and are left out,
	 * "mtp."; NULL: none */
	const char *ignores;
	const struct mfs_language *language; /* of a vision-language model; NULL: of text alone */
	const char *impossible;		     /* why Megatron cannot express it; it has no tensors */
	const char *defaults;		     /* a JSON object */
	unsigned order;			     /* families are tried in this order, then by name */
	bool built_in;
	bool norms_minus_one; /* HF, too, stores norms as weight - 1 */
	mfs_features required, optional;
	const struct mfs_family_tensor *tensors;
	/* those of the tensors, and of a base's */
	const struct mfs_vllm_name *vllm_names, *sglang_names;
	const struct mfs_fused *fused; /* also of a vision-language family: of its language model */
	const struct mfs_config_row *config; /* a later row of a key replaces an earlier one */
	const struct mfs_config_alias *aliases;
	const struct mfs_family_note *notes;
};

/*
 * All families, ended by NULL. If several fit, the first is taken: those of mfs_families_add(),
 * then the built-in ones in their order. After them come vision-language ones, and those that
 * Megatron cannot express, which no model fits. They are read on the first call. Without memory
 * there are none.
 */
const struct mfs_family *const *mfs_families(void);
const char *mfs_family_names(void); /* "llama, qwen2, ..." */

/*
 * Adds the family of a file. One of its name is replaced. It must be called before a second thread
 * asks for families. The file may be at most MFS_FAMILY_MAX bytes. -EINVAL: it breaks a rule of
 * docs/FAMILIES.md; the message begins with "FILE:LINE: ". Errors of the file: its errno.
 */
#define MFS_FAMILY_MAX (256u << 10)
int mfs_families_add(const char *path, struct mfs_error *err);
/* Of the bytes of all files that were added, in their order; 0: there are none. */
uint64_t mfs_families_stamp(void);

/* True if text is its name, model type or architecture, or one of its other ones. */
bool mfs_family_is_called(const struct mfs_family *f, const char *text);

/* True if a model may be of it: it is no vision-language one, and Megatron can express it. */
static inline bool mfs_family_has_models(const struct mfs_family *f)
{
	return !f->impossible && !f->language;
}

/* True if a list "a, b" has the word. words may be NULL. */
bool mfs_family_list_has(const char *words, const char *text);

/* True if the family names the class among its providers. The kind of class and perhaps a size
 * follow a name: "Llama2ModelProvider7B", "Llama3Config8B". */
bool mfs_family_is_made_by(const struct mfs_family *f, const char *provider);
/* True if a family without own-modules, or a base, names it: the model is all in its fields. */
bool mfs_provider_is_plain(const char *provider);

/* "linear-bias", for MFS_F_LINEAR_BIAS. */
const char *mfs_feature_word(enum mfs_feature feature);
/* "linear biases (add_bias_linear)" */
const char *mfs_feature_text(enum mfs_feature feature);

static inline bool mfs_has_feature(mfs_features set, unsigned feature)
{
	return set >> feature & 1;
}

/* True if HF has a tensor for each expert. */
static inline bool mfs_is_per_expert(const struct mfs_family_tensor *row)
{
	return row->experts && !row->stacked;
}

/* True if a layer, counted from 0, has the row; what is in no layer is of any kind. */
static inline bool mfs_is_of_layer(const struct mfs_family_tensor *row,
				   const struct mfs_megatron_args *a, int64_t layer)
{
	switch (row->kind) {
	case MFS_LAYER_DENSE:
	case MFS_LAYER_MOE:
		return mfs_args_has_mlp(a, layer) &&
		       (row->kind == MFS_LAYER_MOE) == mfs_args_is_moe(a, layer);
	case MFS_LAYER_FULL:
	case MFS_LAYER_LINEAR:
		return mfs_args_has_attention(a, layer) &&
		       (row->kind == MFS_LAYER_LINEAR) == mfs_args_is_linear(a, layer);
	case MFS_LAYER_MAMBA:
		return mfs_args_is_mamba(a, layer);
	case MFS_LAYER_ANY:
		break;
	}
	return true;
}

/* True if a model with these features has a row of these conditions. */
static inline bool mfs_applies(mfs_features when, mfs_features unless, mfs_features features)
{
	return (!when || (when & features)) && !(unless & features);
}

#endif
