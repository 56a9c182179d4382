/* tokenizer.json of HuggingFace tokenizers, with the files next to it that give tokens their
 * roles. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/path.h"
#include "formats/base/str.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/hf_tokenizer.h"
#include "formats/hf/json_scan.h"
#include "formats/tokenizer/read/model_json.h"
#include "formats/tokenizer/pipeline/part_json.h"
#include "formats/tokenizer/pipeline/text_pipeline.h"
#include "formats/tokenizer/token_ids.h"

#define PART_MAX (64u << 20) /* bytes of a part that becomes a tree */

struct reader {
	struct mfs_tokenizer *tok;
	struct mfs_text_pipeline *pipeline;
	struct mfs_scan version, added, normalizer, pre_tokenizer, post_processor, decoder, model;
	struct mfs_error *err;
};

static int find_parts(struct reader *r, struct mfs_scan object)
{
	const struct {
		const char *name;
		struct mfs_scan *ret;
	} wanted[] = {
		{"version", &r->version},
		{"added_tokens", &r->added},
		{"normalizer", &r->normalizer},
		{"pre_tokenizer", &r->pre_tokenizer},
		{"post_processor", &r->post_processor},
		{"decoder", &r->decoder},
		{"model", &r->model},
	};
	bool first = true, broken;
	struct mfs_scan key, value;

	if (!mfs_scan_is_whole(object) || !mfs_scan_accept(&object, '{'))
		return mfs_fail(r->err, -EINVAL, "not a JSON object, or cut short");
	while (mfs_scan_member(&object, &first, &key, &broken)) {
		if (!mfs_scan_value(&object, &value)) {
			broken = true;
			break;
		}
		for (size_t i = 0; i < MFS_ARRAY_SIZE(wanted); i++)
			if (mfs_scan_is(&key, wanted[i].name))
				*wanted[i].ret = value;
	}
	if (broken)
		return mfs_fail(r->err, -EINVAL, "not valid JSON");
	if (!r->model.at)
		return mfs_fail(r->err, -EINVAL, "model is missing");
	if (r->version.at && !mfs_scan_is(&r->version, "\"1.0\""))
		return mfs_fail(r->err, -ENOTSUP, "version %.*s is not known",
				(int)(r->version.end - r->version.at), r->version.at);
	return 0;
}

static int load(struct reader *r, const struct mfs_scan *part, const char *name, json_t **ret)
{
	*ret = NULL;
	if (!part->at)
		return 0;
	return mfs_json_load(part->at, (size_t)(part->end - part->at), PART_MAX,
			     JSON_DECODE_ANY | JSON_ALLOW_NUL, name, ret, r->err);
}

/* ---- the lists of steps ---- */

static int read_normalizer(struct reader *r)
{
	json_t *json;
	int rc = load(r, &r->normalizer, "normalizer", &json);

	if (!rc)
		rc = mfs_normalizers_read(&r->pipeline->normalizers, json, r->err);
	json_decref(json);
	return rc;
}

static int read_pre_tokenizer(struct reader *r)
{
	json_t *json;
	int rc = load(r, &r->pre_tokenizer, "pre_tokenizer", &json);

	if (!rc)
		rc = mfs_pre_tokenizers_read(&r->pipeline->pre_tokenizers, json, r->err);
	json_decref(json);
	return rc;
}

static int read_decoder(struct reader *r)
{
	json_t *json;
	int rc = load(r, &r->decoder, "decoder", &json);

	if (!rc)
		rc = mfs_token_decoders_read(&r->pipeline->decoders, json, r->err);
	json_decref(json);
	return rc;
}

static int read_model(struct reader *r)
{
	return mfs_model_json_read(r->tok, r->model, r->err);
}

/* ---- what is put around the ids ---- */

/* Ids before and after those that are there. */
static int wrap(struct reader *r, const struct mfs_token_ids *before,
		const struct mfs_token_ids *after)
{
	struct mfs_text_pipeline *p = r->pipeline;
	int rc;

	if ((before->count || after->count) && (p->before.count || p->after.count))
		return mfs_fail(r->err, -ENOTSUP, "post_processor: two of a Sequence add tokens");
	rc = mfs_token_ids_append(&p->before, before->at, before->count, r->err);
	return rc ? rc : mfs_token_ids_append(&p->after, after->at, after->count, r->err);
}

static int add_id(struct reader *r, struct mfs_token_ids *ids, const json_t *id)
{
	const json_int_t value = json_integer_value(id);
	const uint32_t small = (uint32_t)value;

	if (!json_is_integer(id) || value < 0 || value >= MFS_TOKEN_ID_MAX)
		return mfs_fail(r->err, -EINVAL, "post_processor: a token without an id");
	return mfs_token_ids_append(ids, &small, 1, r->err);
}

/* {"SpecialToken": {"id": name}}: all ids of special_tokens[name]. */
static int add_special(struct reader *r, const json_t *processor, const json_t *piece,
		       struct mfs_token_ids *ids)
{
	const char *name =
		json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
	const json_t *list = json_object_get(
		json_object_get(json_object_get(processor, "special_tokens"), name ? name : ""),
		"ids");
	json_t *id;
	size_t i;
	int rc = 0;

	if (!name || !json_is_array(list))
		return mfs_fail(r->err, -EINVAL,
				"post_processor: \"%s\" is none of its special_tokens",
				name ? name : "");
	json_array_foreach(list, i, id)
	{
		rc = rc ? rc : add_id(r, ids, id);
	}
	return rc;
}

static int read_template(struct reader *r, const json_t *processor)
{
	struct mfs_token_ids around[2] = {0};
	const json_t *single = json_object_get(processor, "single");
	unsigned texts = 0;
	json_t *piece;
	size_t i;
	int rc = json_is_array(single)
			 ? 0
			 : mfs_fail(r->err, -EINVAL, "post_processor: single is no list of pieces");

	json_array_foreach(single, i, piece)
	{
		const json_t *text = json_object_get(piece, "Sequence");

		if (rc)
			break;
		if (!text)
			rc = add_special(r, processor, piece, &around[texts == 1]);
		else if (++texts > 1 ||
			 !mfs_str_is(json_string_value(json_object_get(text, "id")), "A"))
			rc = mfs_fail(r->err, -ENOTSUP,
				      "post_processor: single has more than the text A");
	}
	if (!rc && !texts)
		rc = mfs_fail(r->err, -ENOTSUP, "post_processor: single has no text");
	if (!rc)
		rc = wrap(r, &around[0], &around[1]);
	free(around[0].at);
	free(around[1].at);
	return rc;
}

/* BertProcessing, RobertaProcessing: "cls" and "sep" are ["token", id]. */
static int read_cls_sep(struct reader *r, const json_t *processor)
{
	struct mfs_token_ids cls = {0}, sep = {0};
	int rc = add_id(r, &cls, json_array_get(json_object_get(processor, "cls"), 1));

	if (!rc)
		rc = add_id(r, &sep, json_array_get(json_object_get(processor, "sep"), 1));
	if (!rc)
		rc = wrap(r, &cls, &sep);
	free(cls.at);
	free(sep.at);
	return rc;
}

/* It changes offsets alone. */
static int read_offsets(struct reader *r, const json_t *processor)
{
	(void)r;
	(void)processor;
	return 0;
}

static int read_processors(struct reader *r, const json_t *processor);

static const struct {
	const char *type;
	int (*read)(struct reader *r, const json_t *processor);
} processors[] = {
	{"TemplateProcessing", read_template}, {"BertProcessing", read_cls_sep},
	{"RobertaProcessing", read_cls_sep},   {"ByteLevel", read_offsets},
	{"Sequence", read_processors},
};

static int read_processor(struct reader *r, const json_t *processor)
{
	const char *type = mfs_part_type(processor);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(processors); i++)
		if (mfs_str_is(type, processors[i].type))
			return processors[i].read(r, processor);
	return mfs_fail(r->err, -ENOTSUP, "post_processor \"%s\" is not known", type ? type : "");
}

/* jansson limits how deep it is. */
static int read_processors(struct reader *r, const json_t *processor)
{
	const json_t *list = json_object_get(processor, "processors");
	json_t *one;
	size_t i;
	int rc = 0;

	if (!json_is_array(list))
		return mfs_fail(r->err, -EINVAL, "post_processor Sequence has no processors");
	json_array_foreach(list, i, one)
	{
		rc = rc ? rc : read_processor(r, one);
	}
	return rc;
}

static int read_post_processor(struct reader *r)
{
	json_t *json;
	int rc = load(r, &r->post_processor, "post_processor", &json);

	if (!rc && json && !json_is_null(json))
		rc = read_processor(r, json);
	json_decref(json);
	return rc;
}

/* ---- added tokens ---- */

static int read_flags(struct reader *r, const json_t *json, struct mfs_added_token *token)
{
	const struct {
		const char *name;
		bool *ret;
	} flags[] = {
		{"single_word", &token->single_word}, {"lstrip", &token->lstrip},
		{"rstrip", &token->rstrip},	      {"normalized", &token->normalized},
		{"special", &token->special},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(flags); i++)
		if (mfs_part_bool(json, flags[i].name, flags[i].ret, r->err))
			return mfs_fail_in(r->err, "an added token");
	return 0;
}

/* What is looked for: the text, or what the normalizer makes of it. */
static int set_pattern(struct reader *r, struct mfs_added_token *token,
		       struct mfs_normalize_memory *memory)
{
	struct mfs_text_part part = {token->text, token->len, 0};
	int rc = token->normalized ? mfs_normalize(&r->pipeline->normalizers, memory, &part, r->err)
				   : 0;

	token->pattern = rc ? NULL : mfs_arena_strndup(&r->tok->arena, part.text, part.len);
	token->pattern_len = (uint32_t)part.len;
	return rc ? rc : token->pattern ? 0 : mfs_fail_nomem(r->err);
}

/* tokenizers takes no notice of the id that the file gives: it is the model's, or the next one. */
static int add_token(struct reader *r, const json_t *json, uint32_t *next,
		     struct mfs_normalize_memory *memory)
{
	const json_t *content = json_object_get(json, "content");
	struct mfs_added_token token = {.text = json_string_value(content),
					.len = (uint32_t)json_string_length(content)};
	const struct mfs_added_token *known;
	int rc = token.text ? read_flags(r, json, &token)
			    : mfs_fail(r->err, -EINVAL, "an added token without content");

	if (rc || !token.len)
		return rc;
	token.text = mfs_arena_strndup(&r->tok->arena, token.text, token.len);
	if (!token.text)
		return mfs_fail_nomem(r->err);
	known = mfs_added_tokens_by_text(&r->tok->added, token.text, token.len);
	token.id = known ? known->id : mfs_token_table_find(&r->tok->tokens, token.text, token.len);
	if (token.id == MFS_NO_ID)
		token.id = (*next)++;
	rc = set_pattern(r, &token, memory);
	if (!rc && !token.pattern_len)
		rc = mfs_fail(r->err, -ENOTSUP,
			      "the normalizer leaves nothing of the added token \"%s\"",
			      token.text);
	return rc ? rc : mfs_added_tokens_add(&r->tok->added, &token, r->err);
}

static int read_added(struct reader *r)
{
	struct mfs_normalize_memory memory = {0};
	uint32_t next = r->tok->tokens.used;
	json_t *json, *token;
	size_t i;
	int rc = load(r, &r->added, "added_tokens", &json);

	if (!rc && json && !json_is_array(json))
		rc = mfs_fail(r->err, -EINVAL, "added_tokens is no list");
	if (!rc)
		rc = mfs_regex_memory_new(&memory.regex, r->err);
	json_array_foreach(json, i, token)
	{
		rc = rc ? rc : add_token(r, token, &next, &memory);
	}
	mfs_regex_memory_free(memory.regex);
	mfs_buf_release(&memory.even);
	mfs_buf_release(&memory.odd);
	json_decref(json);
	return rc ? rc : mfs_added_tokens_index(&r->tok->added, r->err);
}

/* ---- roles ---- */

/* A file next to tokenizer.json; one that is not there is no text. The caller frees it. */
static int slurp(const char *dir, const char *name, struct mfs_hf_text *ret, struct mfs_error *err)
{
	char *text = NULL;
	const int rc = mfs_hf_slurp(dir, name, MFS_HF_TOKENIZER_CONFIG_MAX, &text, &ret->len, err);

	ret->text = text;
	return rc == -ENOENT ? 0 : rc;
}

static int read_roles(struct reader *r, const char *path, const char *text, size_t len)
{
	struct mfs_hf_token_files files = {.tokenizer = {text, len}};
	struct mfs_hf_tokens found;
	char *dir = mfs_path_parent(path);
	int rc = dir ? 0 : mfs_fail_nomem(r->err);

	if (!rc)
		rc = slurp(dir, "tokenizer_config.json", &files.config, r->err);
	if (!rc)
		rc = slurp(dir, "special_tokens_map.json", &files.map, r->err);
	if (!rc && files.config.text)
		mfs_tokenizer_add_file(r->tok, files.config.text, files.config.len);
	if (!rc && files.map.text)
		mfs_tokenizer_add_file(r->tok, files.map.text, files.map.len);
	if (!rc && (files.config.text || files.map.text)) {
		rc = mfs_hf_tokens_parse(&files, &found, r->err);
		if (!rc)
			r->tok->roles = (struct mfs_tokenizer_roles){
				found.bos,  found.eos, found.pad, found.unk,
				found.mask, found.sep, found.cls};
	}
	free((char *)files.config.text);
	free((char *)files.map.text);
	free(dir);
	return rc;
}

int mfs_tokenizer_json_read(struct mfs_tokenizer *tok, const char *path, const char *text,
			    size_t len, struct mfs_error *err)
{
	static int (*const steps[])(struct reader *) = {
		read_model,	     read_normalizer, read_pre_tokenizer,
		read_post_processor, read_decoder,    read_added,
	};
	struct reader r = {.tok = tok, .pipeline = mfs_text_pipeline_begin(tok), .err = err};
	int rc = r.pipeline ? find_parts(&r, (struct mfs_scan){text, text + len})
			    : mfs_fail_nomem(err);

	for (size_t i = 0; i < MFS_ARRAY_SIZE(steps) && !rc; i++)
		rc = steps[i](&r);
	return rc ? rc : read_roles(&r, path, text, len);
}
