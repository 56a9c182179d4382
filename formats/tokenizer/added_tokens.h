/*
 * Tokens that are cut out of a text before the model sees the rest (tokenizers: AddedVocabulary).
 * Those that are not normalized are looked for in the text as it is, the others in what the
 * normalizer makes of it.
 */
#ifndef MFS_TOKENIZER_ADDED_TOKENS_H
#define MFS_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/tokenizer/byte_trie.h"

struct mfs_added_token {
	const char *text; /* as the file has it */
	uint32_t len;
	uint32_t id;
	const char *pattern; /* what is looked for: the text, or what the normalizer makes of it */
	uint32_t pattern_len;
	bool single_word, lstrip, rstrip, normalized, special;
};

struct mfs_added_tokens {
	struct mfs_added_token *at; /* [count] */
	uint32_t count;
	struct mfs_byte_trie raw, normalized; /* their patterns; a value is a place in at */
	struct mfs_byte_trie texts;	      /* of all, as the file has them */
	uint32_t *by_id;		      /* [id_count]: places in at; UINT32_MAX: none */
	uint32_t id_count;		      /* the largest id plus 1 */
};

/* Adds a token, or changes the one with its text. All but the flags is set. Texts stay the
 * caller's. -ENOMEM; -EINVAL. */
int mfs_added_tokens_add(struct mfs_added_tokens *a, const struct mfs_added_token *token,
			 struct mfs_error *err);
/* Makes what is looked for; call it once, when all have been added. */
int mfs_added_tokens_index(struct mfs_added_tokens *a, struct mfs_error *err);
/* NULL: none. */
const struct mfs_added_token *mfs_added_tokens_by_id(const struct mfs_added_tokens *a, uint32_t id);
const struct mfs_added_token *mfs_added_tokens_by_text(const struct mfs_added_tokens *a,
						       const char *text, size_t len);
void mfs_added_tokens_release(struct mfs_added_tokens *a);

/* A walk through the added tokens of a text, from the left, of two that begin at one place the
 * longer. Begins with all but at zero-filled. */
struct mfs_added_walk {
	const struct mfs_added_tokens *added;
	const struct mfs_byte_trie *trie; /* added->raw or added->normalized */
	const char *text;
	size_t len;
	size_t at;   /* where to look on */
	size_t done; /* what lies before it has been given out */
};

/* The next token, which covers the bytes from *ret_start to *ret_end, blanks that it takes with it
 * included. NULL: there is none. walk->done is still the end of the token before. */
const struct mfs_added_token *mfs_added_walk_next(struct mfs_added_walk *walk, size_t *ret_start,
						  size_t *ret_end);

#endif
