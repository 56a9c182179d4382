#include "formats/tokenizer/models/unigram_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/byte_trie.h"
#include "formats/tokenizer/token_ids.h"
#include "formats/tokenizer/unicode/utf8.h"

#define UNK_PENALTY 10.0 /* models/unigram/model.rs: K_UNK_PENALTY */

struct unigram {
	struct mfs_word_model base;
	double *scores;
	double unk_score;
	uint32_t unk;
	bool byte_fallback;
	struct mfs_byte_trie trie; /* values are ids */
	uint32_t bytes[256];
};

/* The best way to a place of the word. */
struct best {
	double score;
	uint32_t id;
	uint32_t start; /* where the last token begins; UINT32_MAX: there is no way */
};

static bool wins(const struct best *to, double score)
{
	return to->start == UINT32_MAX || score > to->score;
}

static void offer(struct best *to, const struct best *from, uint32_t start, uint32_t id,
		  double score)
{
	score += from->score;
	if (wins(to, score))
		*to = (struct best){score, id, start};
}

static int find_best(const struct unigram *m, struct best *best, const char *word, size_t len,
		     struct mfs_error *err)
{
	size_t size;

	best[0] = (struct best){0, 0, 0};
	for (size_t i = 1; i <= len; i++)
		best[i].start = UINT32_MAX;
	for (size_t at = 0; at < len; at += size) {
		uint32_t node = 0;
		bool single = false;

		size = mfs_utf8_size(word[at]);
		for (size_t i = at; i < len; i++) {
			node = mfs_byte_trie_next(&m->trie, node, (uint8_t)word[i]);
			if (!node)
				break;
			if (m->trie.values[node] == UINT32_MAX)
				continue;
			offer(&best[i + 1], &best[at], (uint32_t)at, m->trie.values[node],
			      m->scores[m->trie.values[node]]);
			single |= i + 1 - at == size;
		}
		if (single)
			continue;
		/* tokenizers asks for unk_id where the unknown token would win */
		if (m->unk == MFS_NO_ID && !wins(&best[at + size], best[at].score + m->unk_score))
			continue;
		if (m->unk == MFS_NO_ID)
			return mfs_fail(err, -ENODATA,
					"the model has no token for \"%.*s\", and none for what is "
					"unknown",
					(int)size, word + at);
		offer(&best[at + size], &best[at], (uint32_t)at, m->unk, m->unk_score);
	}
	return 0;
}

/* Unknown tokens in a row are one text, which may be a token, or bytes. */
static int add_text(const struct unigram *m, const char *text, size_t len,
		    struct mfs_token_ids *ids, struct mfs_error *err)
{
	uint32_t id = mfs_token_table_find(m->base.tokens, text, len);
	bool bytes = id == MFS_NO_ID && m->byte_fallback;
	int rc = 0;

	for (size_t i = 0; i < len && bytes; i++)
		bytes = m->bytes[(uint8_t)text[i]] != MFS_NO_ID;
	for (size_t i = 0; i < len && bytes && !rc; i++)
		rc = mfs_token_ids_append(ids, &m->bytes[(uint8_t)text[i]], 1, err);
	if (rc || bytes)
		return rc;
	id = id == MFS_NO_ID ? m->unk : id;
	return mfs_token_ids_append(ids, &id, 1, err);
}

/* The way back has been turned: best[start].start is now where the next token begins. */
static int add_way(const struct unigram *m, const struct best *best, const char *word, size_t len,
		   struct mfs_token_ids *ids, struct mfs_error *err)
{
	size_t at = 0, end;
	int rc = 0;

	while (at < len && !rc) {
		const bool unknown = best[at].id == m->unk;

		end = best[at].start;
		while (unknown && end < len && best[end].id == m->unk)
			end = best[end].start;
		rc = unknown ? add_text(m, word + at, end - at, ids, err)
			     : mfs_token_ids_append(ids, &best[at].id, 1, err);
		at = end;
	}
	return rc;
}

static void turn(struct best *best, size_t len)
{
	uint32_t end = (uint32_t)len, start = best[len].start, id = best[len].id;

	while (end) {
		const struct best before = best[start];

		best[start].start = end;
		best[start].id = id;
		end = start;
		start = before.start;
		id = before.id;
	}
}

static int encode(const struct mfs_word_model *model, struct mfs_word_scratch *scratch,
		  const char *word, size_t len, struct mfs_token_ids *ids, struct mfs_error *err)
{
	const struct unigram *m = (const struct unigram *)model;
	struct best *best;
	int rc;

	if (len > INT32_MAX / 2)
		return mfs_fail(err, -ENOTSUP, "a word of %zu bytes is too long", len);
	best = mfs_word_scratch_room(&scratch->items, &scratch->items_size,
				     (len + 1) * sizeof(*best));
	if (!best)
		return mfs_fail_nomem(err);
	rc = find_best(m, best, word, len, err);
	if (rc)
		return rc;
	turn(best, len);
	return add_way(m, best, word, len, ids, err);
}

static void free_model(struct mfs_word_model *model)
{
	struct unigram *m = (struct unigram *)model;

	mfs_byte_trie_release(&m->trie);
	free(m->scores);
	free(m);
}

static const struct mfs_word_model_ops ops = {.encode = encode, .free = free_model};

static int fill(struct unigram *m, const struct mfs_unigram_options *o, struct mfs_error *err)
{
	const struct mfs_token_table *tokens = m->base.tokens;
	double least = INFINITY;
	int rc = 0;

	m->scores = malloc(((size_t)tokens->count + 1) * sizeof(*m->scores));
	if (!m->scores)
		return mfs_fail_nomem(err);
	for (uint32_t id = 0; id < tokens->count && !rc; id++) {
		m->scores[id] = o->scores[id];
		if (o->scores[id] < least)
			least = o->scores[id];
		if (tokens->at[id].len)
			rc = mfs_byte_trie_add(&m->trie, tokens->at[id].text, tokens->at[id].len,
					       id, err);
	}
	m->unk = o->unk;
	m->unk_score = least - UNK_PENALTY;
	m->byte_fallback = o->byte_fallback;
	mfs_token_find_bytes(tokens, m->bytes);
	return rc;
}

int mfs_unigram_model_new(const struct mfs_token_table *tokens,
			  const struct mfs_unigram_options *options, struct mfs_word_model **ret,
			  struct mfs_error *err)
{
	struct unigram *m = calloc(1, sizeof(*m));
	int rc;

	if (!m)
		return mfs_fail_nomem(err);
	m->base = (struct mfs_word_model){&ops, tokens};
	rc = fill(m, options, err);
	if (rc)
		free_model(&m->base);
	else
		*ret = &m->base;
	return rc;
}
