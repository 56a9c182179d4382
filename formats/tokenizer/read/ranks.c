#include "formats/tokenizer/read/ranks.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/base64.h"
#include "formats/tokenizer/models/bpe_model.h"
#include "formats/tokenizer/pipeline/text_pipeline.h"

int mfs_ranks_add(struct mfs_tokenizer *tok, uint64_t id, const char *base64, size_t len,
		  struct mfs_error *err)
{
	struct mfs_buf bytes = {0};
	const char *text = NULL;
	int rc = mfs_base64_decode(base64, len, &bytes, err);

	if (!rc && !bytes.len)
		rc = mfs_fail(err, -EINVAL, "the token of id %llu has no bytes",
			      (unsigned long long)id);
	if (!rc && bytes.len > MFS_TOKEN_BYTES_MAX)
		rc = mfs_fail(err, -EINVAL,
			      "the token of id %llu has %zu bytes; expected at most %u",
			      (unsigned long long)id, bytes.len, MFS_TOKEN_BYTES_MAX);
	if (!rc) {
		text = mfs_arena_strndup(&tok->arena, bytes.data, bytes.len);
		rc = text ? 0 : mfs_fail_nomem(err);
	}
	if (!rc)
		rc = mfs_token_table_set(&tok->tokens, id, text, bytes.len, err);
	mfs_buf_release(&bytes);
	return rc;
}

int mfs_ranks_special(struct mfs_tokenizer *tok, const char *text, size_t len, uint32_t id,
		      struct mfs_error *err)
{
	const char *copy = mfs_arena_strndup(&tok->arena, text, len);
	const struct mfs_added_token token = {.text = copy,
					      .len = (uint32_t)len,
					      .id = id,
					      .pattern = copy,
					      .pattern_len = (uint32_t)len,
					      .special = true};

	if (!copy)
		return mfs_fail_nomem(err);
	if (!len || len > MFS_TOKEN_BYTES_MAX)
		return mfs_fail(err, -EINVAL, "a special token of %zu bytes", len);
	if (mfs_added_tokens_by_text(&tok->added, text, len))
		return mfs_fail(err, -EINVAL, "the special token \"%.*s\" is there twice",
				(int)(len < 60 ? len : 60), text);
	return mfs_added_tokens_add(&tok->added, &token, err);
}

/* Each two tokens that are a third together. */
static int add_merges(const struct mfs_token_table *tokens, uint32_t id,
		      struct mfs_word_model *model, struct mfs_error *err)
{
	const struct mfs_token *token = &tokens->at[id];
	uint32_t left, right;
	int rc = 0;

	for (uint32_t cut = 1; cut < token->len && !rc; cut++) {
		left = mfs_token_table_find(tokens, token->text, cut);
		right = left == MFS_NO_ID
				? MFS_NO_ID
				: mfs_token_table_find(tokens, token->text + cut, token->len - cut);
		if (right != MFS_NO_ID)
			rc = mfs_bpe_model_merge_into(model, left, right, id, id, err);
	}
	return rc;
}

static int make_model(struct mfs_tokenizer *tok, struct mfs_text_pipeline *p, struct mfs_error *err)
{
	const struct mfs_bpe_options options = {
		.unk = MFS_NO_ID, .ignore_merges = true, .from_bytes = true};
	int rc = mfs_token_table_index(&tok->tokens, err);

	for (unsigned byte = 0; byte < 256 && !rc; byte++) {
		const char one = (char)byte;

		if (mfs_token_table_find(&tok->tokens, &one, 1) == MFS_NO_ID)
			rc = mfs_fail(err, -EINVAL, "no token is the byte 0x%02x", byte);
	}
	if (!rc)
		rc = mfs_bpe_model_new(&tok->tokens, &options, &p->model, err);
	for (uint32_t id = 0; id < tok->tokens.count && !rc; id++)
		if (tok->tokens.at[id].text)
			rc = add_merges(&tok->tokens, id, p->model, err);
	return rc;
}

/* Ids and texts are one to one. */
static int check_twice(const struct mfs_tokenizer *tok, struct mfs_error *err)
{
	for (uint32_t id = 0; id < tok->tokens.count; id++) {
		const struct mfs_token *token = &tok->tokens.at[id];

		if (!token->text)
			continue;
		if (mfs_token_table_find(&tok->tokens, token->text, token->len) != id)
			return mfs_fail(err, -EINVAL, "two ids have the bytes of id %u", id);
		if (mfs_added_tokens_by_id(&tok->added, id))
			return mfs_fail(err, -EINVAL, "id %u is a token's and a special token's",
					id);
	}
	return 0;
}

int mfs_ranks_finish(struct mfs_tokenizer *tok, const char *pattern, bool match_specials,
		     struct mfs_error *err)
{
	struct mfs_text_pipeline *p = mfs_text_pipeline_begin(tok);
	struct mfs_regex *regex;
	int rc = p ? mfs_regex_new(pattern, strlen(pattern), MFS_REGEX_RUST, &regex, err)
		   : mfs_fail_nomem(err);

	if (!rc)
		rc = mfs_pre_tokenizers_add_split(&p->pre_tokenizers, regex, err);
	if (!rc)
		rc = mfs_token_decoders_add_bytes(&p->decoders, err);
	for (uint32_t i = 0; i < tok->added.count && !match_specials; i++)
		tok->added.at[i].normalized = true; /* see below */
	if (!rc)
		rc = mfs_added_tokens_index(&tok->added, err);
	/* Nothing is looked for then. */
	if (!match_specials)
		mfs_byte_trie_release(&tok->added.normalized);
	if (!rc)
		rc = make_model(tok, p, err);
	return rc ? rc : check_twice(tok, err);
}

int mfs_ranks_compose(struct mfs_tokenizer *tok, struct mfs_error *err)
{
	struct mfs_text_pipeline *p = tok->impl;
	json_t *nfc = json_pack("{s:s}", "type", "NFC");
	const int rc = nfc ? mfs_normalizers_read(&p->normalizers, nfc, err) : mfs_fail_nomem(err);

	json_decref(nfc);
	return rc;
}

int64_t mfs_ranks_role(const struct mfs_tokenizer *tok, const char *text)
{
	const struct mfs_added_token *token =
		mfs_added_tokens_by_text(&tok->added, text, strlen(text));

	return token ? (int64_t)token->id : MFS_ABSENT;
}

/* ---- lists in JSON ---- */

static bool is_string(const struct mfs_scan *value)
{
	return value->end - value->at >= 2 && *value->at == '"';
}

static int add_entry(struct mfs_tokenizer *tok, struct mfs_scan entry, uint64_t place,
		     uint64_t offset, struct mfs_error *err)
{
	struct mfs_scan rank, bytes;
	int64_t value;

	if (!mfs_scan_find(entry, "rank", &rank) || !mfs_scan_id(&rank, &value) ||
	    !mfs_scan_find(entry, "token_bytes", &bytes) || !is_string(&bytes))
		return mfs_fail(err, -EINVAL,
				"entry %llu of the vocabulary has no rank or no token_bytes",
				(unsigned long long)place);
	if ((uint64_t)value != place)
		return mfs_fail(err, -EINVAL, "entry %llu of the vocabulary has the rank %lld",
				(unsigned long long)place, (long long)value);
	return mfs_ranks_add(tok, place + offset, bytes.at + 1, (size_t)(bytes.end - bytes.at) - 2,
			     err);
}

int mfs_ranks_add_list(struct mfs_tokenizer *tok, struct mfs_scan list, uint64_t offset,
		       uint64_t most, struct mfs_error *err)
{
	struct mfs_scan entry;
	uint64_t count = 0;
	int rc = 0;

	if (!mfs_scan_accept(&list, '['))
		return mfs_fail(err, -EINVAL, "the vocabulary is no list");
	if (mfs_scan_accept(&list, ']'))
		return 0;
	while (!rc && count < most) {
		if (!mfs_scan_value(&list, &entry))
			return mfs_fail(err, -EINVAL, "the vocabulary is not valid JSON");
		rc = add_entry(tok, entry, count++, offset, err);
		if (rc || mfs_scan_accept(&list, ']'))
			break;
		if (!mfs_scan_accept(&list, ','))
			return mfs_fail(err, -EINVAL, "the vocabulary is not valid JSON");
	}
	return rc;
}
