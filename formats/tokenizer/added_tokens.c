#include "formats/tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/grow.h"
#include "formats/tokenizer/unicode/characters.h"
#include "formats/tokenizer/token_table.h"
#include "formats/tokenizer/unicode/utf8.h"

static uint32_t place_of(const struct mfs_byte_trie *t, const char *text, size_t len)
{
	uint32_t node = 0;

	if (!t->node_count || !len)
		return UINT32_MAX;
	for (size_t i = 0; i < len; i++) {
		node = mfs_byte_trie_next(t, node, (uint8_t)text[i]);
		if (!node)
			return UINT32_MAX;
	}
	return t->values[node];
}

/* How many bytes of a text a sentence has. */
static int shown(uint32_t len)
{
	return len < 60 ? (int)len : 60;
}

int mfs_added_tokens_add(struct mfs_added_tokens *a, const struct mfs_added_token *token,
			 struct mfs_error *err)
{
	uint32_t place = place_of(&a->texts, token->text, token->len);

	if (token->id >= MFS_TOKEN_ID_MAX)
		return mfs_fail(err, -EINVAL, "an added token has the id %u; expected less than %u",
				token->id, MFS_TOKEN_ID_MAX);
	if (token->len > MFS_TOKEN_BYTES_MAX || token->pattern_len > MFS_TOKEN_BYTES_MAX)
		return mfs_fail(err, -ENOTSUP,
				"the added token \"%.*s\" has %u bytes; expected at most %u",
				shown(token->len), token->text,
				token->len < token->pattern_len ? token->pattern_len : token->len,
				MFS_TOKEN_BYTES_MAX);
	if (place == UINT32_MAX) {
		if (mfs_grow(&a->at, a->count))
			return mfs_fail_nomem(err);
		place = a->count++;
	}
	a->at[place] = *token;
	return mfs_byte_trie_add(&a->texts, token->text, token->len, place, err);
}

static int index_ids(struct mfs_added_tokens *a)
{
	for (uint32_t i = 0; i < a->count; i++)
		if (a->at[i].id >= a->id_count)
			a->id_count = a->at[i].id + 1;
	a->by_id = malloc((a->id_count + 1) * sizeof(*a->by_id));
	if (!a->by_id)
		return -ENOMEM;
	for (uint32_t i = 0; i < a->id_count; i++)
		a->by_id[i] = UINT32_MAX;
	for (uint32_t i = 0; i < a->count; i++)
		a->by_id[a->at[i].id] = i;
	return 0;
}

/* Of two that are normalized to the same text tokenizers finds one or the other. */
static int index_pattern(struct mfs_added_tokens *a, uint32_t i, struct mfs_error *err)
{
	const struct mfs_added_token *t = &a->at[i];
	struct mfs_byte_trie *trie = t->normalized ? &a->normalized : &a->raw;
	const uint32_t other = place_of(trie, t->pattern, t->pattern_len);

	if (other != UINT32_MAX)
		return mfs_fail(err, -ENOTSUP,
				"the added tokens \"%.*s\" and \"%.*s\" are normalized to one text",
				shown(a->at[other].len), a->at[other].text, shown(t->len), t->text);
	return mfs_byte_trie_add(trie, t->pattern, t->pattern_len, i, err);
}

int mfs_added_tokens_index(struct mfs_added_tokens *a, struct mfs_error *err)
{
	int rc = index_ids(a) ? mfs_fail_nomem(err) : 0;

	for (uint32_t i = 0; i < a->count && !rc; i++)
		if (a->at[i].pattern_len)
			rc = index_pattern(a, i, err);
	return rc;
}

const struct mfs_added_token *mfs_added_tokens_by_id(const struct mfs_added_tokens *a, uint32_t id)
{
	return id < a->id_count && a->by_id[id] != UINT32_MAX ? &a->at[a->by_id[id]] : NULL;
}

const struct mfs_added_token *mfs_added_tokens_by_text(const struct mfs_added_tokens *a,
						       const char *text, size_t len)
{
	const uint32_t place = place_of(&a->texts, text, len);

	return place == UINT32_MAX ? NULL : &a->at[place];
}

void mfs_added_tokens_release(struct mfs_added_tokens *a)
{
	mfs_byte_trie_release(&a->raw);
	mfs_byte_trie_release(&a->normalized);
	mfs_byte_trie_release(&a->texts);
	free(a->by_id);
	free(a->at);
	*a = (struct mfs_added_tokens){0};
}

/* ---- the walk ---- */

/* The longest text of the trie that stands at `at`. Returns its end; 0: none. */
static size_t longest(const struct mfs_added_walk *w, size_t at, uint32_t *ret_place)
{
	uint32_t node = w->trie->firsts[(uint8_t)w->text[at]];
	size_t end = 0;

	for (size_t i = at + 1; node;
	     node = mfs_byte_trie_next(w->trie, node, (uint8_t)w->text[i++])) {
		if (w->trie->values[node] != UINT32_MAX) {
			*ret_place = w->trie->values[node];
			end = i;
		}
		if (i == w->len)
			break;
	}
	return end;
}

static bool find(struct mfs_added_walk *w, size_t *ret_start, uint32_t *ret_place)
{
	for (; w->at < w->len; w->at++) {
		size_t end;

		if (!w->trie->firsts[(uint8_t)w->text[w->at]])
			continue;
		end = longest(w, w->at, ret_place);
		if (end) {
			*ret_start = w->at;
			w->at = end;
			return true;
		}
	}
	return false;
}

static bool stands_alone(const struct mfs_added_walk *w, size_t start, size_t end)
{
	size_t size;

	return (!start || !mfs_is_word(mfs_utf8_before(w->text + start, &size))) &&
	       (end == w->len || !mfs_is_word(mfs_utf8_get(w->text + end, &size)));
}

const struct mfs_added_token *mfs_added_walk_next(struct mfs_added_walk *w, size_t *ret_start,
						  size_t *ret_end)
{
	uint32_t place;
	size_t start, end, size;

	if (!w->trie->node_count)
		return NULL;
	while (find(w, &start, &place)) {
		const struct mfs_added_token *t = &w->added->at[place];

		end = w->at;
		if (t->single_word && !stands_alone(w, start, end))
			continue;
		while (t->lstrip && start > w->done &&
		       mfs_is_space(mfs_utf8_before(w->text + start, &size)))
			start -= size;
		if (t->lstrip && start < w->done)
			start = w->done;
		while (t->rstrip && end < w->len &&
		       mfs_is_space(mfs_utf8_get(w->text + end, &size)))
			end += size;
		*ret_start = start;
		*ret_end = end;
		return t;
	}
	return NULL;
}
