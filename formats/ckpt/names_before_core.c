#include "formats/ckpt/names_before_core.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"

struct renamed {
	const char *old, *core;
};

/* Modules of one layer. "attention" is older than October 2020, "..._layernorm" than 2023-09. */
static const struct renamed modules[] = {
	{"input_norm.", "input_layernorm."},
	{"input_layernorm.", "input_layernorm."},
	{"self_attention.query_key_value.", "self_attention.linear_qkv."},
	{"self_attention.dense.", "self_attention.linear_proj."},
	{"attention.query_key_value.", "self_attention.linear_qkv."},
	{"attention.dense.", "self_attention.linear_proj."},
	{"post_attention_norm.", "pre_mlp_layernorm."},
	{"post_attention_layernorm.", "pre_mlp_layernorm."},
	{"mlp.dense_h_to_4h.", "mlp.linear_fc1."},
	{"mlp.dense_4h_to_h.", "mlp.linear_fc2."},
};

/* What follows "language_model.". Before v1.0 the embeddings had no dict of their own. */
static const struct renamed roots[] = {
	{"embedding.", "embedding."},
	{"word_embeddings.", "embedding.word_embeddings."},
	{"position_embeddings.", "embedding.position_embeddings."},
	{"output_layer.", "output_layer."},
	{"encoder.final_norm.", "decoder.final_layernorm."},
	{"encoder.final_layernorm.", "decoder.final_layernorm."},
	{"transformer.final_layernorm.", "decoder.final_layernorm."},
};

#define MAX_DIGITS 16 /* of a layer's number */

static const char *after(const char *text, const char *prefix)
{
	size_t len = strlen(prefix);

	return strncmp(text, prefix, len) ? NULL : text + len;
}

static bool rename_by(const struct renamed *table, size_t count, const char *rest,
		      const char *prefix, char *text, size_t size)
{
	for (size_t i = 0; i < count; i++) {
		const char *tail = after(rest, table[i].old);

		if (!tail)
			continue;
		snprintf(text, size, "%s%s%s", prefix, table[i].core, tail);
		return true;
	}
	return false;
}

/* rest: "N.MODULE", or anything else that follows "layers.". */
static void rename_layer(const char *rest, char *text, size_t size)
{
	const size_t digits = strspn(rest, "0123456789");
	char prefix[64];

	if (digits < MAX_DIGITS && rest[digits] == '.') {
		snprintf(prefix, sizeof(prefix), "decoder.layers.%.*s.", (int)digits, rest);
		if (rename_by(modules, MFS_ARRAY_SIZE(modules), rest + digits + 1, prefix, text,
			      size))
			return;
	}
	snprintf(text, size, "decoder.layers.%s", rest);
}

bool mfs_name_before_core(const char *key, char *text, size_t size)
{
	const char *rest = after(key, "language_model."), *layer;

	if (!strcmp(key, "word_embeddings_for_head.weight")) {
		snprintf(text, size, "output_layer.weight");
		return true;
	}
	if (!rest)
		return false;
	layer = after(rest, "encoder.layers.");
	if (!layer)
		layer = after(rest, "transformer.layers.");
	if (layer)
		rename_layer(layer, text, size);
	else if (!rename_by(roots, MFS_ARRAY_SIZE(roots), rest, "", text, size))
		snprintf(text, size, "%s", key);
	return true;
}
