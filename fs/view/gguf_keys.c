#include "fs/view/gguf_keys.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/str.h"
#include "formats/gguf/gguf.h"
#include "formats/hf/hf_bpe.h"
#include "formats/hf/hf_json.h"
#include "formats/io/fileset.h"
#include "formats/model/model.h"

#define QUANTIZATION_VERSION 2 /* GGML_QUANT_VERSION */

/* ---- architectures ---- */

/* llama.cpp: src/models/NAME.cpp. qwen2 has heads of hidden_size / heads; factors of frequencies
 * are read by llama alone; qwen3moe has experts in each layer and normalises their scores. */
static const struct {
	const char *name;
	bool pairs;
	mfs_features refused;
} architectures[] = {
	{"llama", true, MFS_HAS(PRE_SOFTMAX)},
	{"qwen2", false, MFS_HAS(ROPE_LLAMA3) | MFS_HAS(HEAD_DIM) | MFS_HAS(RAGGED_HEADS)},
	{"qwen3", false, MFS_HAS(ROPE_LLAMA3)},
	{"qwen3moe", false,
	 MFS_HAS(ROPE_LLAMA3) | MFS_HAS(PRE_SOFTMAX) | MFS_HAS(MOE_AFTER_DENSE) |
		 MFS_HAS(MOE_MIXED)},
};

#define ARCHITECTURES MFS_ARRAY_SIZE(architectures)

static size_t find(const char *architecture)
{
	size_t i = 0;

	while (i < ARCHITECTURES && strcmp(architectures[i].name, architecture) != 0)
		i++;
	return i;
}

bool mfs_gguf_rotates_pairs(const char *architecture)
{
	const size_t i = find(architecture);

	return i < ARCHITECTURES && architectures[i].pairs;
}

bool mfs_gguf_refused(const char *architecture, mfs_features *ret)
{
	const size_t i = find(architecture);

	if (i == ARCHITECTURES)
		return false;
	*ret = architectures[i].refused;
	return true;
}

/* ---- config.json ---- */

/* A token id. Lists, as some config.json have of ends, are none (gguf/vocab.py). */
static int64_t token_of(const json_t *config, const char *key, uint64_t rows)
{
	const json_t *id = json_object_get(config, key);
	const json_int_t n = json_is_integer(id) ? json_integer_value(id) : -1;

	return n >= 0 && (uint64_t)n < rows ? n : MFS_ABSENT;
}

static double factor_of(const json_t *config, double otherwise)
{
	static const char *const keys[] = {"rope_parameters", "rope_scaling"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(keys); i++) {
		const json_t *factor = json_object_get(json_object_get(config, keys[i]), "factor");

		if (json_number_value(factor) > 0)
			return json_number_value(factor);
	}
	return otherwise;
}

/*
 * transformers/modeling_rope_utils.py: _compute_llama3_parameters, as what the frequencies are
 * divided by: 1 for short wavelengths, factor for long ones, and a blend between. The other numbers
 * are Megatron's constants, and a config.json with others is refused (formats/model/hf_args.h).
 */
static double llama3_divisor(double frequency, double factor)
{
	const double low = 1, high = 4, context = 8192;
	const double turns = context * frequency / (2 * M_PI);
	const double smooth = (turns - low) / (high - low);

	if (turns > high)
		return 1;
	if (turns < low)
		return factor;
	return 1 / ((1 - smooth) / factor + smooth);
}

static int compute_factors(const struct mfs_megatron_args *a, double factor,
			   struct mfs_gguf_extra *ret, struct mfs_error *err)
{
	const double head = (double)a->kv_channels;

	ret->factor_count = (uint32_t)(a->kv_channels / 2);
	ret->factors = calloc((size_t)ret->factor_count + 1, sizeof(*ret->factors));
	if (!ret->factors)
		return mfs_fail_nomem(err);
	for (uint32_t i = 0; i < ret->factor_count; i++)
		ret->factors[i] =
			(float)llama3_divisor(pow(a->rotary_base, -2.0 * i / head), factor);
	return 0;
}

int mfs_gguf_read_config(const struct mfs_model *model, const char *config, size_t len,
			 struct mfs_gguf_extra *ret, struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(model->ckpt);
	json_t *root;
	int rc = mfs_json_load(config, len, SIZE_MAX, 0, "config.json", &root, err);

	if (rc)
		return rc;
	ret->tokens = (struct mfs_hf_tokens){
		.bos = token_of(root, "bos_token_id", model->vocab.rows),
		.eos = token_of(root, "eos_token_id", model->vocab.rows),
		.pad = token_of(root, "pad_token_id", model->vocab.rows),
	};
	if (model->features & MFS_HAS(ROPE_LLAMA3))
		rc = compute_factors(a, factor_of(root, a->rope_scaling_factor), ret, err);
	json_decref(root);
	return rc;
}

/* ---- the model ---- */

struct keys {
	struct mfs_gguf *g;
	const char *architecture;
	char text[80];
};

static const char *key(struct keys *k, const char *name)
{
	snprintf(k->text, sizeof(k->text), "%s.%s", k->architecture, name);
	return k->text;
}

static void number(struct keys *k, const char *name, int64_t value)
{
	mfs_gguf_u32(k->g, key(k, name),
		     value > UINT32_MAX ? UINT32_MAX : (uint32_t)(value < 0 ? 0 : value));
}

/* Within the window a model sees all that stands before a token, as llama.cpp lets it. */
static int add_context(struct keys *k, struct mfs_model *model, const struct mfs_megatron_args *a)
{
	const bool slides = a->window_size != MFS_ABSENT && a->window_size > 0 &&
			    a->window_size < a->max_position_embeddings;

	number(k, "context_length", slides ? a->window_size : a->max_position_embeddings);
	return slides ? mfs_model_warn(
				model,
				"llama.cpp knows no window in a %s: context_length is that "
				"of the window, %lld, within which all are seen, and not %lld",
				model->family->name, (long long)a->window_size,
				(long long)a->max_position_embeddings)
		      : 0;
}

static void add_attention(struct keys *k, const struct mfs_megatron_args *a)
{
	number(k, "attention.head_count", a->num_attention_heads);
	number(k, "attention.head_count_kv", a->num_query_groups);
	number(k, "attention.key_length", a->kv_channels);
	number(k, "attention.value_length", a->kv_channels);
	mfs_gguf_f32(k->g, key(k, "attention.layer_norm_rms_epsilon"), a->norm_epsilon);
}

static void add_positions(struct keys *k, const struct mfs_model *model,
			  const struct mfs_megatron_args *a)
{
	number(k, "rope.dimension_count", a->kv_channels);
	mfs_gguf_f32(k->g, key(k, "rope.freq_base"), a->rotary_base);
	if (!(model->features & MFS_HAS(ROPE_LINEAR)))
		return;
	mfs_gguf_text(k->g, key(k, "rope.scaling.type"), "linear");
	mfs_gguf_f32(k->g, key(k, "rope.scaling.factor"), a->rotary_seq_len_interpolation_factor);
}

static void add_experts(struct keys *k, const struct mfs_megatron_args *a)
{
	number(k, "expert_count", a->num_experts);
	number(k, "expert_used_count", a->moe_router_topk);
	number(k, "expert_feed_forward_length", a->moe_ffn_hidden_size);
}

/* What front ends of llama.cpp list it as: "llama 8.0B". Not the directory's name: gateways that
 * have one storage at different places give the same bytes. */
static void add_name(struct mfs_gguf *g, const struct mfs_model *model)
{
	static const struct {
		double least;
		const char *unit;
	} sizes[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}, {0, ""}};
	const double count = (double)model->parameters;
	char text[96];
	size_t i = 0;

	while (count < sizes[i].least)
		i++;
	snprintf(text, sizeof(text), "%s %.*f%s", model->family->name, sizes[i].least > 0,
		 sizes[i].least > 0 ? count / sizes[i].least : count, sizes[i].unit);
	mfs_gguf_text(g, "general.name", text);
}

/* gguf/constants.py: LlamaFileType. */
static uint32_t file_type(enum mfs_dtype dtype)
{
	return dtype == MFS_BF16 ? 32 : 1;
}

int mfs_gguf_add_keys(struct mfs_gguf *g, struct mfs_model *model, enum mfs_dtype dtype,
		      struct mfs_error *err)
{
	const struct mfs_megatron_args *a = mfs_ckpt_args(model->ckpt);
	struct keys k = {.g = g, .architecture = model->family->gguf};
	const bool moe = model->features & MFS_HAS(MOE);
	int rc;

	mfs_gguf_text(g, "general.architecture", k.architecture);
	mfs_gguf_text(g, "general.type", "model");
	add_name(g, model);
	mfs_gguf_u32(g, "general.file_type", file_type(dtype));
	mfs_gguf_u32(g, "general.quantization_version", QUANTIZATION_VERSION);
	number(&k, "block_count", a->num_layers);
	rc = add_context(&k, model, a);
	number(&k, "embedding_length", a->hidden_size);
	number(&k, "feed_forward_length", a->ffn_hidden_size);
	number(&k, "vocab_size", (int64_t)model->vocab.rows);
	add_attention(&k, a);
	add_positions(&k, model, a);
	if (moe)
		add_experts(&k, a);
	return rc ? mfs_fail_nomem(err) : 0;
}

/* ---- the tokenizer ---- */

static void add_token(struct mfs_gguf *g, const char *name, int64_t theirs, int64_t otherwise)
{
	const int64_t id = theirs != MFS_ABSENT ? theirs : otherwise;

	if (id != MFS_ABSENT)
		mfs_gguf_u32(g, name, (uint32_t)id);
}

static void add_bpe(struct mfs_gguf *g, const struct mfs_bpe *bpe,
		    const struct mfs_hf_tokens *extra)
{
	mfs_gguf_text(g, "tokenizer.ggml.model", "gpt2");
	mfs_gguf_text(g, "tokenizer.ggml.pre", bpe->pre);
	mfs_gguf_array(g, "tokenizer.ggml.tokens", MFS_GGUF_TEXT, bpe->count);
	for (uint32_t i = 0; i < bpe->count; i++)
		mfs_gguf_element_text(g, bpe->tokens[i].text, bpe->tokens[i].len);
	mfs_gguf_array(g, "tokenizer.ggml.token_type", MFS_GGUF_I32, bpe->count);
	for (uint32_t i = 0; i < bpe->count; i++)
		mfs_gguf_element_i32(g, (int32_t)bpe->tokens[i].type);
	mfs_gguf_array(g, "tokenizer.ggml.merges", MFS_GGUF_TEXT, bpe->merge_count);
	for (uint32_t i = 0; i < bpe->merge_count; i++)
		mfs_gguf_element_text(g, bpe->merges[i].text, bpe->merges[i].len);
	add_token(g, "tokenizer.ggml.bos_token_id", bpe->special.bos, extra->bos);
	add_token(g, "tokenizer.ggml.eos_token_id", bpe->special.eos, extra->eos);
	add_token(g, "tokenizer.ggml.padding_token_id", bpe->special.pad, extra->pad);
	mfs_gguf_bool(g, "tokenizer.ggml.add_bos_token", bpe->add_bos);
	mfs_gguf_bool(g, "tokenizer.ggml.add_eos_token", bpe->add_eos);
	if (bpe->chat_template)
		mfs_gguf_text(g, "tokenizer.chat_template", bpe->chat_template);
}

/* *ret stays NULL if there is no such file. */
static int slurp(struct mfs_fileset *files, const char *name, uint64_t max, char **ret, size_t *len,
		 struct mfs_error *err)
{
	int rc;

	*ret = NULL;
	*len = 0;
	rc = mfs_hf_slurp_added(files, name, max, ret, len, err);
	return rc == -ENOENT ? 0 : rc;
}

struct texts {
	char *tokenizer, *config, *chat_template;
	size_t tokenizer_len, config_len, chat_template_len;
};

static int read_texts(struct mfs_fileset *files, struct texts *t, struct mfs_error *err)
{
	int rc = slurp(files, "tokenizer.json", MFS_HF_TOKENIZER_MAX, &t->tokenizer,
		       &t->tokenizer_len, err);

	if (!rc && !t->tokenizer)
		return mfs_fail(err, -ENOTSUP, "there is no tokenizer.json in %s",
				mfs_fileset_dir(files));
	if (!rc)
		rc = slurp(files, "tokenizer_config.json", MFS_HF_TOKENIZER_CONFIG_MAX, &t->config,
			   &t->config_len, err);
	if (!rc)
		rc = slurp(files, "chat_template.jinja", MFS_HF_TEMPLATE_MAX, &t->chat_template,
			   &t->chat_template_len, err);
	return rc;
}

static int read_bpe(struct mfs_fileset *files, uint64_t rows, struct mfs_bpe *bpe,
		    struct mfs_error *err)
{
	struct texts t = {0};
	int rc = read_texts(files, &t, err);

	if (!rc) {
		const struct mfs_bpe_files f = {t.tokenizer,	 t.config,     t.chat_template,
						t.tokenizer_len, t.config_len, t.chat_template_len};

		rc = mfs_bpe_parse(&f, rows, bpe, err);
		if (rc)
			mfs_fail_in(err, "%s", mfs_fileset_dir(files));
	}
	free(t.tokenizer);
	free(t.config);
	free(t.chat_template);
	return rc;
}

int mfs_gguf_add_tokenizer(struct mfs_gguf *g, struct mfs_model *model,
			   const struct mfs_gguf_extra *extra, struct mfs_fileset *files,
			   struct mfs_error *err)
{
	struct mfs_error why = {0};
	struct mfs_bpe bpe = {0};
	int rc = files ? read_bpe(files, model->vocab.rows, &bpe, &why)
		       : mfs_fail(&why, -ENOTSUP, "there is no tokenizer.json");

	if (!rc) {
		add_bpe(g, &bpe, &extra->tokens);
	} else if (rc == -ENOTSUP) {
		mfs_gguf_text(g, "tokenizer.ggml.model", "none");
		rc = mfs_model_warn(model,
				    "model.gguf has no tokenizer, and takes token ids alone: %s",
				    why.msg)
			     ? mfs_fail_nomem(err)
			     : 0;
	} else {
		mfs_error_set(err, rc, "%s", why.msg);
	}
	mfs_bpe_release(&bpe);
	return rc;
}
