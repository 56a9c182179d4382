/* Compares the arguments of two runs that define the model, as far as they have an effect in it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/args/field.h"
#include "formats/base/str.h"
#include "formats/model/families/family.h"
#include "fs/diff/diff.h"

/* ---- arguments without an effect get one value ---- */

static void drop_experts(struct mfs_megatron_args *a)
{
	a->num_experts = a->moe_router_topk = a->moe_ffn_hidden_size = MFS_ABSENT;
	a->moe_shared_expert_intermediate_size = MFS_ABSENT;
	a->moe_router_num_groups = a->moe_router_group_topk = MFS_ABSENT;
	a->moe_shared_expert_gate = a->moe_router_pre_softmax = false;
	a->moe_router_enable_expert_bias = false;
	a->moe_router_score_function = NULL;
	a->moe_router_topk_scaling_factor = a->moe_aux_loss_coeff = 0;
	a->moe_mlp_glu_interleave_size = a->moe_shared_expert_glu_interleave_size = MFS_ABSENT;
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
		a->ffn_hidden_size = MFS_ABSENT;
	if (a->moe_router_group_topk == MFS_ABSENT || a->moe_router_num_groups <= 1)
		a->moe_router_num_groups = a->moe_router_group_topk = MFS_ABSENT;
	if (a->moe_router_topk_scaling_factor == 0)
		a->moe_router_topk_scaling_factor = 1;
	if (!mfs_str_is(a->moe_router_score_function, "softmax"))
		a->moe_router_pre_softmax = false;
	if (a->moe_mlp_glu_interleave_size == 0)
		a->moe_mlp_glu_interleave_size = MFS_ABSENT;
	if (a->moe_shared_expert_glu_interleave_size == 0 ||
	    a->moe_shared_expert_intermediate_size == MFS_ABSENT)
		a->moe_shared_expert_glu_interleave_size = MFS_ABSENT;
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
		a->num_query_groups = a->kv_channels = MFS_ABSENT;
		a->softmax_scale = 0; /* it has its own */
		/* Both of its low-rank norms come with it. */
		a->qk_layernorm = true;
	} else {
		settle_scale(a);
		a->q_lora_rank = a->kv_lora_rank = MFS_ABSENT;
		a->qk_head_dim = a->qk_pos_emb_head_dim = a->v_head_dim = MFS_ABSENT;
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
	a->original_max_position_embeddings = MFS_ABSENT;
	a->yarn_unrounded = false;
	if (!mla || a->rotary_scaling_factor <= 1 || a->mscale_all_dim == 0)
		a->rotary_scaling_factor = a->mscale_all_dim = 0;
}

static void settle_linear_attention(struct mfs_megatron_args *a)
{
	if (a->linear_layers)
		return;
	a->linear_conv_kernel_dim = MFS_ABSENT;
	a->linear_key_head_dim = a->linear_value_head_dim = MFS_ABSENT;
	a->linear_num_key_heads = a->linear_num_value_heads = MFS_ABSENT;
}

static void settle_mamba(struct mfs_megatron_args *a)
{
	if (a->hybrid_layers && strchr(a->hybrid_layers, MFS_HYBRID_MAMBA))
		return;
	a->mamba_state_dim = a->mamba_head_dim = MFS_ABSENT;
	a->mamba_num_groups = a->mamba_num_heads = MFS_ABSENT;
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

static bool same(const struct mfs_args_field *f, const void *a, const void *b)
{
	const char *x, *y;

	switch (f->type) {
	case MFS_ARGS_INT:
		return *(const int64_t *)a == *(const int64_t *)b;
	case MFS_ARGS_REAL:
		return *(const double *)a == *(const double *)b;
	case MFS_ARGS_FLAG:
		return *(const bool *)a == *(const bool *)b;
	default:
		break;
	}
	x = *(const char *const *)a;
	y = *(const char *const *)b;
	return x == y || (x && y && !strcmp(x, y));
}

static const char *in_words(struct mfs_diff *d, const struct mfs_args_field *f, const void *at)
{
	int64_t n;

	switch (f->type) {
	case MFS_ARGS_INT:
		n = *(const int64_t *)at;
		return n == MFS_ABSENT ? "none" : mfs_arena_printf(&d->arena, "%lld", (long long)n);
	case MFS_ARGS_REAL:
		return mfs_arena_printf(&d->arena, "%.15g", *(const double *)at);
	case MFS_ARGS_FLAG:
		return *(const bool *)at ? "true" : "false";
	default:
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

	if (a->window_layers || a->window_size == MFS_ABSENT)
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

static bool is_compared(const struct mfs_diff *d, const struct mfs_args_field *f)
{
	return f->scope == MFS_ARGS_MODEL || (f->scope == MFS_ARGS_TRAINING && d->optimizer);
}

static size_t count_fields(void)
{
	size_t count = 0;

	while (mfs_args_fields[count].member)
		count++;
	return count;
}

int mfs_diff_arguments(struct mfs_diff *d, struct mfs_error *err)
{
	const struct mfs_megatron_args a = settled(mfs_ckpt_args(d->sides[0].ckpt));
	const struct mfs_megatron_args b = settled(mfs_ckpt_args(d->sides[1].ckpt));
	int rc = 0;

	d->arguments = mfs_arena_array(&d->arena, count_fields() + OTHERS, sizeof(*d->arguments));
	if (!d->arguments)
		return mfs_fail_nomem(err);
	for (const struct mfs_args_field *f = mfs_args_fields; f->member && !rc; f++) {
		const void *x = mfs_args_at(&a, f), *y = mfs_args_at(&b, f);

		if (is_compared(d, f) && !same(f, x, y))
			rc = add(d, f->shown ? f->shown : f->member, in_words(d, f, x),
				 in_words(d, f, y), err);
	}
	if (!rc)
		rc = add_layer_patterns(d, &a, &b, err);
	return rc ? rc : add_progress(d, err);
}
