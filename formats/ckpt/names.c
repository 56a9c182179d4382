#include "formats/ckpt/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/ckpt/names_before_core.h"
#include "formats/ckpt/sections.h"

struct param {
	const char *name;
	enum mfs_tp_split_kind tp;
};

/* Outside of layers. */
static const struct param model_params[] = {
	{"embedding.word_embeddings.weight", MFS_TP_ROWS},
	{"embedding.position_embeddings.weight", MFS_TP_NONE},
	{"decoder.final_layernorm.weight", MFS_TP_NONE},
	{"decoder.final_layernorm.bias", MFS_TP_NONE},
	{"output_layer.weight", MFS_TP_ROWS},
};

/* Of one transformer layer: what follows "decoder.layers." or "mtp.layers.transformer_layer.". */
static const struct param layer_params[] = {
	{"input_layernorm.weight", MFS_TP_NONE},
	{"input_layernorm.bias", MFS_TP_NONE},
	{"self_attention.linear_qkv.weight", MFS_TP_ROWS},
	{"self_attention.linear_qkv.bias", MFS_TP_ROWS},
	{"self_attention.q_layernorm.weight", MFS_TP_HEADS},
	{"self_attention.q_layernorm.bias", MFS_TP_NONE},
	{"self_attention.k_layernorm.weight", MFS_TP_HEADS},
	{"self_attention.k_layernorm.bias", MFS_TP_NONE},
	{"self_attention.kv_layernorm.weight", MFS_TP_NONE},
	{"self_attention.kv_layernorm.bias", MFS_TP_NONE},
	{"self_attention.linear_proj.weight", MFS_TP_COLS},
	{"self_attention.linear_proj.bias", MFS_TP_NONE},
	{"self_attention.linear_proj.post_layernorm.weight", MFS_TP_NONE},
	{"self_attention.core_attention.softmax_offset", MFS_TP_ROWS},
	{"self_attention.linear_q_proj.weight", MFS_TP_ROWS},
	{"self_attention.linear_q_down_proj.weight", MFS_TP_AUTO},
	{"self_attention.linear_q_up_proj.weight", MFS_TP_ROWS},
	{"self_attention.linear_kv_down_proj.weight", MFS_TP_AUTO},
	{MFS_FUSED_DOWN_PROJ, MFS_TP_AUTO},
	{"self_attention.linear_kv_up_proj.weight", MFS_TP_ROWS},
	{"self_attention.in_proj.weight", MFS_TP_SECTIONS},
	{"self_attention.conv1d.weight", MFS_TP_SECTIONS},
	{"self_attention.A_log", MFS_TP_ROWS},
	{"self_attention.dt_bias", MFS_TP_ROWS},
	{"self_attention.out_norm.weight", MFS_TP_NONE},
	{"self_attention.out_proj.weight", MFS_TP_COLS},
	{"norm.weight", MFS_TP_NONE},
	{"norm.bias", MFS_TP_NONE},
	{"mixer.in_proj.weight", MFS_TP_SECTIONS},
	{"mixer.conv1d.weight", MFS_TP_SECTIONS},
	{"mixer.conv1d.bias", MFS_TP_SECTIONS},
	{"mixer.A_log", MFS_TP_ROWS},
	{"mixer.D", MFS_TP_ROWS},
	{"mixer.dt_bias", MFS_TP_ROWS},
	{"mixer.norm.weight", MFS_TP_ROWS},
	{"mixer.out_proj.weight", MFS_TP_COLS},
	{"pre_mlp_layernorm.weight", MFS_TP_NONE},
	{"pre_mlp_layernorm.bias", MFS_TP_NONE},
	{"mlp.linear_fc1.weight", MFS_TP_GATED},
	{"mlp.linear_fc1.bias", MFS_TP_GATED},
	{"mlp.linear_fc2.weight", MFS_TP_COLS},
	{"mlp.linear_fc2.bias", MFS_TP_NONE},
	{"mlp.linear_fc2.post_layernorm.weight", MFS_TP_NONE},
	{"mlp.router.weight", MFS_TP_NONE},
	{"mlp.router.bias", MFS_TP_NONE},
	{"mlp.router.expert_bias", MFS_TP_NONE},
	{"mlp.shared_experts.linear_fc1.weight", MFS_TP_GATED},
	{"mlp.shared_experts.linear_fc2.weight", MFS_TP_COLS},
	{"mlp.shared_experts.gate_weight", MFS_TP_NONE},
	{"mlp.experts.experts.linear_fc1.weight", MFS_TP_GATED},
	{"mlp.experts.experts.linear_fc1.bias", MFS_TP_GATED},
	{"mlp.experts.experts.linear_fc2.weight", MFS_TP_COLS},
	{"mlp.experts.experts.linear_fc2.bias", MFS_TP_NONE},
};

/* Of one multi-token-prediction layer: what follows "mtp.layers.". */
static const struct param mtp_params[] = {
	{"enorm.weight", MFS_TP_NONE},	       {"enorm.bias", MFS_TP_NONE},
	{"hnorm.weight", MFS_TP_NONE},	       {"hnorm.bias", MFS_TP_NONE},
	{"eh_proj.weight", MFS_TP_ROWS},       {"final_layernorm.weight", MFS_TP_NONE},
	{"final_layernorm.bias", MFS_TP_NONE},
};

/* Transformer Engine fuses a norm into the linear that follows it. A hybrid model's last norm has a
 * name of its own. */
static const struct {
	const char *fused, *plain;
} aliases[] = {
	{"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
	{"self_attention.in_proj.layer_norm_", "input_layernorm."},
	{"self_attention.linear_q_down_proj.layer_norm_", "input_layernorm."},
	{"self_attention.linear_kv_down_proj.layer_norm_", "input_layernorm."},
	{"self_attention.linear_qkv_down_proj.layer_norm_", "input_layernorm."},
	{"self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm."},
	{"self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm."},
	{"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."},
	{"mixer.in_proj.layer_norm_", "norm."},
	{"mixer.conv1d_", "mixer.conv1d."}, /* legacy files since core 0.19 */
	{"decoder.final_norm.", "decoder.final_layernorm."},
};

static const struct param *find(const struct param *table, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

static const char *after(const char *text, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(text, prefix, len) ? NULL : text + len;
}

/* Reads the decimal number at *text, which `end` follows, and moves *text past both. Returns -1 if
 * there is none. */
static int32_t number(const char **text, char end)
{
	size_t digits = strspn(*text, "0123456789");
	int32_t value;

	if (!digits || digits > 7 || (*text)[digits] != end)
		return -1;
	value = atoi(*text);
	*text += digits + (end != '\0');
	return value;
}

/* "linear_fc1.weight_w" and "_v": SwiGLU's halves under names of their own. */
static void take_part(char *rest, struct mfs_name *name)
{
	if (mfs_str_ends(rest, "linear_fc1.weight_w") || mfs_str_ends(rest, "linear_fc1.bias_w"))
		name->part = MFS_PART_GATE;
	else if (mfs_str_ends(rest, "linear_fc1.weight_v") ||
		 mfs_str_ends(rest, "linear_fc1.bias_v"))
		name->part = MFS_PART_UP;
	else
		return;
	rest[strlen(rest) - 2] = '\0';
}

/*
 * Writes what follows "mlp.experts.", in any of its spellings, as
 * "mlp.experts.experts.LINEAR.KIND":
 *   experts.LINEAR.KIND, experts.N.LINEAR.KIND   torch_dist
 *   local_experts.N.LINEAR.KIND                  SequentialMLP
 *   LINEAR.KINDN                                 TEGroupedMLP
 *   weight1, weight2                             GroupedMLP (until core 0.16)
 */
static void normalise_experts(char *rest, size_t size, struct mfs_name *name)
{
	const char *tail = after(rest, "mlp.experts."), *inner;
	char plain[MFS_NAME_MAX];
	size_t len;

	if (!tail)
		return;
	name->experts = true;
	if (!strcmp(tail, "weight1") || !strcmp(tail, "weight2")) {
		name->grouped = tail[6] - '0';
		snprintf(rest, size, "mlp.experts.experts.linear_fc%d.weight", name->grouped);
		return;
	}
	inner = after(tail, "experts.");
	if (!inner)
		inner = after(tail, "local_experts.");
	if (inner) {
		name->expert = number(&inner, '.');
		snprintf(plain, sizeof(plain), "%s", inner);
	} else {
		snprintf(plain, sizeof(plain), "%s", tail);
		len = strlen(plain);
		while (len && plain[len - 1] >= '0' && plain[len - 1] <= '9')
			len--;
		inner = plain + len;
		name->expert = number(&inner, '\0');
		if (name->expert >= 0)
			plain[len] = '\0';
	}
	snprintf(rest, size, "mlp.experts.experts.%.*s", MFS_NAME_MAX - 24, plain);
}

static void replace_alias(char *rest, size_t size)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(aliases); i++) {
		const char *kind = after(rest, aliases[i].fused);
		char plain[MFS_NAME_MAX];

		if (!kind)
			continue;
		snprintf(plain, sizeof(plain), "%s%s", aliases[i].plain, kind);
		snprintf(rest, size, "%s", plain);
		return;
	}
}

/* Fills canonical and tp from a prefix and the rest of the name, which is looked up in a table. */
static void finish(struct mfs_name *name, const char *prefix, const char *rest,
		   const struct param *table, size_t count)
{
	const struct param *p = find(table, count, rest);

	snprintf(name->canonical, sizeof(name->canonical), "%s%.*s", prefix, MFS_NAME_MAX - 40,
		 rest);
	name->known = p != NULL;
	name->tp = p ? p->tp : MFS_TP_NONE;
}

enum mfs_sublayer_kind mfs_name_sublayer(const char *rest)
{
	if (after(rest, "input_layernorm.") || after(rest, "self_attention."))
		return MFS_SUBLAYER_ATTENTION;
	if (after(rest, "pre_mlp_layernorm.") || after(rest, "mlp."))
		return MFS_SUBLAYER_MLP;
	return MFS_SUBLAYER_OTHER;
}

static void parse_layer(const char *prefix, const char *tail, struct mfs_name *name)
{
	char rest[MFS_NAME_MAX];

	snprintf(rest, sizeof(rest), "%.*s", MFS_NAME_MAX - 1, tail);
	take_part(rest, name);
	name->section = mfs_section_take(rest);
	normalise_experts(rest, sizeof(rest), name);
	replace_alias(rest, sizeof(rest));
	name->sublayer = mfs_name_sublayer(rest);
	finish(name, prefix, rest, layer_params, MFS_ARRAY_SIZE(layer_params));
}

/* A hybrid model's has layers of its own in it. */
static void parse_mtp(const char *rest, struct mfs_name *name)
{
	const char *inner = after(rest, "transformer_layer."), *layers;

	if (!inner) {
		inner = after(rest, "mtp_model_layer."); /* since core 0.17, legacy files */
		name->mtp_model_layer = inner != NULL;
		layers = inner ? after(inner, "layers.") : NULL;
		if (layers && (name->part_of_depth = number(&layers, '.')) >= 0)
			inner = layers;
	}
	if (inner)
		parse_layer("mtp.layers.transformer_layer.", inner, name);
	else
		finish(name, "mtp.layers.", rest, mtp_params, MFS_ARRAY_SIZE(mtp_params));
}

void mfs_name_parse(const char *key, struct mfs_name *ret)
{
	char core[512], outer[MFS_NAME_MAX];
	const char *rest;

	if (mfs_name_before_core(key, core, sizeof(core)))
		key = core;
	*ret = (struct mfs_name){.layer = -1, .expert = -1, .part_of_depth = -1};
	ret->ignored = strstr(key, "._extra_state") != NULL;
	if ((rest = after(key, "decoder.layers."))) {
		ret->layered = true;
		ret->layer = number(&rest, '.');
		parse_layer("decoder.layers.", rest, ret);
	} else if ((rest = after(key, "mtp.layers."))) {
		ret->layered = true;
		ret->layer = number(&rest, '.');
		parse_mtp(rest, ret);
	} else {
		snprintf(outer, sizeof(outer), "%.*s", MFS_NAME_MAX - 40, key);
		replace_alias(outer, sizeof(outer));
		finish(ret, "", outer, model_params, MFS_ARRAY_SIZE(model_params));
	}
}

bool mfs_name_is_model(const char *key)
{
	static const char *const others[] = {"optimizer.",  "chained_",	    "rng_state",
					     "rerun_state", "common_state", "opt_param_scheduler",
					     "iteration",   "args",	    "dataloader"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(others); i++)
		if (after(key, others[i]))
			return false;
	return true;
}

const char *mfs_name_refused(const char *key)
{
	static const struct {
		const char *infix, *what;
	} table[] = {
		{".adapter.", "a LoRA adapter"},
		{".lora_", "a LoRA adapter"},
		{"_quantizer.", "a model quantised by ModelOpt"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(table); i++)
		if (strstr(key, table[i].infix))
			return table[i].what;
	return NULL;
}

bool mfs_name_is_parameter(const char *canonical, enum mfs_dtype dtype)
{
	return !mfs_str_ends(canonical, "router.expert_bias") &&
	       !mfs_str_ends(canonical, "router.qb_beta") &&
	       (dtype == MFS_BF16 || dtype == MFS_F16 || dtype == MFS_F32);
}
