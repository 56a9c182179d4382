#include "formats/hf/hf_tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/hf_json.h"

#define CONFIG	  "tokenizer_config.json"
#define TOKENIZER "tokenizer.json"

#define MAX_ID (1ll << 31) /* token ids are 32 bits wide everywhere */

/* ---- a scanner: finds values in JSON text without building anything ---- */

struct scan {
	const char *at, *end;
};

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(struct scan *s)
{
	while (s->at < s->end && is_space(*s->at))
		s->at++;
}

/* The next character that is no space, or NUL at the end. */
static char peek(struct scan *s)
{
	skip_space(s);
	return s->at < s->end ? *s->at : '\0';
}

static bool accept(struct scan *s, char c)
{
	if (peek(s) != c)
		return false;
	s->at++;
	return true;
}

/* A string; *ret covers what stands between the quotes, escapes included. */
static bool scan_string(struct scan *s, struct scan *ret)
{
	if (!accept(s, '"'))
		return false;
	ret->at = s->at;
	for (; s->at < s->end && *s->at != '"'; s->at++)
		if (*s->at == '\\' && ++s->at == s->end)
			return false;
	if (s->at >= s->end)
		return false;
	ret->end = s->at++;
	return true;
}

/* One token: a string, a bracket, a number or a word. False where there is none. */
static bool scan_token(struct scan *s, size_t *depth)
{
	struct scan text;

	switch (peek(s)) {
	case '\0':
		return false;
	case '"':
		return scan_string(s, &text);
	case '{':
	case '[':
		++*depth;
		break;
	case '}':
	case ']':
		if (!(*depth)--)
			return false;
		break;
	case ',':
	case ':':
		if (!*depth)
			return false;
		break;
	default:
		while (s->at < s->end && !is_space(*s->at) && !strchr("\"{}[],:", *s->at))
			s->at++;
		return true;
	}
	s->at++;
	return true;
}

/* Any value; *ret covers it. Brackets are counted and not matched by kind, because jansson parses
 * what is cut out here, or it is scanned again. */
static bool scan_value(struct scan *s, struct scan *ret)
{
	size_t depth = 0;

	skip_space(s);
	ret->at = s->at;
	do {
		if (!scan_token(s, &depth))
			return false;
	} while (depth);
	ret->end = s->at;
	return true;
}

/* Steps through the members of an object, whose '{' has been accepted. False: it has ended, or the
 * text is not such an object, and then *broken is set. */
static bool scan_member(struct scan *s, bool *first, struct scan *key, bool *broken)
{
	*broken = false;
	if (accept(s, '}'))
		return false;
	*broken = (!*first && !accept(s, ',')) || !scan_string(s, key) || !accept(s, ':');
	*first = false;
	return !*broken;
}

static bool is_key(const struct scan *key, const char *name)
{
	const size_t len = (size_t)(key->end - key->at);

	return len == strlen(name) && !memcmp(key->at, name, len);
}

/* The value of an object's member; false if there is none, or the text is broken before it. */
static bool find_member(struct scan object, const char *name, struct scan *ret)
{
	bool first = true, broken;
	struct scan key;

	if (!accept(&object, '{'))
		return false;
	while (scan_member(&object, &first, &key, &broken)) {
		if (!scan_value(&object, ret))
			return false;
		if (is_key(&key, name))
			return true;
	}
	return false;
}

/* Whether the text is one object whose brackets balance, with nothing behind it. A file that was
 * cut is not. */
static bool is_whole(struct scan text)
{
	struct scan object;

	return peek(&text) == '{' && scan_value(&text, &object) && !peek(&text);
}

/* A token id at the start of a value. */
static bool scan_id(const struct scan *value, int64_t *ret)
{
	int64_t id = 0;
	const char *p;

	for (p = value->at; p < value->end && *p >= '0' && *p <= '9'; p++) {
		id = id * 10 + (*p - '0');
		if (id >= MAX_ID)
			return false;
	}
	*ret = id;
	return p == value->end && p > value->at;
}

/* ---- the list of added tokens ---- */

/* *ret: an array of {"id", "content"}, or NULL if tokenizer.json has none. */
static int load_added(const char *tokenizer, size_t len, json_t **ret, struct mfs_error *err)
{
	struct scan whole, list;

	*ret = NULL;
	if (!tokenizer)
		return 0;
	whole = (struct scan){tokenizer, tokenizer + len};
	if (!is_whole(whole))
		return mfs_fail(err, -EINVAL, TOKENIZER ": not a JSON object, or cut short");
	if (!find_member(whole, "added_tokens", &list))
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
	return MFS_HF_NO_TOKEN;
}

/* {"0": {"content": ...}, ...} of tokenizer_config.json. */
static int64_t id_among_decoder(json_t *decoder, const char *content)
{
	const char *key, *text;
	json_t *token;
	int64_t id;

	json_object_foreach(decoder, key, token)
	{
		const struct scan digits = {key, key + strlen(key)};

		text = json_string_value(json_object_get(token, "content"));
		if (text && !strcmp(text, content) && scan_id(&digits, &id))
			return id;
	}
	return MFS_HF_NO_TOKEN;
}

static int64_t find_token(json_t *config, const json_t *added, const char *name)
{
	json_t *token = json_object_get(config, name);
	const char *content;
	int64_t id;

	content = json_string_value(json_is_object(token) ? json_object_get(token, "content")
							  : token);
	if (!content)
		return MFS_HF_NO_TOKEN;
	id = id_among_decoder(json_object_get(config, "added_tokens_decoder"), content);
	if (id == MFS_HF_NO_TOKEN)
		id = id_among_added(added, content);
	return id >= 0 && id < MAX_ID ? id : MFS_HF_NO_TOKEN;
}

int mfs_hf_tokens_parse(const char *config, size_t config_len, const char *tokenizer,
			size_t tokenizer_len, struct mfs_hf_tokens *ret, struct mfs_error *err)
{
	json_t *root, *added = NULL;
	int rc;

	/* Integers as reals: model_max_length is often 10^30. */
	rc = mfs_json_load(config, config_len, MFS_HF_TOKENIZER_CONFIG_MAX, JSON_DECODE_INT_AS_REAL,
			   CONFIG, &root, err);
	if (rc)
		return rc;
	rc = load_added(tokenizer, tokenizer_len, &added, err);
	if (!rc)
		*ret = (struct mfs_hf_tokens){.bos = find_token(root, added, "bos_token"),
					      .eos = find_token(root, added, "eos_token"),
					      .pad = find_token(root, added, "pad_token")};
	json_decref(added);
	json_decref(root);
	return rc;
}

int mfs_hf_tokens_read(const char *dir, struct mfs_hf_tokens *ret, struct mfs_error *err)
{
	char *config = NULL, *tokenizer = NULL;
	size_t config_len = 0, tokenizer_len = 0;
	int rc;

	*ret = (struct mfs_hf_tokens){MFS_HF_NO_TOKEN, MFS_HF_NO_TOKEN, MFS_HF_NO_TOKEN};
	rc = mfs_hf_slurp(dir, CONFIG, MFS_HF_TOKENIZER_CONFIG_MAX, &config, &config_len, err);
	if (rc == -ENOENT)
		return 0;
	if (!rc)
		rc = mfs_hf_slurp(dir, TOKENIZER, MFS_HF_TOKENIZER_MAX, &tokenizer, &tokenizer_len,
				  err);
	if (!rc || rc == -ENOENT)
		rc = mfs_hf_tokens_parse(config, config_len, tokenizer, tokenizer_len, ret, err);
	if (rc)
		mfs_fail_in(err, "%s", dir);
	free(config);
	free(tokenizer);
	return rc;
}

/* ---- how many tokens ---- */

/* Largest id of {"token": id, ...}; WordLevel, WordPiece, BPE. */
static bool largest_in_object(struct scan vocab, int64_t *largest)
{
	bool first = true, broken;
	struct scan key, value;
	int64_t id;

	if (!accept(&vocab, '{'))
		return false;
	while (scan_member(&vocab, &first, &key, &broken)) {
		if (!scan_value(&vocab, &value) || !scan_id(&value, &id))
			return false;
		if (id > *largest)
			*largest = id;
	}
	return !broken;
}

/* [["token", score], ...] of Unigram: the place is the id. */
static bool largest_in_list(struct scan vocab, int64_t *largest)
{
	struct scan value;

	if (!accept(&vocab, '['))
		return false;
	if (accept(&vocab, ']'))
		return true;
	do {
		if (!scan_value(&vocab, &value) || ++*largest >= MAX_ID)
			return false;
	} while (accept(&vocab, ','));
	return accept(&vocab, ']');
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
	const struct scan whole = {tokenizer, tokenizer + len};
	struct scan model, vocab;
	int64_t largest = -1;
	int rc;

	if (!find_member(whole, "model", &model) || !find_member(model, "vocab", &vocab))
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
