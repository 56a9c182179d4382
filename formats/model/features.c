#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/str.h"
#include "formats/model/features.h"
#include "formats/model/model.h"

/* ---- features of a checkpoint ---- */

static mfs_features when(bool condition, mfs_features features)
{
	return condition ? features : 0;
}

static mfs_features activation(const struct mfs_megatron_args *a)
{
	if (a->swiglu)
		return MFS_HAS(SWIGLU);
	if (a->quick_geglu)
		return MFS_HAS(QUICK_GEGLU);
	if (a->geglu)
		return MFS_HAS(GEGLU);
	if (a->squared_relu)
		return MFS_HAS(RELU2);
	return MFS_HAS(GELU) | when(a->exact_gelu, MFS_HAS(GELU_EXACT));
}

static mfs_features gate(const struct mfs_megatron_args *a)
{
	if (!mfs_args_gated(a))
		return 0;
	return when(a->glu_linear_offset == 1, MFS_HAS(GLU_OFFSET)) |
	       when(a->activation_func_clamp_value != 0, MFS_HAS(GLU_CLAMP));
}

/* One over the root of the head size is what Megatron and HF take without a scale
 * (dot_product_attention.py). */
static bool is_usual_scale(const struct mfs_megatron_args *a)
{
	const double usual = 1 / sqrt((double)a->kv_channels);

	return a->softmax_scale == 0 || fabs(a->softmax_scale - usual) <= 1e-9 * usual;
}

/* MambaMixer gives its norm 1e-5, whatever the arguments say. */
static bool has_other_eps(const struct mfs_megatron_args *a)
{
	return a->hybrid_layers && strchr(a->hybrid_layers, MFS_HYBRID_MAMBA) &&
	       a->norm_epsilon != 1e-5;
}

static mfs_features attention(const struct mfs_megatron_args *a)
{
	mfs_features f = when(a->qk_layernorm, MFS_HAS(QK_NORM)) |
			 when(a->qk_l2_norm, MFS_HAS(QK_L2_NORM)) |
			 when(a->post_norms, MFS_HAS(POST_NORMS)) |
			 when(a->attn_logit_softcapping != 0 || a->final_logit_softcapping != 0,
			      MFS_HAS(SOFT_CAPS)) |
			 when(a->attention_output_gate, MFS_HAS(OUTPUT_GATE)) |
			 when(a->learnable_softmax, MFS_HAS(SINKS)) |
			 when(a->linear_layers, MFS_HAS(LINEAR_ATTENTION)) |
			 when(a->hybrid_layers, MFS_HAS(HYBRID)) |
			 when(has_other_eps(a), MFS_HAS(MAMBA_EPS)) |
			 when(a->window_size != MFS_ABSENT, MFS_HAS(WINDOW)) |
			 when(a->window_layers, MFS_HAS(WINDOW_MIXED));

	if (a->multi_latent_attention)
		return f | MFS_HAS(MLA) | when(a->q_lora_rank != MFS_ABSENT, MFS_HAS(Q_LORA));
	return f | when(a->num_query_groups != a->num_attention_heads, MFS_HAS(GQA)) |
	       when(a->qk_norm_wide, MFS_HAS(QK_NORM_WIDE)) |
	       when(!is_usual_scale(a), MFS_HAS(SOFTMAX_SCALE)) |
	       when(a->num_attention_heads * a->kv_channels != a->hidden_size, MFS_HAS(HEAD_DIM)) |
	       when(a->hidden_size % a->num_attention_heads != 0, MFS_HAS(RAGGED_HEADS));
}

/* MLA makes its own rotary embedding by rope_type. The scalings of other attention do not reach
 * it. */
static mfs_features mla_positions(const struct mfs_megatron_args *a)
{
	mfs_features f = when(mfs_str_is(a->position_embedding_type, "learned_absolute"),
			      MFS_HAS(LEARNED_POSITIONS));

	if (mfs_str_is(a->rope_type, "yarn"))
		return f | MFS_HAS(ROPE) | MFS_HAS(YARN);
	if (mfs_str_is(a->rope_type, "rope"))
		return f | MFS_HAS(ROPE) |
		       when(a->rotary_scaling_factor > 1 && a->mscale_all_dim != 0,
			    MFS_HAS(SCALED_SOFTMAX));
	return f | MFS_HAS(OTHER_POSITIONS);
}

static mfs_features positions(const struct mfs_megatron_args *a)
{
	const double linear = a->rotary_seq_len_interpolation_factor;
	const bool scaled = linear != 0 && linear != 1;
	mfs_features f;

	if (mfs_str_is(a->position_embedding_type, "learned_absolute") &&
	    !a->multi_latent_attention)
		return MFS_HAS(LEARNED_POSITIONS);
	if (mfs_str_is(a->position_embedding_type, "none"))
		return MFS_HAS(NO_POSITIONS);
	f = when(a->rotary_interleaved, MFS_HAS(ROPE_INTERLEAVED)) |
	    when(a->rotary_percent != 1, MFS_HAS(ROPE_PARTIAL));
	if (a->multi_latent_attention)
		return f | mla_positions(a);
	if (mfs_str_is(a->position_embedding_type, "yarn"))
		return f | MFS_HAS(ROPE) | MFS_HAS(YARN) |
		       when(a->yarn_unrounded, MFS_HAS(YARN_UNROUNDED));
	if (!mfs_str_is(a->position_embedding_type, "rope"))
		return f | MFS_HAS(OTHER_POSITIONS);
	return f | MFS_HAS(ROPE) | when(a->use_rope_scaling, MFS_HAS(ROPE_LLAMA3)) |
	       when(a->rotary_base_local != 0, MFS_HAS(ROPE_TWO_BASES)) |
	       when(scaled, MFS_HAS(ROPE_LINEAR)) |
	       when(scaled && a->use_rope_scaling, MFS_HAS(ROPE_SCALED_TWICE));
}

/* A hybrid model's layers differ in any case. */
static mfs_features moe_pattern(const struct mfs_megatron_args *a)
{
	if (a->hybrid_layers)
		return 0;
	for (int64_t i = a->first_dense_layers; i < a->num_layers; i++)
		if (!a->moe_layers[i])
			return MFS_HAS(MOE_MIXED);
	return when(a->first_dense_layers > 0, MFS_HAS(MOE_AFTER_DENSE));
}

static mfs_features shared_expert(const struct mfs_megatron_args *a)
{
	const int64_t size = a->moe_shared_expert_intermediate_size;

	if (size == MFS_ABSENT)
		return 0;
	return MFS_HAS(SHARED_EXPERT) |
	       when(size % a->moe_ffn_hidden_size != 0, MFS_HAS(SHARED_RAGGED)) |
	       when(a->moe_shared_expert_gate, MFS_HAS(SHARED_GATE)) |
	       when(a->moe_shared_expert_glu_interleave_size > 0, MFS_HAS(GLU_INTERLEAVED));
}

/* Groups have an effect only if group_topk is set (megatron/core/transformer/moe/moe_utils.py:
 * topk_routing_with_score_function). A group's score is the sum of its topk / group_topk best. */
static mfs_features router(const struct mfs_megatron_args *a)
{
	const char *score = a->moe_router_score_function;
	const double scale = a->moe_router_topk_scaling_factor;
	const bool grouped = a->moe_router_group_topk != MFS_ABSENT && a->moe_router_num_groups > 1;

	return when(mfs_str_is(score, "sigmoid"), MFS_HAS(SIGMOID_ROUTER)) |
	       when(!mfs_str_is(score, "sigmoid") && !mfs_str_is(score, "softmax"),
		    MFS_HAS(OTHER_ROUTER)) |
	       when(mfs_str_is(score, "softmax") && a->moe_router_pre_softmax,
		    MFS_HAS(PRE_SOFTMAX)) |
	       when(a->moe_router_enable_expert_bias, MFS_HAS(EXPERT_BIAS)) |
	       when(scale != 0 && scale != 1, MFS_HAS(ROUTER_SCALE)) |
	       when(grouped, MFS_HAS(ROUTER_GROUPS)) |
	       when(grouped && a->moe_router_topk != 2 * a->moe_router_group_topk,
		    MFS_HAS(GROUPS_NOT_BY_TWO));
}

static mfs_features experts(const struct mfs_megatron_args *a)
{
	if (!a->moe_layers)
		return 0;
	return MFS_HAS(MOE) | moe_pattern(a) | shared_expert(a) | router(a) |
	       when(a->moe_mlp_glu_interleave_size > 0, MFS_HAS(GLU_INTERLEAVED));
}

mfs_features mfs_features_of(const struct mfs_megatron_args *a)
{
	return when(a->layernorm, MFS_HAS(LAYERNORM)) |
	       when(a->zero_centered_gamma, MFS_HAS(ZERO_CENTERED)) |
	       when(a->norm_epsilon != 1e-6, MFS_HAS(EPS_NOT_1E6)) |
	       when(a->add_bias_linear, MFS_HAS(LINEAR_BIAS)) |
	       when(a->add_qkv_bias && !a->add_bias_linear, MFS_HAS(QKV_BIAS)) |
	       when(a->tied, MFS_HAS(TIED)) | when(a->mtp_num_layers > 0, MFS_HAS(MTP)) |
	       when(a->provider && !mfs_provider_is_plain(a->provider), MFS_HAS(OWN_MODULES)) |
	       when(a->foreign != NULL, MFS_HAS(FOREIGN)) | activation(a) | gate(a) | attention(a) |
	       positions(a) | experts(a);
}

/* ---- the family that fits ---- */

/* What a family requires of experts, models without experts do not lack. */
static mfs_features missing(const struct mfs_family *f, mfs_features features)
{
	const mfs_features of_experts = MFS_HAS(SHARED_EXPERT) | MFS_HAS(SHARED_GATE) |
					MFS_HAS(SIGMOID_ROUTER) | MFS_HAS(EXPERT_BIAS) |
					MFS_HAS(PRE_SOFTMAX);

	return f->required & ~features &
	       ~when(!((f->required | features) & MFS_HAS(MOE)), of_experts);
}

/* Modules of Megatron-Bridge's own are those of the families that name the class. */
static mfs_features unknown(const struct mfs_family *f, const struct mfs_megatron_args *a,
			    mfs_features features)
{
	const bool others =
		features & MFS_HAS(OWN_MODULES) && !mfs_family_is_made_by(f, a->provider);

	return (features & ~(f->required | f->optional)) | when(others, MFS_HAS(OWN_MODULES));
}

static int size_of(mfs_features set)
{
	return __builtin_popcountll((uint64_t)set) + __builtin_popcountll((uint64_t)(set >> 64));
}

static const struct mfs_family *nearest(const struct mfs_megatron_args *a, mfs_features features)
{
	const struct mfs_family *best = NULL;
	int fewest = 2 * MFS_FEATURE_COUNT;

	for (const struct mfs_family *const *f = mfs_families(); *f; f++) {
		const int misfits =
			size_of(missing(*f, features)) + size_of(unknown(*f, a, features));

		if (misfits < fewest && mfs_family_has_models(*f)) {
			fewest = misfits;
			best = *f;
		}
	}
	return best;
}

/* Appends "word a, word b" for the features of a set. */
static void list(mfs_features set, const char *word, const struct mfs_megatron_args *a, char *text,
		 size_t size)
{
	for (unsigned i = 0; i < MFS_FEATURE_COUNT; i++) {
		size_t used = strlen(text);

		if (!mfs_has_feature(set, i))
			continue;
		snprintf(text + used, size - used, "%s%s ", used ? ", " : "", word);
		used = strlen(text);
		if (a && i == MFS_F_OWN_MODULES)
			snprintf(text + used, size - used, "model_provider (%.80s)", a->provider);
		else
			snprintf(text + used, size - used, "%s",
				 a && i == MFS_F_FOREIGN ? a->foreign : mfs_feature_text(i));
	}
}

static int misfit(const struct mfs_family *f, const char *arch, const struct mfs_megatron_args *a,
		  mfs_features features, struct mfs_error *err)
{
	char text[400] = "";

	if (f->impossible)
		return mfs_fail(err, -ENOTSUP,
				"this model is not a %s: Megatron cannot express one: %s", f->name,
				f->impossible);
	if (f->language)
		return mfs_fail(err, -ENOTSUP,
				"this model is not a %s: that is a vision-language model, whose "
				"language model is shown as %s",
				f->name, f->language->part.shown);
	list(unknown(f, a, features), "has", a, text, sizeof(text));
	list(missing(f, features), "lacks", NULL, text, sizeof(text));
	if (arch)
		return mfs_fail(err, -ENOTSUP, "this model is not a %s: it %s", f->name, text);
	return mfs_fail(err, -ENOTSUP,
			"no HF family fits this model (of %s); the nearest is %s, but the model %s",
			mfs_family_names(), f->name, text);
}

int mfs_family_check_name(const char *arch, struct mfs_error *err)
{
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (mfs_family_is_called(*f, arch))
			return 0;
	return mfs_fail(err, -EINVAL, "arch=%s: no such family; there are %s", arch,
			mfs_family_names());
}

static bool fits(const struct mfs_family *f, const struct mfs_megatron_args *a,
		 mfs_features features)
{
	return mfs_family_has_models(f) && !missing(f, features) && !unknown(f, a, features);
}

/* The first family of this name, or, without one, the first that fits. NULL: there is none. */
static const struct mfs_family *find(const char *name, const struct mfs_megatron_args *a,
				     mfs_features features)
{
	for (const struct mfs_family *const *f = mfs_families(); *f; f++)
		if (name ? mfs_family_is_called(*f, name) : fits(*f, a, features))
			return *f;
	return NULL;
}

int mfs_family_choose(const struct mfs_megatron_args *a, const char *arch,
		      const struct mfs_family **ret, struct mfs_error *err)
{
	const mfs_features features = mfs_features_of(a);
	const char *name = arch ? arch : a->hf_family;
	const struct mfs_family *f = name ? find(name, a, 0) : NULL;

	if (arch && !f)
		return mfs_family_check_name(arch, err);
	if (arch && !fits(f, a, features))
		return misfit(f, arch, a, features, err);
	if (!f || !fits(f, a, features))
		f = find(NULL, a, features);
	if (f) {
		*ret = f;
		return 0;
	}
	f = nearest(a, features);
	return f ? misfit(f, NULL, a, features, err) : mfs_fail_nomem(err);
}
