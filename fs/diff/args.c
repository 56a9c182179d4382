/* Compares the arguments of two runs that define the model, as far as they have an effect in it. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/model/families/family.h"
#include "fs/diff/diff.h"

#define NAMED(kind_, scope_, member_, name_)                                                       \
	{                                                                                          \
		.member = #member_, .name = name_, .kind = MFS_DIFF_##kind_,                       \
		.scope = MFS_DIFF_##scope_, .offset = offsetof(struct mfs_megatron_args, member_)  \
	}
#define FIELD(kind_, scope_, member_) NAMED(kind_, scope_, member_, #member_)
#define APART(member_, why_)                                                                       \
	{                                                                                          \
		.member = #member_, .scope = MFS_DIFF_APART, .why = why_                           \
	}

/* Every member of the arguments, in their order: what is not compared here says why. */
static const struct mfs_diff_field fields[] = {
	FIELD(INT, MODEL, num_layers),
	FIELD(INT, MODEL, hidden_size),
	FIELD(INT, MODEL, ffn_hidden_size),
	FIELD(INT, MODEL, num_attention_heads),
	FIELD(INT, MODEL, num_query_groups),
	FIELD(INT, MODEL, kv_channels),
	FIELD(INT, TRAINING, seq_length),
	FIELD(INT, MODEL, max_position_embeddings),
	APART(vocab_size, "the tensors have it, and rows of padding are no difference"),
	APART(padded_vocab_size, "the tensors have it"),
	APART(make_vocab_size_divisible_by, "the tensors' padding follows from it"),
	FIELD(FLAG, MODEL, layernorm),
	APART(zero_centered_gamma, "norms are compared as they are applied (pairs.c)"),
	FIELD(REAL, MODEL, norm_epsilon),
	FIELD(FLAG, MODEL, swiglu),
	FIELD(FLAG, MODEL, squared_relu),
	APART(openai_gelu, "nothing reads it; of a run before core exact_gelu says what it means"),
	FIELD(FLAG, MODEL, quick_geglu),
	FIELD(REAL, MODEL, glu_linear_offset),
	FIELD(REAL, MODEL, activation_func_clamp_value),
	FIELD(FLAG, MODEL, geglu),
	FIELD(FLAG, MODEL, exact_gelu),
	APART(before_core, "the other arguments say what it means"),
	FIELD(FLAG, MODEL, add_bias_linear),
	FIELD(FLAG, MODEL, add_qkv_bias),
	FIELD(FLAG, MODEL, qk_layernorm),
	FIELD(FLAG, MODEL, qk_l2_norm),
	FIELD(FLAG, MODEL, attention_output_gate),
	FIELD(FLAG, MODEL, learnable_softmax),
	FIELD(FLAG, MODEL, tied),
	FIELD(FLAG, MODEL, qk_norm_wide),
	FIELD(FLAG, MODEL, post_norms),
	FIELD(REAL, MODEL, softmax_scale),
	NAMED(FLAG, MODEL, mup.on, "use_mup"),
	NAMED(REAL, MODEL, mup.width, "mup width"),
	NAMED(REAL, MODEL, mup.embedding, "mup_embedding_mult"),
	NAMED(REAL, MODEL, mup.output, "mup_output_mult"),
	NAMED(REAL, MODEL, mup.attention, "mup attention scale"),
	FIELD(REAL, MODEL, attn_logit_softcapping),
	FIELD(REAL, MODEL, final_logit_softcapping),
	FIELD(TEXT, MODEL, position_embedding_type),
	FIELD(REAL, MODEL, rotary_base),
	FIELD(REAL, MODEL, rotary_percent),
	FIELD(REAL, MODEL, rotary_base_local),
	FIELD(FLAG, MODEL, rotary_interleaved),
	FIELD(FLAG, MODEL, use_rope_scaling),
	FIELD(REAL, MODEL, rope_scaling_factor),
	APART(rope_scaling_ignored, "no release of Megatron gives it to the model"),
	FIELD(REAL, MODEL, rotary_seq_len_interpolation_factor),
	FIELD(TEXT, MODEL, rope_type),
	FIELD(REAL, MODEL, rotary_scaling_factor),
	FIELD(REAL, MODEL, mscale),
	FIELD(REAL, MODEL, mscale_all_dim),
	FIELD(REAL, MODEL, beta_fast),
	FIELD(REAL, MODEL, beta_slow),
	FIELD(INT, MODEL, original_max_position_embeddings),
	FIELD(FLAG, MODEL, yarn_unrounded),
	FIELD(INT, MODEL, window_size),
	APART(window_layers, "compared by layers"),
	FIELD(INT, MODEL, num_experts),
	FIELD(INT, MODEL, moe_router_topk),
	FIELD(INT, MODEL, moe_ffn_hidden_size),
	FIELD(INT, MODEL, moe_shared_expert_intermediate_size),
	FIELD(FLAG, MODEL, moe_shared_expert_gate),
	FIELD(FLAG, MODEL, moe_router_pre_softmax),
	FIELD(FLAG, MODEL, moe_router_enable_expert_bias),
	APART(moe_grouped_gemm, "the same products, computed at once"),
	FIELD(TEXT, MODEL, moe_router_score_function),
	FIELD(REAL, MODEL, moe_router_topk_scaling_factor),
	FIELD(INT, MODEL, moe_router_num_groups),
	FIELD(INT, MODEL, moe_router_group_topk),
	FIELD(REAL, TRAINING, moe_aux_loss_coeff),
	APART(first_dense_layers, "it follows from moe_layers"),
	APART(moe_layers, "compared by layers"),
	APART(moe_layer_freq_listed, "it decides names in files"),
	FIELD(FLAG, MODEL, multi_latent_attention),
	FIELD(INT, MODEL, q_lora_rank),
	FIELD(INT, MODEL, kv_lora_rank),
	FIELD(INT, MODEL, qk_head_dim),
	FIELD(INT, MODEL, qk_pos_emb_head_dim),
	FIELD(INT, MODEL, v_head_dim),
	APART(linear_layers, "compared by layers"),
	FIELD(INT, MODEL, linear_conv_kernel_dim),
	FIELD(INT, MODEL, linear_key_head_dim),
	FIELD(INT, MODEL, linear_value_head_dim),
	FIELD(INT, MODEL, linear_num_key_heads),
	FIELD(INT, MODEL, linear_num_value_heads),
	NAMED(TEXT, MODEL, hybrid_layers, "hybrid_layer_pattern"),
	FIELD(INT, MODEL, mamba_state_dim),
	FIELD(INT, MODEL, mamba_head_dim),
	FIELD(INT, MODEL, mamba_num_groups),
	FIELD(INT, MODEL, mamba_num_heads),
	APART(mamba_conv_params, "it decides names in files"),
	FIELD(INT, MODEL, mtp_num_layers),
	APART(mtp_model_layer, "it decides names in files"),
	FIELD(REAL, TRAINING, init_method_std),
	APART(hf_family, "the other arguments say what the model computes"),
	APART(hf_architecture, "another name of one class"),
	APART(hf_model_type, "another name of one class"),
	APART(hf_fp8_block, "how weights are stored; they are compared"),
	APART(hf_mxfp4, "how weights are stored; they are compared"),
	APART(hf_remarks, "the other arguments say what the model computes"),
	NAMED(TEXT, MODEL, provider, "model_provider"),
	NAMED(TEXT, MODEL, foreign, "other arguments"),
	APART(untrainable, "foreign has it"),
	FIELD(INT, MODEL, moe_mlp_glu_interleave_size),
	FIELD(INT, MODEL, moe_shared_expert_glu_interleave_size),
	APART(tensor_model_parallel_size, "the layout"),
	APART(pipeline_model_parallel_size, "the layout"),
	APART(virtual_pipeline_model_parallel_size, "the layout"),
	APART(expert_model_parallel_size, "the layout"),
	APART(expert_tensor_parallel_size, "the layout"),
	APART(data_parallel_size, "the layout"),
	APART(world_size, "the layout"),
	APART(first_stage_layers, "the layout"),
	APART(last_stage_layers, "the layout"),
	APART(other_stages, "the layout"),
	APART(account_for_embedding, "the layout"),
	APART(account_for_loss, "the layout"),
	APART(local_spec, "the same modules under other names"),
	APART(use_distributed_optimizer, "how states are divided among files"),
	FIELD(FLAG, TRAINING, sgd),
	FIELD(REAL, TRAINING, sgd_momentum),
	APART(params_dtype, "the tensors have it"),
	APART(tokenizer_type, "no part of the model"),
	APART(tokenizer_model, "no part of the model"),
	APART(nemo_tokenizer, "no part of the model"),
	APART(null_tokenizer_counts_eod, "no part of the model"),
	APART(iteration, "compared as progress, from the states"),
};

#define FIELDS (sizeof(fields) / sizeof(fields[0]))

const struct mfs_diff_field *mfs_diff_fields(size_t *ret_count)
{
	*ret_count = FIELDS;
	return fields;
}

/* ---- arguments without an effect get one value ---- */

static void drop_experts(struct mfs_megatron_args *a)
{
	a->num_experts = a->moe_router_topk = a->moe_ffn_hidden_size = MFS_UNSET;
	a->moe_shared_expert_intermediate_size = MFS_UNSET;
	a->moe_router_num_groups = a->moe_router_group_topk = MFS_UNSET;
	a->moe_shared_expert_gate = a->moe_router_pre_softmax = false;
	a->moe_router_enable_expert_bias = false;
	a->moe_router_score_function = NULL;
	a->moe_router_topk_scaling_factor = a->moe_aux_loss_coeff = 0;
	a->moe_mlp_glu_interleave_size = a->moe_shared_expert_glu_interleave_size = MFS_UNSET;
}

/* As in formats/model/features.c: groups count only if group_topk is set, a scaling factor of 1 is
 * none, and pre_softmax has an effect only for softmax scores. */
static void settle_experts(struct mfs_megatron_args *a)
{
	if (!a->moe_layers) {
		drop_experts(a);
		return;
	}
	if (!mfs_args_layers_differ(a))
		a->ffn_hidden_size = MFS_UNSET;
	if (a->moe_router_group_topk == MFS_UNSET || a->moe_router_num_groups <= 1)
		a->moe_router_num_groups = a->moe_router_group_topk = MFS_UNSET;
	if (a->moe_router_topk_scaling_factor == 0)
		a->moe_router_topk_scaling_factor = 1;
	if (!mfs_str_is(a->moe_router_score_function, "softmax"))
		a->moe_router_pre_softmax = false;
	if (a->moe_mlp_glu_interleave_size == 0)
		a->moe_mlp_glu_interleave_size = MFS_UNSET;
	if (a->moe_shared_expert_glu_interleave_size == 0 ||
	    a->moe_shared_expert_intermediate_size == MFS_UNSET)
		a->moe_shared_expert_glu_interleave_size = MFS_UNSET;
}

/* One over the root of the head size, where nothing says another. */
static void settle_scale(struct mfs_megatron_args *a)
{
	const double usual = a->kv_channels > 0 ? 1 / sqrt((double)a->kv_channels) : 0;

	if (fabs(a->softmax_scale - usual) <= 1e-9 * usual)
		a->softmax_scale = 0;
}

static void settle_mla(struct mfs_megatron_args *a)
{
	if (a->multi_latent_attention) {
		a->num_query_groups = a->kv_channels = MFS_UNSET;
		a->softmax_scale = 0; /* it has its own */
		/* Both of its low-rank norms come with it. */
		a->qk_layernorm = true;
	} else {
		settle_scale(a);
		a->q_lora_rank = a->kv_lora_rank = MFS_UNSET;
		a->qk_head_dim = a->qk_pos_emb_head_dim = a->v_head_dim = MFS_UNSET;
		a->rope_type = NULL;
	}
}

/* MLA says it by rope_type, other attention by the positions' type. Without YaRN the scale of MLA's
 * softmax still has a part of it (multi_latent_attention.py). */
static void settle_yarn(struct mfs_megatron_args *a)
{
	const bool mla = a->multi_latent_attention;

	if (mfs_str_is(mla ? a->rope_type : a->position_embedding_type, "yarn"))
		return;
	a->mscale = a->beta_fast = a->beta_slow = 0;
	a->original_max_position_embeddings = MFS_UNSET;
	a->yarn_unrounded = false;
	if (!mla || a->rotary_scaling_factor <= 1 || a->mscale_all_dim == 0)
		a->rotary_scaling_factor = a->mscale_all_dim = 0;
}

static void settle_linear_attention(struct mfs_megatron_args *a)
{
	if (a->linear_layers)
		return;
	a->linear_conv_kernel_dim = MFS_UNSET;
	a->linear_key_head_dim = a->linear_value_head_dim = MFS_UNSET;
	a->linear_num_key_heads = a->linear_num_value_heads = MFS_UNSET;
}

static void settle_mamba(struct mfs_megatron_args *a)
{
	if (a->hybrid_layers && strchr(a->hybrid_layers, MFS_HYBRID_MAMBA))
		return;
	a->mamba_state_dim = a->mamba_head_dim = MFS_UNSET;
	a->mamba_num_groups = a->mamba_num_heads = MFS_UNSET;
}

static void settle_positions(struct mfs_megatron_args *a)
{
	const double linear = a->rotary_seq_len_interpolation_factor;

	if (linear == 0 || a->multi_latent_attention)
		a->rotary_seq_len_interpolation_factor = 1;
	if (a->multi_latent_attention)
		a->use_rope_scaling = false;
	if (!a->use_rope_scaling)
		a->rope_scaling_factor = 0;
	if (!mfs_str_is(a->position_embedding_type, "learned_absolute") ||
	    a->multi_latent_attention)
		return;
	a->rotary_base = a->rotary_percent = a->rope_scaling_factor = 0;
	a->rotary_seq_len_interpolation_factor = 0;
	a->rotary_interleaved = a->use_rope_scaling = false;
}

/* The class matters where its modules are not those that the arguments say; then it is named by the
 * family whose models it makes. */
static void settle_provider(struct mfs_megatron_args *a)
{
	if (!a->provider || mfs_provider_is_plain(a->provider)) {
		a->provider = NULL;
		return;
	}
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (mfs_family_is_made_by(*f, a->provider)) {
			a->provider = (*f)->name;
			return;
		}
}

static struct mfs_megatron_args settled(const struct mfs_megatron_args *args)
{
	struct mfs_megatron_args a = *args;

	if (mfs_args_gated(&a) || a.squared_relu)
		a.exact_gelu = false;
	a.add_qkv_bias = a.add_qkv_bias || a.add_bias_linear;
	if (!a.mup.on)
		a.mup = (struct mfs_mup){0};
	settle_experts(&a);
	settle_mla(&a);
	settle_yarn(&a);
	settle_provider(&a);
	settle_linear_attention(&a);
	settle_mamba(&a);
	settle_positions(&a);
	return a;
}

/* ---- comparing ---- */

static bool same(enum mfs_diff_kind kind, const void *a, const void *b)
{
	const char *x, *y;

	switch (kind) {
	case MFS_DIFF_INT:
		return *(const int64_t *)a == *(const int64_t *)b;
	case MFS_DIFF_REAL:
		return *(const double *)a == *(const double *)b;
	case MFS_DIFF_FLAG:
		return *(const bool *)a == *(const bool *)b;
	case MFS_DIFF_TEXT:
		break;
	}
	x = *(const char *const *)a;
	y = *(const char *const *)b;
	return x == y || (x && y && !strcmp(x, y));
}

static const char *in_words(struct mfs_diff *d, enum mfs_diff_kind kind, const void *at)
{
	int64_t n;

	switch (kind) {
	case MFS_DIFF_INT:
		n = *(const int64_t *)at;
		return n == MFS_UNSET ? "none" : mfs_arena_printf(&d->arena, "%lld", (long long)n);
	case MFS_DIFF_REAL:
		return mfs_arena_printf(&d->arena, "%.15g", *(const double *)at);
	case MFS_DIFF_FLAG:
		return *(const bool *)at ? "true" : "false";
	case MFS_DIFF_TEXT:
		break;
	}
	return *(const char *const *)at ? *(const char *const *)at : "none";
}

static int add(struct mfs_diff *d, const char *name, const char *a, const char *b,
	       struct mfs_error *err)
{
	if (!a || !b)
		return mfs_fail_nomem(err);
	d->arguments[d->argument_count++] = (struct mfs_diff_argument){name, a, b};
	return 0;
}

/* Those of the layers that have something, as "1-3, 5". */
static const char *layers_in_words(struct mfs_diff *d, const uint8_t *has, int64_t layers)
{
	char text[200] = "";
	size_t used = 0;

	for (int64_t i = 0, end; i < layers; i = end) {
		for (end = i; end < layers && has[end];)
			end++;
		if (end > i && used < sizeof(text))
			used += (size_t)snprintf(text + used, sizeof(text) - used,
						 end > i + 1 ? "%s%lld-%lld" : "%s%lld",
						 used ? ", " : "", (long long)i,
						 (long long)end - 1);
		end += end == i;
	}
	return used ? mfs_arena_printf(&d->arena, "layers %s", text) : "none";
}

/* If one of them is NULL, other arguments show the difference. */
static int add_layers(struct mfs_diff *d, const char *name, const uint8_t *a, const uint8_t *b,
		      int64_t layers, struct mfs_error *err)
{
	if (!a || !b || !memcmp(a, b, (size_t)layers))
		return 0;
	return add(d, name, layers_in_words(d, a, layers), layers_in_words(d, b, layers), err);
}

/* NULL: no layer has a window. */
static const uint8_t *window_layers(struct mfs_diff *d, const struct mfs_megatron_args *a)
{
	uint8_t *all;

	if (a->window_layers || a->window_size == MFS_UNSET)
		return a->window_layers;
	all = mfs_arena_alloc(&d->arena, (size_t)a->num_layers);
	if (all)
		memset(all, 1, (size_t)a->num_layers);
	return all;
}

/* If the numbers of layers differ, they show the difference. */
static int add_layer_patterns(struct mfs_diff *d, const struct mfs_megatron_args *a,
			      const struct mfs_megatron_args *b, struct mfs_error *err)
{
	const int64_t layers = a->num_layers;
	int rc = 0;

	if (layers != b->num_layers)
		return 0;
	if (!a->hybrid_layers) /* the pattern says where experts are */
		rc = add_layers(d, "moe_layer_freq", a->moe_layers, b->moe_layers, layers, err);
	if (!rc)
		rc = add_layers(d, "linear_attention_freq", a->linear_layers, b->linear_layers,
				layers, err);
	return rc ? rc
		  : add_layers(d, "window_attn_skip_freq", window_layers(d, a), window_layers(d, b),
			       layers, err);
}

static int add_progress(struct mfs_diff *d, struct mfs_error *err)
{
	const struct mfs_diff_side *a = &d->sides[0], *b = &d->sides[1];
	int rc = 0;

	if (!d->optimizer)
		return 0;
	if (a->number >= 0 && b->number >= 0 && a->number != b->number)
		rc = add(d, "iteration", mfs_arena_printf(&d->arena, "%lld", (long long)a->number),
			 mfs_arena_printf(&d->arena, "%lld", (long long)b->number), err);
	if (!rc && a->step >= 0 && b->step >= 0 && a->step != b->step)
		rc = add(d, "step", mfs_arena_printf(&d->arena, "%.15g", a->step),
			 mfs_arena_printf(&d->arena, "%.15g", b->step), err);
	return rc;
}

#define OTHERS 5 /* moe_layer_freq, linear_attention_freq, window_attn_skip_freq, iteration, step */

int mfs_diff_arguments(struct mfs_diff *d, struct mfs_error *err)
{
	const struct mfs_megatron_args a = settled(mfs_ckpt_args(d->sides[0].ckpt));
	const struct mfs_megatron_args b = settled(mfs_ckpt_args(d->sides[1].ckpt));
	int rc = 0;

	d->arguments = mfs_arena_array(&d->arena, FIELDS + OTHERS, sizeof(*d->arguments));
	if (!d->arguments)
		return mfs_fail_nomem(err);
	for (size_t i = 0; i < FIELDS && !rc; i++) {
		const void *x = (const char *)&a + fields[i].offset;
		const void *y = (const char *)&b + fields[i].offset;

		if (fields[i].scope == MFS_DIFF_APART ||
		    (fields[i].scope == MFS_DIFF_TRAINING && !d->optimizer))
			continue;
		if (!same(fields[i].kind, x, y))
			rc = add(d, fields[i].name, in_words(d, fields[i].kind, x),
				 in_words(d, fields[i].kind, y), err);
	}
	if (!rc)
		rc = add_layer_patterns(d, &a, &b, err);
	return rc ? rc : add_progress(d, err);
}
