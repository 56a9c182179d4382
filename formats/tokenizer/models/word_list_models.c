#include "formats/tokenizer/models/word_list_models.h"

#include <stdlib.h>

#include "formats/tokenizer/token_ids.h"
#include "formats/tokenizer/unicode/utf8.h"

struct word_list {
	struct mfs_word_model base;
	struct mfs_wordpiece_options options;
	size_t longest; /* bytes of the longest token */
};

static int add_unknown(const struct word_list *m, const char *word, size_t len,
		       struct mfs_token_ids *ids, struct mfs_error *err)
{
	if (m->options.unk == MFS_NO_ID)
		return mfs_fail(err, -ENODATA,
				"the model has no token for \"%.*s\", and none for what is unknown",
				(int)(len < 60 ? len : 60), word);
	return mfs_token_ids_append(ids, &m->options.unk, 1, err);
}

static int encode_level(const struct mfs_word_model *model, struct mfs_word_scratch *scratch,
			const char *word, size_t len, struct mfs_token_ids *ids,
			struct mfs_error *err)
{
	const uint32_t id = mfs_token_table_find(model->tokens, word, len);

	(void)scratch;
	return id == MFS_NO_ID ? add_unknown((const struct word_list *)model, word, len, ids, err)
			       : mfs_token_ids_append(ids, &id, 1, err);
}

/* The longest token at the begin of text. *ret_len: its bytes of text; 0: there is none. */
static uint32_t longest(const struct word_list *m, struct mfs_buf *b, const char *text, size_t len,
			size_t *ret_len)
{
	uint32_t id;
	size_t size;

	/* b holds the prefix, and the text after it */
	for (*ret_len = len; *ret_len; *ret_len -= size) {
		id = mfs_token_table_find(m->base.tokens, b->data, b->len - (len - *ret_len));
		if (id != MFS_NO_ID)
			return id;
		mfs_utf8_before(text + *ret_len, &size);
	}
	return MFS_NO_ID;
}

/* As much of a text as can be a token. */
static size_t reach(const struct word_list *m, const char *text, size_t len)
{
	if (len <= m->longest)
		return len;
	len = m->longest;
	while (len && ((uint8_t)text[len] & 0xc0) == 0x80)
		len--;
	return len;
}

static size_t count_characters(const char *word, size_t len)
{
	size_t count = 0;

	for (size_t i = 0; i < len; i += mfs_utf8_size(word[i]))
		count++;
	return count;
}

static int encode_pieces(const struct mfs_word_model *model, struct mfs_word_scratch *scratch,
			 const char *word, size_t len, struct mfs_token_ids *ids,
			 struct mfs_error *err)
{
	const struct word_list *m = (const struct word_list *)model;
	struct mfs_buf *b = &scratch->bytes;
	const size_t begin = ids->count;
	size_t at = 0, used;
	int rc = 0;

	if (count_characters(word, len) > m->options.max_characters)
		return add_unknown(m, word, len, ids, err);
	for (; at < len && !rc; at += used) {
		const size_t most = reach(m, word + at, len - at);
		uint32_t id;

		b->len = 0;
		if (at)
			mfs_buf_add(b, m->options.prefix, m->options.prefix_len);
		mfs_buf_add(b, word + at, most);
		if (b->failed)
			return mfs_fail_nomem(err);
		id = longest(m, b, word + at, most, &used);
		if (id == MFS_NO_ID) {
			ids->count = begin;
			return add_unknown(m, word, len, ids, err);
		}
		rc = mfs_token_ids_append(ids, &id, 1, err);
	}
	return rc;
}

static void free_model(struct mfs_word_model *model)
{
	free(model);
}

static const struct mfs_word_model_ops piece_ops = {.encode = encode_pieces, .free = free_model};
static const struct mfs_word_model_ops level_ops = {.encode = encode_level, .free = free_model};

static int new_model(const struct mfs_word_model_ops *ops, const struct mfs_token_table *tokens,
		     const struct mfs_wordpiece_options *options, struct mfs_word_model **ret,
		     struct mfs_error *err)
{
	struct word_list *m = calloc(1, sizeof(*m));

	if (!m)
		return mfs_fail_nomem(err);
	m->base = (struct mfs_word_model){ops, tokens};
	m->options = *options;
	for (uint32_t id = 0; id < tokens->count; id++)
		if (tokens->at[id].text && tokens->at[id].len > m->longest)
			m->longest = tokens->at[id].len;
	*ret = &m->base;
	return 0;
}

int mfs_wordpiece_model_new(const struct mfs_token_table *tokens,
			    const struct mfs_wordpiece_options *options,
			    struct mfs_word_model **ret, struct mfs_error *err)
{
	return new_model(&piece_ops, tokens, options, ret, err);
}

int mfs_wordlevel_model_new(const struct mfs_token_table *tokens, uint32_t unk,
			    struct mfs_word_model **ret, struct mfs_error *err)
{
	const struct mfs_wordpiece_options options = {.unk = unk};

	return new_model(&level_ops, tokens, &options, ret, err);
}
