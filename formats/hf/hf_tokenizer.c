#include "formats/hf/hf_tokenizer.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/hf/hf_json.h"
#include "formats/hf/json_scan.h"

#define CONFIG	  "tokenizer_config.json"
#define MAP	  "special_tokens_map.json"
#define TOKENIZER "tokenizer.json"

#define MAX_ID MFS_SCAN_MAX_ID

/* ---- the list of added tokens ---- */

/* *ret: an array of {"id", "content"}, or NULL if tokenizer.json has none. */
static int load_added(const char *tokenizer, size_t len, json_t **ret, struct mfs_error *err)
{
	struct mfs_scan whole, list;

	*ret = NULL;
	if (!tokenizer)
		return 0;
	whole = (struct mfs_scan){tokenizer, tokenizer + len};
	if (!mfs_scan_is_whole(whole))
		return mfs_fail(err, -EINVAL, TOKENIZER ": not a JSON object, or cut short");
	if (!mfs_scan_find(whole, "added_tokens", &list))
		return 0;
	return mfs_json_load(list.at, (size_t)(list.end - list.at), MFS_HF_TOKENIZER_CONFIG_MAX,
			     JSON_DECODE_ANY, TOKENIZER " added_tokens", ret, err);
}

static int64_t id_among_added(const json_t *added, const char *content)
{
	json_t *token, *id;
	const char *text;
	size_t i;

	json_array_foreach(added, i, token)
	{
		text = json_string_value(json_object_get(token, "content"));
		id = json_object_get(token, "id");
		if (text && json_is_integer(id) && !strcmp(text, content))
			return json_integer_value(id);
	}
	return MFS_ABSENT;
}

/* {"0": {"content": ...}, ...} of tokenizer_config.json. */
static int64_t id_among_decoder(json_t *decoder, const char *content)
{
	const char *key, *text;
	json_t *token;
	int64_t id;

	json_object_foreach(decoder, key, token)
	{
		const struct mfs_scan digits = {key, key + strlen(key)};

		text = json_string_value(json_object_get(token, "content"));
		if (text && !strcmp(text, content) && mfs_scan_id(&digits, &id))
			return id;
	}
	return MFS_ABSENT;
}

/* ---- the vocabulary of tokenizer.json ---- */

/* A string as jansson would have it is `content`. */
static bool is_content(const struct mfs_scan *string, const char *content)
{
	const size_t len = (size_t)(string->end - string->at);
	char *decoded;
	bool same;

	if (!memchr(string->at, '\\', len))
		return mfs_scan_is(string, content);
	decoded = malloc(len);
	same = decoded && mfs_scan_decode(string, decoded) == strlen(content) &&
	       !memcmp(decoded, content, strlen(content));
	free(decoded);
	return same;
}

/* {"token": id, ...}; WordLevel, WordPiece, BPE. */
static int64_t id_in_object(struct mfs_scan vocab, const char *content)
{
	bool first = true, broken;
	struct mfs_scan key, value;
	int64_t id;

	if (!mfs_scan_accept(&vocab, '{'))
		return MFS_ABSENT;
	while (mfs_scan_member(&vocab, &first, &key, &broken))
		if (!mfs_scan_value(&vocab, &value) || !mfs_scan_id(&value, &id))
			return MFS_ABSENT;
		else if (is_content(&key, content))
			return id;
	return MFS_ABSENT;
}

/* [["token", score], ...] of Unigram: the place is the id. */
static int64_t id_in_list(struct mfs_scan vocab, const char *content)
{
	struct mfs_scan pair, text;

	if (!mfs_scan_accept(&vocab, '['))
		return MFS_ABSENT;
	for (int64_t id = 0; id < MAX_ID && mfs_scan_value(&vocab, &pair); id++) {
		if (mfs_scan_accept(&pair, '[') && mfs_scan_string(&pair, &text) &&
		    is_content(&text, content))
			return id;
		if (!mfs_scan_accept(&vocab, ','))
			break;
	}
	return MFS_ABSENT;
}

static int64_t id_in_vocab(const struct mfs_hf_text *tokenizer, const char *content)
{
	struct mfs_scan whole, model, vocab;
	int64_t id;

	if (!tokenizer->text)
		return MFS_ABSENT;
	whole = (struct mfs_scan){tokenizer->text, tokenizer->text + tokenizer->len};
	if (!mfs_scan_find(whole, "model", &model) || !mfs_scan_find(model, "vocab", &vocab))
		return MFS_ABSENT;
	id = id_in_object(vocab, content);
	return id != MFS_ABSENT ? id : id_in_list(vocab, content);
}

/* ---- the special tokens ---- */

const char *const mfs_hf_token_names[8] = {"bos_token",	 "eos_token", "pad_token", "unk_token",
					   "mask_token", "sep_token", "cls_token", NULL};

struct finder {
	const struct mfs_hf_token_files *files;
	json_t *config, *map; /* NULL: no such file */
	json_t *added;	      /* of tokenizer.json; NULL: none */
};

/* What a class takes for padding where nobody mentions it (transformers 5,
 * models/.../tokenization_....py); those that GPTModels have. */
static const struct {
	const char *class_name, *pad;
} classes[] = {
	{"CohereTokenizer", "<PAD>"},	       {"GPTNeoXTokenizer", "<|padding|>"},
	{"GemmaTokenizer", "<pad>"},	       {"Qwen2Tokenizer", "<|endoftext|>"},
	{"Qwen3_5Tokenizer", "<|endoftext|>"},
};

static const char *pad_of_class(const json_t *config)
{
	const char *name = json_string_value(json_object_get(config, "tokenizer_class"));

	for (size_t i = 0; name && i < MFS_ARRAY_SIZE(classes); i++) {
		const size_t len = strlen(classes[i].class_name);

		if (!strncmp(name, classes[i].class_name, len) &&
		    (!name[len] || !strcmp(name + len, "Fast")))
			return classes[i].pad;
	}
	return NULL;
}

/* What the files have of a name; NULL: they do not mention it. */
static json_t *mention_of(const struct finder *f, const char *name)
{
	json_t *token = NULL;

	if (!json_object_get(f->config, "added_tokens_decoder"))
		token = json_object_get(f->map, name);
	return token ? token : json_object_get(f->config, name);
}

static const char *content_of(const struct finder *f, const char *name)
{
	json_t *token = mention_of(f, name);

	if (!token)
		return strcmp(name, "pad_token") ? NULL : pad_of_class(f->config);
	return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
}

static int64_t find_token(const struct finder *f, const char *name)
{
	const char *content = content_of(f, name);
	int64_t id;

	if (!content)
		return MFS_ABSENT;
	id = id_among_decoder(json_object_get(f->config, "added_tokens_decoder"), content);
	if (id == MFS_ABSENT)
		id = id_among_added(f->added, content);
	if (id == MFS_ABSENT)
		id = id_in_vocab(&f->files->tokenizer, content);
	return id >= 0 && id < MAX_ID ? id : MFS_ABSENT;
}

/* Integers as reals: model_max_length is often 10^30. */
static int load_names(const struct mfs_hf_text *file, const char *name, json_t **ret,
		      struct mfs_error *err)
{
	*ret = NULL;
	return file->text ? mfs_json_load(file->text, file->len, MFS_HF_TOKENIZER_CONFIG_MAX,
					  JSON_DECODE_INT_AS_REAL, name, ret, err)
			  : 0;
}

/* In the order of mfs_hf_token_names. */
static void find_tokens(const struct finder *f, struct mfs_hf_tokens *ret)
{
	int64_t *const to[] = {&ret->bos,  &ret->eos, &ret->pad, &ret->unk,
			       &ret->mask, &ret->sep, &ret->cls};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(to); i++)
		*to[i] = find_token(f, mfs_hf_token_names[i]);
}

int mfs_hf_tokens_parse(const struct mfs_hf_token_files *files, struct mfs_hf_tokens *ret,
			struct mfs_error *err)
{
	struct finder f = {.files = files};
	int rc = load_names(&files->config, CONFIG, &f.config, err);

	if (!rc)
		rc = load_names(&files->map, MAP, &f.map, err);
	if (!rc)
		rc = load_added(files->tokenizer.text, files->tokenizer.len, &f.added, err);
	if (!rc)
		find_tokens(&f, ret);
	json_decref(f.added);
	json_decref(f.map);
	json_decref(f.config);
	return rc;
}

/* A file that does not exist is no text. *ret is to be freed. */
static int slurp(const char *dir, const char *name, uint64_t max, struct mfs_hf_text *file,
		 char **ret, struct mfs_error *err)
{
	const int rc = mfs_hf_slurp(dir, name, max, ret, &file->len, err);

	file->text = *ret;
	return rc == -ENOENT ? 0 : rc;
}

int mfs_hf_tokens_read(const char *dir, struct mfs_hf_tokens *ret, struct mfs_error *err)
{
	char *config = NULL, *map = NULL, *tokenizer = NULL;
	struct mfs_hf_token_files files = {0};
	int rc;

	*ret = (struct mfs_hf_tokens)MFS_HF_TOKENS_ABSENT;
	rc = slurp(dir, CONFIG, MFS_HF_TOKENIZER_CONFIG_MAX, &files.config, &config, err);
	if (!rc)
		rc = slurp(dir, MAP, MFS_HF_TOKENIZER_CONFIG_MAX, &files.map, &map, err);
	if (!rc && (config || map))
		rc = slurp(dir, TOKENIZER, MFS_HF_TOKENIZER_MAX, &files.tokenizer, &tokenizer, err);
	if (!rc)
		rc = mfs_hf_tokens_parse(&files, ret, err);
	if (rc)
		mfs_fail_in(err, "%s", dir);
	free(config);
	free(map);
	free(tokenizer);
	return rc;
}

/* ---- their texts ---- */

static json_t *texts_of(const struct finder *f)
{
	json_t *texts = json_object();

	for (const char *const *name = mfs_hf_token_names; *name; name++) {
		const char *content = content_of(f, *name);

		if (content)
			json_object_set_new(texts, *name, json_string(content));
		else if (mention_of(f, *name))
			json_object_set_new(texts, *name, json_null());
	}
	return texts;
}

int mfs_hf_token_texts_read(const char *dir, json_t **ret, json_t **ret_config,
			    struct mfs_error *err)
{
	char *config = NULL, *map = NULL;
	struct mfs_hf_token_files files = {0};
	struct finder f = {.files = &files};
	int rc = slurp(dir, CONFIG, MFS_HF_TOKENIZER_CONFIG_MAX, &files.config, &config, err);

	if (!rc)
		rc = slurp(dir, MAP, MFS_HF_TOKENIZER_CONFIG_MAX, &files.map, &map, err);
	if (!rc)
		rc = load_names(&files.config, CONFIG, &f.config, err);
	if (!rc)
		rc = load_names(&files.map, MAP, &f.map, err);
	if (rc) {
		mfs_fail_in(err, "%s", dir);
		json_decref(f.config);
	} else {
		*ret = texts_of(&f);
		*ret_config = f.config;
	}
	json_decref(f.map);
	free(config);
	free(map);
	return rc;
}

/* ---- how many tokens ---- */

/* Largest id of {"token": id, ...}; WordLevel, WordPiece, BPE. */
static bool largest_in_object(struct mfs_scan vocab, int64_t *largest)
{
	bool first = true, broken;
	struct mfs_scan key, value;
	int64_t id;

	if (!mfs_scan_accept(&vocab, '{'))
		return false;
	while (mfs_scan_member(&vocab, &first, &key, &broken)) {
		if (!mfs_scan_value(&vocab, &value) || !mfs_scan_id(&value, &id))
			return false;
		if (id > *largest)
			*largest = id;
	}
	return !broken;
}

/* [["token", score], ...] of Unigram: the place is the id. */
static bool largest_in_list(struct mfs_scan vocab, int64_t *largest)
{
	struct mfs_scan value;

	if (!mfs_scan_accept(&vocab, '['))
		return false;
	if (mfs_scan_accept(&vocab, ']'))
		return true;
	do {
		if (!mfs_scan_value(&vocab, &value) || ++*largest >= MAX_ID)
			return false;
	} while (mfs_scan_accept(&vocab, ','));
	return mfs_scan_accept(&vocab, ']');
}

static int largest_added(const char *tokenizer, size_t len, int64_t *largest, struct mfs_error *err)
{
	json_t *added, *token;
	size_t i;
	int rc;

	rc = load_added(tokenizer, len, &added, err);
	if (rc)
		return rc;
	json_array_foreach(added, i, token)
	{
		int64_t id = json_integer_value(json_object_get(token, "id"));

		if (id > *largest)
			*largest = id;
	}
	json_decref(added);
	return *largest < MAX_ID
		       ? 0
		       : mfs_fail(err, -EINVAL, TOKENIZER ": an added token's id is too large");
}

int mfs_hf_token_count_parse(const char *tokenizer, size_t len, uint64_t *ret,
			     struct mfs_error *err)
{
	const struct mfs_scan whole = {tokenizer, tokenizer + len};
	struct mfs_scan model, vocab;
	int64_t largest = -1;
	int rc;

	if (!mfs_scan_find(whole, "model", &model) || !mfs_scan_find(model, "vocab", &vocab))
		return mfs_fail(err, -EINVAL, TOKENIZER ": model.vocab is missing");
	if (!largest_in_object(vocab, &largest) && !largest_in_list(vocab, &largest))
		return mfs_fail(err, -EINVAL,
				TOKENIZER ": model.vocab is neither a table nor a list");
	rc = largest_added(tokenizer, len, &largest, err);
	if (rc)
		return rc;
	*ret = (uint64_t)(largest + 1);
	return 0;
}

int mfs_hf_token_count_read(const char *dir, uint64_t *ret, struct mfs_error *err)
{
	char *tokenizer;
	size_t len;
	int rc;

	rc = mfs_hf_slurp(dir, TOKENIZER, MFS_HF_TOKENIZER_MAX, &tokenizer, &len, err);
	if (rc == -ENOENT)
		return mfs_fail(err, -ENODATA,
				"%s: no " TOKENIZER ", and vocab_size=tokenizer counts its tokens",
				dir);
	if (rc)
		return rc;
	rc = mfs_hf_token_count_parse(tokenizer, len, ret, err);
	if (rc)
		mfs_fail_in(err, "%s", dir);
	free(tokenizer);
	return rc;
}
