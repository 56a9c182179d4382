#include "formats/args/namespace.h"

#include <string.h>

#include "formats/args/field.h"

static void write_int(struct mfs_pickle_writer *w, int64_t value)
{
	if (value == MFS_ABSENT)
		mfs_pickle_none(w);
	else
		mfs_pickle_int(w, value);
}

/* Writes a whole number as an int: Megatron's --rotary-base is one, and is compared by equality. */
static void write_real(struct mfs_pickle_writer *w, double value, bool whole)
{
	const bool fits = value >= -0x1p53 && value <= 0x1p53;

	if (whole && fits && value == (double)(int64_t)value)
		mfs_pickle_int(w, (int64_t)value);
	else
		mfs_pickle_float(w, value);
}

static void write_text(struct mfs_pickle_writer *w, const char *value)
{
	if (value)
		mfs_pickle_str(w, value);
	else
		mfs_pickle_none(w);
}

/* True if the member is neither 0 nor false nor NULL. */
static bool is_set(const struct mfs_args_field *f, const void *at)
{
	switch (f->type) {
	case MFS_ARGS_INT:
		return *(const int64_t *)at != 0;
	case MFS_ARGS_REAL:
		return *(const double *)at != 0;
	case MFS_ARGS_FLAG:
		return *(const bool *)at;
	default:
		return *(const char *const *)at != NULL;
	}
}

static void write_value(struct mfs_pickle_writer *w, const struct mfs_args_field *f, const void *at)
{
	if (f->zero_is_none && !is_set(f, at))
		mfs_pickle_none(w);
	else if (f->type == MFS_ARGS_INT)
		write_int(w, *(const int64_t *)at);
	else if (f->type == MFS_ARGS_REAL)
		write_real(w, *(const double *)at, f->whole);
	else if (f->type == MFS_ARGS_FLAG)
		mfs_pickle_bool(w, *(const bool *)at != f->inverted);
	else
		write_text(w, *(const char *const *)at);
}

/* The rows of a section; of what Megatron has no argument for, those that are set. */
static void write_section(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a,
			  enum mfs_args_section section)
{
	for (const struct mfs_args_field *f = mfs_args_fields; f->member; f++) {
		const void *at = mfs_args_at(a, f);

		if (f->section != section || (section >= MFS_ARGS_IN_CLASS && !is_set(f, at)))
			continue;
		mfs_pickle_name(w, mfs_args_name(f));
		write_value(w, f, at);
		if (!f->also_written)
			continue;
		mfs_pickle_name(w, f->also);
		write_value(w, f, at);
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

static void real(struct mfs_pickle_writer *w, const char *name, double value)
{
	mfs_pickle_name(w, name);
	mfs_pickle_float(w, value);
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
	if (a->window_size == MFS_ABSENT) {
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
	if (!a->linear_layers)
		return;
	text(w, "experimental_attention_variant", "gated_delta_net");
	mfs_pickle_name(w, "linear_attention_freq");
	write_layers(w, a->linear_layers, a->num_layers);
	write_section(w, a, MFS_ARGS_IN_LINEAR);
}

/* The pattern under both of its names: until core 0.16, and since. */
static void write_hybrid(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	if (!a->hybrid_layers)
		return;
	flag(w, "is_hybrid_model", true);
	if (a->mamba_conv_params)
		flag(w, "freeze_all_layers", false);
	text(w, "hybrid_override_pattern", a->hybrid_layers);
	text(w, "hybrid_layer_pattern", a->hybrid_layers);
	write_section(w, a, MFS_ARGS_IN_HYBRID);
}

/* Under the names of Megatron-LM's arguments, and of the config that GPTModel reads. */
static void write_yarn(struct mfs_pickle_writer *w, const struct mfs_megatron_args *a)
{
	if (a->multi_latent_attention || strcmp(a->position_embedding_type, "yarn") != 0)
		return;
	real(w, "yarn_rotary_scaling_factor", a->rotary_scaling_factor);
	number(w, "yarn_original_max_position_embeddings", a->original_max_position_embeddings);
	real(w, "yarn_beta_fast", a->beta_fast);
	real(w, "yarn_beta_slow", a->beta_slow);
	real(w, "yarn_mscale", a->mscale);
	real(w, "yarn_mscale_all_dim", a->mscale_all_dim);
	flag(w, "yarn_correction_range_round_to_int", !a->yarn_unrounded);
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

	number(w, "virtual_pipeline_model_parallel_size", chunks > 1 ? chunks : MFS_ABSENT);
	number(w, "context_parallel_size", 1);
	flag(w, "sequence_parallel", false);
	text(w, "transformer_impl", a->local_spec ? "local" : "transformer_engine");
}

/* The progress of a run that has not begun. */
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
	write_section(w, a, MFS_ARGS_IN_RUN);
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
	write_section(w, a, MFS_ARGS_IN_CLASS);
	write_section(w, a, MFS_ARGS_IN_MODULES);
	write_section(w, a, MFS_ARGS_IN_SCALES);
	write_progress(w);
	mfs_pickle_object_end(w);
}
