#include "formats/args/namespace.h"

#include <stddef.h>
#include <string.h>

enum field_kind {
	FIELD_INT,    /* int64_t; MFS_UNSET is None */
	FIELD_COUNT,  /* the same; 0 is None too */
	FIELD_REAL,   /* double */
	FIELD_RATIO,  /* the same; 0 is None */
	FIELD_TEXT,   /* const char *, NULL is None */
	FIELD_FLAG,   /* bool */
	FIELD_UNLESS, /* bool, inverted */
};

struct field {
	const char *name;
	enum field_kind kind;
	size_t offset;
};

#define FIELD(kind_, name_, member_)                                                               \
	{                                                                                          \
		name_, FIELD_##kind_, offsetof(struct mfs_megatron_args, member_)                  \
	}
#define NAMED(kind_, member_) FIELD(kind_, #member_, member_)

static const struct field fields[] = {
	NAMED(INT, num_layers),
	NAMED(INT, hidden_size),
	NAMED(INT, ffn_hidden_size),
	NAMED(INT, num_attention_heads),
	NAMED(INT, num_query_groups),
	NAMED(INT, kv_channels),
	NAMED(INT, seq_length),
	NAMED(INT, max_position_embeddings),
	NAMED(INT, vocab_size),
	NAMED(INT, padded_vocab_size),
	NAMED(INT, make_vocab_size_divisible_by),
	FIELD(FLAG, "apply_layernorm_1p", zero_centered_gamma),
	FIELD(FLAG, "layernorm_zero_centered_gamma", zero_centered_gamma),
	NAMED(REAL, norm_epsilon),
	FIELD(REAL, "layernorm_epsilon", norm_epsilon),
	NAMED(FLAG, swiglu),
	NAMED(FLAG, squared_relu),
	NAMED(FLAG, openai_gelu),
	NAMED(FLAG, quick_geglu),
	NAMED(REAL, glu_linear_offset),
	NAMED(RATIO, activation_func_clamp_value),
	FIELD(UNLESS, "bias_gelu_fusion", exact_gelu),
	NAMED(FLAG, add_bias_linear),
	NAMED(FLAG, add_qkv_bias),
	NAMED(FLAG, qk_layernorm),
	NAMED(FLAG, qk_l2_norm),
	NAMED(FLAG, attention_output_gate),
	FIELD(UNLESS, "untie_embeddings_and_output_weights", tied),
	NAMED(TEXT, position_embedding_type),
	NAMED(REAL, rotary_base),
	NAMED(REAL, rotary_percent),
	NAMED(FLAG, rotary_interleaved),
	NAMED(FLAG, use_rope_scaling),
	NAMED(REAL, rope_scaling_factor),
	NAMED(RATIO, rotary_seq_len_interpolation_factor),
	NAMED(TEXT, rope_type),
	NAMED(REAL, rotary_scaling_factor),
	NAMED(REAL, mscale),
	NAMED(REAL, mscale_all_dim),
	NAMED(REAL, beta_fast),
	NAMED(REAL, beta_slow),
	NAMED(INT, original_max_position_embeddings),
	NAMED(INT, num_experts),
	NAMED(INT, moe_router_topk),
	NAMED(INT, moe_ffn_hidden_size),
	NAMED(INT, moe_shared_expert_intermediate_size),
	NAMED(FLAG, moe_shared_expert_gate),
	NAMED(FLAG, moe_router_pre_softmax),
	NAMED(FLAG, moe_router_enable_expert_bias),
	NAMED(FLAG, moe_grouped_gemm),
	NAMED(TEXT, moe_router_score_function),
	NAMED(RATIO, moe_router_topk_scaling_factor),
	NAMED(INT, moe_router_num_groups),
	NAMED(INT, moe_router_group_topk),
	NAMED(REAL, moe_aux_loss_coeff),
	NAMED(FLAG, multi_latent_attention),
	NAMED(INT, q_lora_rank),
	NAMED(INT, kv_lora_rank),
	NAMED(INT, qk_head_dim),
	NAMED(INT, qk_pos_emb_head_dim),
	NAMED(INT, v_head_dim),
	NAMED(COUNT, mtp_num_layers),
	NAMED(REAL, init_method_std),
	NAMED(INT, tensor_model_parallel_size),
	NAMED(INT, pipeline_model_parallel_size),
	NAMED(INT, expert_model_parallel_size),
	NAMED(INT, expert_tensor_parallel_size),
	NAMED(INT, data_parallel_size),
	NAMED(INT, world_size),
	FIELD(INT, "decoder_first_pipeline_num_layers", first_stage_layers),
	FIELD(INT, "decoder_last_pipeline_num_layers", last_stage_layers),
	NAMED(FLAG, use_distributed_optimizer),
	NAMED(TEXT, hf_family),
	NAMED(TEXT, hf_architecture),
	NAMED(TEXT, hf_model_type),
	NAMED(TEXT, tokenizer_type),
	NAMED(TEXT, tokenizer_model),
	NAMED(INT, iteration),
};

static void write_int(struct mfs_pickle_writer *w, int64_t value)
{
	if (value == MFS_UNSET)
		mfs_pickle_none(w);
	else
		mfs_pickle_int(w, value);
}

/* Writes a whole number as an int: Megatron's --rotary-base is one, and is compared by equality. */
static void write_real(struct mfs_pickle_writer *w, const char *name, double value)
{
	const bool fits = value >= -0x1p53 && value <= 0x1p53;

	if (!strcmp(name, "rotary_base") && fits && value == (double)(int64_t)value)
		mfs_pickle_int(w, (int64_t)value);
	else
		mfs_pickle_float(w, value);
}

static void write_field(struct mfs_pickle_writer *w, const struct field *f, const void *at)
{
	const char *text;

	mfs_pickle_name(w, f->name);
	switch (f->kind) {
	case FIELD_COUNT:
		write_int(w, *(const int64_t *)at ? *(const int64_t *)at : MFS_UNSET);
		break;
	case FIELD_INT:
		write_int(w, *(const int64_t *)at);
		break;
	case FIELD_RATIO:
		if (*(const double *)at == 0)
			mfs_pickle_none(w);
		else
			mfs_pickle_float(w, *(const double *)at);
		break;
	case FIELD_REAL:
		write_real(w, f->name, *(const double *)at);
		break;
	case FIELD_TEXT:
		text = *(const char *const *)at;
		if (text)
			mfs_pickle_str(w, text);
		else
			mfs_pickle_none(w);
		break;
	case FIELD_FLAG:
		mfs_pickle_bool(w, *(const bool *)at);
		break;
	case FIELD_UNLESS:
		mfs_pickle_bool(w, !*(const bool *)at);
		break;
	}
}

static bool is_set(const struct field *f, const void *at)
{
	switch (f->kind) {
	case FIELD_TEXT:
		return *(const char *const *)at != NULL;
	case FIELD_RATIO:
		return *(const double *)at != 0;
	default:
		return *(const bool *)at;
	}
}

static void flag(struct mfs_pickle_writer *w, const char *name, bool value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_bool(w, value);
}

static void text(struct mfs_pickle_writer *w, const char *name, const char *value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_str(w, value);
}

static void number(struct mfs_pickle_writer *w, const char *name, int64_t value)
{
	mfs_pickle_name(w, name);
	write_int(w, value);
}

static void write_layers(struct mfs_pickle_writer *w, const uint8_t *has, int64_t layers)
{
	mfs_pickle_list_begin(w);
	for (int64_t i = 0; i < layers; i++)
		mfs_pickle_int(w, has[i]);
	mfs_pickle_list_end(w);
}

/* Megatron tests whether it is a list to choose the keys of torch_dist (transformer_block.py:
 * sharded_state_dict). So a list is written only if layers differ. */
static void write_layer_freq(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	mfs_pickle_name(w, "moe_layer_freq");
	if (!mfs_args_layers_differ(a) || a->hybrid_layers) {
		mfs_pickle_int(w, 1);
		return;
	}
	write_layers(w, a->moe_layers, a->num_layers);
}

static void write_window(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	mfs_pickle_name(w, "window_size");
	if (a->window_size == MFS_UNSET) {
		mfs_pickle_none(w);
		return;
	}
	mfs_pickle_int(w, a->window_size - 1); /* Megatron's does not count the token itself */
	mfs_pickle_int(w, 0);
	mfs_pickle_op(w, MFS_OP_TUPLE2);
	if (!a->window_layers)
		return;
	mfs_pickle_name(w, "window_attn_skip_freq");
	write_layers(w, a->window_layers, a->num_layers);
}

/* Megatron tests what linear_attention_freq is, too: a number above 1 or a list. */
static void write_linear_attention(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	static const struct field sizes[] = {
		NAMED(INT, linear_conv_kernel_dim), NAMED(INT, linear_key_head_dim),
		NAMED(INT, linear_value_head_dim),  NAMED(INT, linear_num_key_heads),
		NAMED(INT, linear_num_value_heads),
	};

	if (!a->linear_layers)
		return;
	text(w, "experimental_attention_variant", "gated_delta_net");
	mfs_pickle_name(w, "linear_attention_freq");
	write_layers(w, a->linear_layers, a->num_layers);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		write_field(w, &sizes[i], (const char *)a + sizes[i].offset);
}

/* The pattern under both of its names: until core 0.16, and since. */
static void write_hybrid(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	static const struct field sizes[] = {
		NAMED(INT, mamba_state_dim),
		NAMED(INT, mamba_head_dim),
		NAMED(INT, mamba_num_groups),
		NAMED(INT, mamba_num_heads),
	};

	if (!a->hybrid_layers)
		return;
	flag(w, "is_hybrid_model", true);
	if (a->mamba_conv_params)
		flag(w, "freeze_all_layers", false);
	text(w, "hybrid_override_pattern", a->hybrid_layers);
	text(w, "hybrid_layer_pattern", a->hybrid_layers);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		write_field(w, &sizes[i], (const char *)a + sizes[i].offset);
}

/* Under the names of Megatron-LM's arguments, and of the config that GPTModel reads. */
static void write_yarn(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	static const struct field yarn[] = {
		FIELD(REAL, "yarn_rotary_scaling_factor", rotary_scaling_factor),
		FIELD(INT, "yarn_original_max_position_embeddings",
		      original_max_position_embeddings),
		FIELD(REAL, "yarn_beta_fast", beta_fast),
		FIELD(REAL, "yarn_beta_slow", beta_slow),
		FIELD(REAL, "yarn_mscale", mscale),
		FIELD(REAL, "yarn_mscale_all_dim", mscale_all_dim),
		FIELD(UNLESS, "yarn_correction_range_round_to_int", yarn_unrounded),
	};

	if (a->multi_latent_attention || strcmp(a->position_embedding_type, "yarn") != 0)
		return;
	for (size_t i = 0; i < sizeof(yarn) / sizeof(yarn[0]); i++)
		write_field(w, &yarn[i], (const char *)a + yarn[i].offset);
}

static void write_dtype(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	const enum mfs_dtype dtype =
		a->params_dtype ? mfs_dtype_from_torch(a->params_dtype) : MFS_DTYPE_NONE;

	flag(w, "bf16", dtype == MFS_BF16);
	flag(w, "fp16", dtype == MFS_F16);
	mfs_pickle_name(w, "params_dtype");
	mfs_pickle_dtype(w, dtype == MFS_DTYPE_NONE ? MFS_F32 : dtype);
}

static void write_layout(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	const int64_t chunks = a->virtual_pipeline_model_parallel_size;

	number(w, "virtual_pipeline_model_parallel_size", chunks > 1 ? chunks : MFS_UNSET);
	number(w, "context_parallel_size", 1);
	flag(w, "sequence_parallel", false);
	text(w, "transformer_impl", a->local_spec ? "local" : "transformer_engine");
}

/* The progress of a run that has not begun. */
/* What Megatron has no argument for: as Megatron-Bridge's fields are called, where there
 * is one. Others never see them. */
static void write_own(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	static const struct field own[] = {
		FIELD(TEXT, "model_provider", provider),
		NAMED(FLAG, geglu),
		NAMED(FLAG, qk_norm_wide),
		NAMED(FLAG, post_norms),
		NAMED(RATIO, rotary_base_local),
		NAMED(RATIO, softmax_scale),
		NAMED(RATIO, attn_logit_softcapping),
		NAMED(RATIO, final_logit_softcapping),
	};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (is_set(&own[i], (const char *)a + own[i].offset))
			write_field(w, &own[i], (const char *)a + own[i].offset);
}

static void write_progress(struct mfs_pickle_writer *w)
{
	number(w, "consumed_train_samples", 0);
	number(w, "consumed_valid_samples", 0);
	number(w, "skipped_train_samples", 0);
	flag(w, "no_save_optim", true);
	flag(w, "no_save_rng", true);
}

void mfs_namespace_write(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	mfs_pickle_object_begin(w, "argparse", "Namespace");
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		write_field(w, &fields[i], (const char *)a + fields[i].offset);
	flag(w, "group_query_attention", a->num_query_groups != a->num_attention_heads);
	flag(w, "add_position_embedding", true);
	flag(w, "use_rotary_position_embeddings", false);
	text(w, "softmax_type", a->learnable_softmax ? "learnable" : "vanilla");
	text(w, "normalization", a->layernorm ? "LayerNorm" : "RMSNorm");
	write_layer_freq(w, a);
	write_window(w, a);
	write_linear_attention(w, a);
	write_hybrid(w, a);
	write_yarn(w, a);
	write_dtype(w, a);
	write_layout(w, a);
	write_own(w, a);
	write_progress(w);
	mfs_pickle_object_end(w);
}
