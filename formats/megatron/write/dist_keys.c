#include "formats/megatron/write/dist_keys.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/ckpt/names.h"
#include "formats/ckpt/sections.h"

static const char decoder[] = "decoder.layers.", mtp[] = "mtp.layers.";

bool mfs_dist_numbers_layers(const struct mfs_megatron_args *args)
{
	/* Arguments made from config.json have a list if layers differ (namespace.c). */
	return args->moe_layer_freq_listed || mfs_args_layers_differ(args) || args->linear_layers ||
	       args->hybrid_layers;
}

static const char *after(const char *text, const char *prefix)
{
	const size_t len = strlen(prefix);

	return strncmp(text, prefix, len) ? NULL : text + len;
}

/* ---- names within a layer ---- */

enum when {
	GQA,	/* no multi-latent attention */
	LINEAR, /* linear attention */
	MAMBA,
	MLA_TE,	   /* multi-latent attention, Transformer Engine */
	FUSED_FC1, /* GQA: dense, or local modules; MLA: dense, Transformer Engine */
};

static const struct {
	const char *plain, *fused;
	enum when when;
} norms[] = {
	{"input_layernorm.", "self_attention.linear_qkv.layer_norm_", GQA},
	{"input_layernorm.", "self_attention.in_proj.layer_norm_", LINEAR},
	{"norm.", "mixer.in_proj.layer_norm_", MAMBA},
	{"self_attention.q_layernorm.", "self_attention.linear_q_up_proj.layer_norm_", MLA_TE},
	{"self_attention.kv_layernorm.", "self_attention.linear_kv_up_proj.layer_norm_", MLA_TE},
	{"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_", FUSED_FC1},
};

static bool is_moe(const struct mfs_megatron_args *a, const struct mfs_global_tensor *t)
{
	return mfs_args_is_moe(a, after(t->name, mtp) ? a->num_layers - 1 : t->layer);
}

static bool is_linear(const struct mfs_megatron_args *a, const struct mfs_global_tensor *t)
{
	return mfs_args_is_linear(a, after(t->name, mtp) ? a->num_layers - 1 : t->layer);
}

static bool is_fused(const struct mfs_megatron_dist *d, const struct mfs_global_tensor *t,
		     enum when when)
{
	const bool mla = d->args->multi_latent_attention, te = d->options.spec == MFS_LAYER_SPEC_TE;

	switch (when) {
	case GQA:
		return !mla && !is_linear(d->args, t);
	case LINEAR:
		return is_linear(d->args, t);
	case MAMBA: /* no other layer has this norm */
		return true;
	case MLA_TE:
		return mla && te;
	case FUSED_FC1:
		return te || d->args->hybrid_layers ? !is_moe(d->args, t) : !mla;
	}
	return false;
}

/* The part after the layer's number: a canonical name, with norms renamed. */
static void put_inner(char *key, size_t size, const struct mfs_megatron_dist *d,
		      const struct mfs_global_tensor *t, const char *inner)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(norms); i++) {
		const char *kind = after(inner, norms[i].plain);

		if (!kind || !is_fused(d, t, norms[i].when))
			continue;
		snprintf(key, size, "%s%s", norms[i].fused, kind);
		return;
	}
	snprintf(key, size, "%s", inner);
}

/* ---- keys ---- */

static int sublayer(const char *rest)
{
	return mfs_name_sublayer(rest) == MFS_SUBLAYER_MLP;
}

/* Joins the parts of a name. The layer's number follows the prefix, unless layers are stacked.
 * plain: rest as a canonical name. */
static void put_name(char *key, size_t size, const struct mfs_megatron_dist *d, const char *prefix,
		     const struct mfs_dist_tensor *t, const char *plain, const char *rest)
{
	const bool halves = d->options.layout.hybrid && prefix == decoder;
	const int32_t layer = t->first->layer;

	if (t->layers)
		snprintf(key, size, "%s%s", prefix, rest);
	else
		snprintf(key, size, "%s%d.%s", prefix, halves ? 2 * layer + sublayer(plain) : layer,
			 rest);
}

/* The layer in a layer of multi-token prediction. That of a HybridModel has layers of its own. */
static void put_depth(char *text, size_t size, const struct mfs_megatron_dist *d, const char *inner,
		      const char *rest)
{
	if (d->options.layout.hybrid)
		snprintf(text, size, "mtp_model_layer.layers.%d.%s", sublayer(inner), rest);
	else
		snprintf(text, size, "transformer_layer.%s", rest);
}

/* Outside of layers only one name depends on the kind of model. */
static void put_outer(char *key, size_t size, const struct mfs_megatron_dist *d, const char *name)
{
	const bool hybrid = d->args->hybrid_layers || d->options.layout.hybrid;
	const char *kind = hybrid ? after(name, "decoder.final_layernorm.") : NULL;

	if (kind)
		snprintf(key, size, "decoder.final_norm.%s", kind);
	else
		snprintf(key, size, "%s", name);
}

static void put_model_key(char *key, size_t size, const struct mfs_megatron_dist *d,
			  const struct mfs_dist_tensor *t)
{
	const char *name = t->first->name, *rest, *inner;
	char text[MFS_CKPT_NAME_SIZE], renamed[MFS_CKPT_NAME_SIZE];

	if (t->first->layer < 0) {
		put_outer(key, size, d, name);
	} else if ((rest = after(name, decoder))) {
		put_inner(text, sizeof(text), d, t->first, rest);
		put_name(key, size, d, decoder, t, rest, text);
	} else {
		rest = name + sizeof(mtp) - 1;
		inner = after(rest, "transformer_layer.");
		snprintf(text, sizeof(text), "%s", rest);
		if (inner) {
			put_inner(renamed, sizeof(renamed), d, t->first, inner);
			put_depth(text, sizeof(text), d, inner, renamed);
		}
		put_name(key, size, d, mtp, t, rest, text);
	}
}

/* distrib_optimizer.py: sharded_param_state_fully_reshardable; optimizer.py:
 * Float16OptimizerWithFloat16Params.sharded_state_dict */
static const char *state_word(const struct mfs_megatron_dist *d, const struct mfs_global_tensor *t)
{
	const bool other = !mfs_optim_muon_takes(t->name, t->ndim);

	if (t->state != MFS_STATE_MAIN)
		return mfs_state_name(t->state);
	return mfs_optim_is_distributed(d->kind, other) ? "param" : "fp32_param";
}

void mfs_dist_key(char key[MFS_DIST_KEY_SIZE], const struct mfs_megatron_dist *d,
		  const struct mfs_dist_tensor *t)
{
	const enum mfs_state state = t->first->state;
	int used = 0;

	if (state != MFS_STATE_MODEL)
		used = snprintf(key, MFS_DIST_KEY_SIZE, "optimizer.state.%s.",
				state_word(d, t->first));
	put_model_key(key + used, MFS_DIST_KEY_SIZE - (size_t)used, d, t);
	if (t->section)
		strcat(key, mfs_section_suffix(t->first->name, t->section - 1));
}

/* ---- _extra_state ---- */

static const char weight[] = ".weight";

bool mfs_dist_has_extra(const struct mfs_global_tensor *t)
{
	static const char *const endings[] = {"linear_qkv",
					      "linear_proj",
					      "linear_q_proj",
					      "linear_fc1",
					      "linear_q_down_proj",
					      "linear_q_up_proj",
					      "linear_fc2",
					      "linear_kv_down_proj",
					      "linear_kv_up_proj",
					      "in_proj",
					      "out_proj",
					      "out_norm",
					      "layernorm",
					      "enorm",
					      "hnorm",
					      "eh_proj"};
	const size_t len = strlen(t->name), tail = sizeof(weight) - 1;
	const char *end = len > tail ? t->name + len - tail : t->name;

	if (t->state != MFS_STATE_MODEL || strcmp(end, weight))
		return false;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(endings); i++) {
		const size_t n = strlen(endings[i]);

		if ((size_t)(end - t->name) > n && !memcmp(end - n, endings[i], n))
			return true;
	}
	return false;
}

/* The name of the module itself. A norm that is not fused is a module too. */
static void put_module(char *text, size_t size, const struct mfs_dist_extra *e, const char *tail)
{
	const int len = (int)(strlen(tail) - (sizeof(weight) - 1));

	if (e->core_attention)
		snprintf(text, size, "%.*score_attention", len - (int)strlen("linear_proj"), tail);
	else
		snprintf(text, size, "%.*s", len, tail);
}

void mfs_dist_extra_key(char key[MFS_DIST_KEY_SIZE], const struct mfs_megatron_dist *d,
			const struct mfs_dist_extra *e, uint32_t i)
{
	const struct mfs_dist_tensor *t = e->owner;
	const uint32_t layer = i / mfs_dist_each(t->experts),
		       expert = i % mfs_dist_each(t->experts);
	char module[MFS_CKPT_NAME_SIZE], part[MFS_CKPT_NAME_SIZE], name[MFS_CKPT_NAME_SIZE],
		shard[64];
	const char *rest = after(t->first->name, decoder), *inner;

	if (e->head) {
		snprintf(name, sizeof(name), "output_layer");
	} else if (t->first->layer < 0) {
		put_outer(module, sizeof(module), d, t->first->name);
		put_module(name, sizeof(name), e, module);
	} else if (rest) {
		put_module(module, sizeof(module), e, rest);
		put_name(name, sizeof(name), d, decoder, t, rest, module);
	} else {
		rest = t->first->name + sizeof(mtp) - 1;
		inner = after(rest, "transformer_layer.");
		put_module(module, sizeof(module), e, inner ? inner : rest);
		if (inner)
			put_depth(part, sizeof(part), d, inner, module);
		put_name(name, sizeof(name), d, mtp, t, rest, inner ? part : module);
	}
	if (t->layers && t->experts)
		snprintf(shard, sizeof(shard), "%u.%u_%u.%u", layer, expert, t->layers, t->experts);
	else if (t->experts)
		snprintf(shard, sizeof(shard), "%u_%u", expert, t->experts);
	else
		snprintf(shard, sizeof(shard), "%u_%u", layer, mfs_dist_each(t->layers));
	snprintf(key, MFS_DIST_KEY_SIZE, "%s._extra_state/shard_%s", name, shard);
}
