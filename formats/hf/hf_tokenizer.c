#include "formats/hf/hf_tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/hf_json.h"
#include "formats/hf/json_scan.h"

#define CONFIG	  "tokenizer_config.json"
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
		const struct mfs_scan digits = {key, key + strlen(key)};

		text = json_string_value(json_object_get(token, "content"));
		if (text && !strcmp(text, content) && mfs_scan_id(&digits, &id))
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
