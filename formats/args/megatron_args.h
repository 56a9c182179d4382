/*
 * The arguments of the run that wrote a checkpoint, with types. They come from the pickled
 * argparse.Namespace `args` (megatron/training/arguments.py). Only those are read that a reader of
 * weights needs.
 *
 * An argument that is absent gets a default. It is the default of the Megatron releases that did
 * not save the argument, which may differ from the newest release.
 */
#ifndef MFS_ARGS_MEGATRON_ARGS_H
#define MFS_ARGS_MEGATRON_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/torch/pickle.h"

#define MFS_UNSET (-1) /* an integer argument that is None or absent */

/* Weights that a model can have, 16 of a layer and 3 of an expert: 128 layers with 1024 experts are
 * within it. Each is a record, whatever its size, and a few numbers in a file can ask for any. */
#define MFS_MAX_WEIGHTS 400000

/*
 * The factor of Llama 3's rotary scaling. Releases of Megatron up to core 0.19 read
 * --rope-scaling-factor and do not pass it to the model, whose own default this is
 * (gpt_builders.py, training/argument_utils.py: gpt_config_from_args,
 * core/models/gpt/gpt_model.py). Their main branch passes it since NVIDIA/Megatron-LM pull request
 * 6306, and forks did before. Nothing in a checkpoint says which of them trained it. So a model has
 * this factor whatever the arguments say, unless the person who names a reference (-o ref=) says
 * another.
 */
#define MFS_ROPE_SCALING_FACTOR 8.0

/* Maximal update parametrization (core/transformer/transformer_config.py: use_mup): what a model of
 * another width than the one whose rates were found multiplies. Without it all are 1. */
struct mfs_mup {
	bool on;
	double width;		  /* hidden_size / mup_base_hidden_size */
	double embedding, output; /* of what goes in, and of logits */
	double attention;	  /* of scores, in the place of one over the root of kv_channels */
};

struct mfs_megatron_args {
	/* size of the model */
	int64_t num_layers, hidden_size, ffn_hidden_size, num_attention_heads;
	int64_t num_query_groups; /* = heads without group_query_attention */
	int64_t kv_channels, seq_length, max_position_embeddings;
	int64_t vocab_size; /* the true size, MFS_UNSET in most files */
	int64_t padded_vocab_size, make_vocab_size_divisible_by;
	/* kind of layer */
	bool layernorm;		  /* normalization == "LayerNorm", else RMSNorm */
	bool zero_centered_gamma; /* apply_layernorm_1p: weight = stored + 1 */
	double norm_epsilon;
	bool swiglu, squared_relu, openai_gelu, quick_geglu;
	/* of a gated activation: what is added to its linear half, and at what both halves are
	 * clamped; 0: nothing, not at all */
	double glu_linear_offset, activation_func_clamp_value;
	bool geglu; /* GELU by tanh with a gate; Megatron-LM has no such argument */
	/* GELU by erf, as torch computes it. Otherwise it is GELU by tanh: the fused form
	 * (bias_gelu_fusion) or Transformer Engine's. Nothing in Megatron-core reads openai_gelu
	 * and onnx_safe. */
	bool exact_gelu;
	bool before_core; /* a run of Megatron-LM before core, or of its legacy model */
	bool add_bias_linear, add_qkv_bias, qk_layernorm, qk_l2_norm, attention_output_gate;
	bool learnable_softmax; /* softmax_type "learnable": each head has a softmax_offset */
	bool tied;		/* not untie_embeddings_and_output_weights */
	/* q_layernorm and k_layernorm are over all heads at once, as in modules of
	 * Megatron-Bridge's own (olmoe_provider.py, minimax_m2_provider.py). No argument says
	 * so, but the tensors do: mfs_ckpt_group(). */
	bool qk_norm_wide;
	/* What attention and MLP give is normed, and what they take is not, as in modules of
	 * Megatron-Bridge's own (exaone4_provider.py). Told by the tensors, too. */
	bool post_norms;
	double softmax_scale; /* 0: one over the root of kv_channels */
	struct mfs_mup mup;
	/* scale * tanh(x / scale) of attention scores and of logits; 0: without */
	double attn_logit_softcapping, final_logit_softcapping;
	/* positions */
	const char *position_embedding_type; /* "learned_absolute", "rope", "yarn", ... */
	double rotary_base, rotary_percent;
	double rotary_base_local; /* of the layers with a window; 0: the same in all layers */
	bool rotary_interleaved, use_rope_scaling;
	/* with use_rope_scaling (llama3): MFS_ROPE_SCALING_FACTOR, or what the config.json of an HF
	 * directory says */
	double rope_scaling_factor;
	double rope_scaling_ignored; /* a different one in the run's arguments; 0: none */
	double rotary_seq_len_interpolation_factor; /* 0: unset */
	/* yarn: of the GPT form (yarn_*) and of MLA (rope_type, rotary_scaling_factor, ...) */
	const char *rope_type; /* MLA: "rope" or "yarn" */
	double rotary_scaling_factor, mscale, mscale_all_dim, beta_fast, beta_slow;
	int64_t original_max_position_embeddings;
	bool yarn_unrounded; /* GPT form: not yarn_correction_range_round_to_int */
	int64_t window_size; /* left window + 1 as HF counts it; MFS_UNSET: none */
	/* [num_layers], 1 where a layer has it (window_attn_skip_freq); NULL: all have */
	const uint8_t *window_layers;
	/* mixture of experts */
	int64_t num_experts; /* MFS_UNSET: dense */
	int64_t moe_router_topk, moe_ffn_hidden_size, moe_shared_expert_intermediate_size;
	bool moe_shared_expert_gate, moe_router_pre_softmax, moe_router_enable_expert_bias;
	bool moe_grouped_gemm;
	const char *moe_router_score_function; /* "softmax", "sigmoid" */
	double moe_router_topk_scaling_factor; /* 0: unset */
	int64_t moe_router_num_groups, moe_router_group_topk;
	double moe_aux_loss_coeff;
	int64_t first_dense_layers; /* leading zeros of moe_layer_freq */
	const uint8_t *moe_layers;  /* [num_layers], 1 where a layer is MoE; NULL if dense */
	/* moe_layer_freq is a list (even one of ones) or a number above 1. Megatron then numbers
	 * the layers in torch_dist's keys, also those of a dense model (transformer_block.py:
	 * sharded_state_dict). */
	bool moe_layer_freq_listed;
	/* multi-latent attention */
	bool multi_latent_attention;
	int64_t q_lora_rank, kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim;
	/* linear attention: a gated delta net (experimental_attention_variant). [num_layers], 1
	 * where a layer has it in place of the other (linear_attention_freq); NULL: none has */
	const uint8_t *linear_layers;
	int64_t linear_conv_kernel_dim, linear_key_head_dim, linear_value_head_dim;
	int64_t linear_num_key_heads, linear_num_value_heads;
	/* Where each layer is one sublayer (hybrid_layer_pattern, until core 0.16
	 * hybrid_override_pattern): a letter a layer, num_layers of them (hybrid_layers.h). NULL: a
	 * layer is attention and an MLP. */
	const char *hybrid_layers;
	int64_t mamba_state_dim, mamba_head_dim, mamba_num_groups, mamba_num_heads;
	/* a mixer's convolution is no module of its own (since core 0.19): in legacy files its
	 * names are conv1d_weight and conv1d_bias, and it comes first */
	bool mamba_conv_params;
	int64_t mtp_num_layers; /* 0: none */
	/* the name of MTP's inner layer in legacy files is mtp_model_layer (since core 0.17), not
	 * transformer_layer */
	bool mtp_model_layer;
	double init_method_std;
	/* The family of the HF directory that the weights come from. Megatron has no such argument:
	 * our views of HF directories write it, so that the way back gives the same class. NULL:
	 * nothing says it. */
	const char *hf_family;
	/* Its class and model_type, where they are other ones that mean this family
	 * (families/family.h: also). NULL: the family's own. */
	const char *hf_architecture, *hf_model_type;
	/* Rows and columns of the blocks of an HF directory's 8-bit weights (base/fp8.h). 0: it has
	 * none. */
	int64_t hf_fp8_block[2];
	bool hf_mxfp4; /* its experts are 4-bit floats in blocks (base/fp4.h) */
	/* Sentences about what its config.json says and no argument does, ended by NULL. NULL:
	 * there are none. */
	const char *const *hf_remarks;
	/* The class of Megatron-Bridge or NeMo that made the model: "Gemma2ModelProvider9B". Some
	 * make more of it than its fields say (families/family.h: providers). NULL: no such
	 * class. */
	const char *provider;
	/* An argument that changes what the model computes and for which there is no field here,
	 * with its value: "softmax_type (learnable)" (megatron_foreign.h). NULL: none. */
	const char *foreign;
	const char *untrainable; /* the first such argument that the trainer does not know either */
	/* the rows of fc1 are interleaved in blocks of that size in the file; MFS_UNSET or 0: they
	 * are not */
	int64_t moe_mlp_glu_interleave_size, moe_shared_expert_glu_interleave_size;
	/* layout of the files */
	int64_t tensor_model_parallel_size, pipeline_model_parallel_size;
	int64_t virtual_pipeline_model_parallel_size; /* chunks of a stage, 1 without */
	int64_t expert_model_parallel_size, expert_tensor_parallel_size;
	int64_t data_parallel_size, world_size;
	/* layers of the first and of the last pipeline stage; MFS_UNSET: an equal share */
	int64_t first_stage_layers, last_stage_layers;
	/* pipeline_model_parallel_layout or account_for_*_in_pipeline_split places the layers */
	bool other_stages;
	/* the embedding or the loss counts as a layer where layers are divided among stages */
	bool account_for_embedding, account_for_loss;
	bool local_spec; /* transformer_impl == "local", else Transformer Engine's modules */
	bool use_distributed_optimizer;
	bool sgd; /* optimizer == "sgd"; else Adam, or one that is read as Adam is */
	double sgd_momentum;
	const char *params_dtype;	/* torch's name, or NULL */
	const char *tokenizer_type;	/* or NULL */
	const char *tokenizer_model;	/* or NULL: a name or a path on the training cluster */
	const char *nemo_tokenizer;	/* or NULL: a folder in NeMo's context/ */
	bool null_tokenizer_counts_eod; /* NullTokenizer's vocab_size holds the end of documents */
	int64_t iteration;
};

/*
 * Reads the value under 'args' of a state. Strings are put into arena. -ENODATA names an argument
 * that is missing and has no default. -EINVAL names one that has the wrong type or an impossible
 * value.
 */
int mfs_megatron_args_read(const struct mfs_pickle *doc, mfs_value args, struct mfs_arena *arena,
			   struct mfs_megatron_args *ret, struct mfs_error *err);

/*
 * Corrects what was read from the arguments of a run before core, or of the legacy model: there
 * openai_gelu counts, and a run that has no argument bias_gelu_fusion has no fused GELU
 * (megatron/model/transformer.py at v1.0 and v2.0: ParallelMLP).
 */
void mfs_megatron_args_before_core(const struct mfs_pickle *doc, mfs_value args,
				   struct mfs_megatron_args *a);

/*
 * The size of the vocabulary before it was padded, if the run recorded it; else 0. padded: rows
 * that are stored. Only some tokenizers use the argument vocab_size. If padding it does not give
 * the rows that are stored, it was not used, and the result is 0. NullTokenizer adds a row for the
 * end of documents until core 0.17 (core/tokenizers/text/libraries/null_tokenizer.py).
 */
uint64_t mfs_args_true_vocab(const struct mfs_megatron_args *a, uint64_t padded);

/* True if the layer, counted from 0, has experts. An MTP layer is of the kind of the last layer
 * (gpt_layer_specs.py: get_gpt_mtp_block_spec). */
static inline bool mfs_args_is_moe(const struct mfs_megatron_args *a, int64_t layer)
{
	return a->moe_layers && a->moe_layers[layer];
}

/* True if experimental_attention_variant says gated delta net, under its first name or its
 * second (core 0.20). NULL: no such argument. */
bool mfs_args_is_delta_net(const char *variant);

/* True if the layer, counted from 0, has linear attention. */
static inline bool mfs_args_is_linear(const struct mfs_megatron_args *a, int64_t layer)
{
	return a->linear_layers && a->linear_layers[layer];
}

/* What a layer of a hybrid model is. Others are attention and an MLP each. */
enum mfs_hybrid {
	MFS_HYBRID_MAMBA = 'M',
	MFS_HYBRID_ATTENTION = '*',
	MFS_HYBRID_MLP = '-',
	MFS_HYBRID_MOE = 'E',
};

/* True if the layer, counted from 0, is a Mamba-2 mixer. */
static inline bool mfs_args_is_mamba(const struct mfs_megatron_args *a, int64_t layer)
{
	return a->hybrid_layers && a->hybrid_layers[layer] == MFS_HYBRID_MAMBA;
}

/* True if it has attention of any kind. */
static inline bool mfs_args_has_attention(const struct mfs_megatron_args *a, int64_t layer)
{
	return !a->hybrid_layers || a->hybrid_layers[layer] == MFS_HYBRID_ATTENTION;
}

/* True if it has an MLP, or experts. */
static inline bool mfs_args_has_mlp(const struct mfs_megatron_args *a, int64_t layer)
{
	return !a->hybrid_layers || a->hybrid_layers[layer] == MFS_HYBRID_MLP ||
	       a->hybrid_layers[layer] == MFS_HYBRID_MOE;
}

/* True if some layers have experts and others have none. */
static inline bool mfs_args_layers_differ(const struct mfs_megatron_args *a)
{
	bool dense = false;

	for (int64_t i = 0; a->moe_layers && i < a->num_layers; i++)
		dense |= !a->moe_layers[i];
	return dense;
}

/* True if linear_fc1 has a gate half and an up half. */
static inline bool mfs_args_gated(const struct mfs_megatron_args *a)
{
	return a->swiglu || a->quick_geglu || a->geglu;
}

/* The number of weights that MFS_MAX_WEIGHTS is about. Layers and experts are below 2^31. */
int64_t mfs_megatron_args_weights(const struct mfs_megatron_args *a);

#endif
