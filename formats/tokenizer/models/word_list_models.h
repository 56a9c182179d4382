/* Models that look words up: WordLevel whole ones, WordPiece the longest parts from the left
 * (tokenizers: models/wordlevel, models/wordpiece). */
#ifndef MFS_TOKENIZER_MODELS_WORD_LIST_MODELS_H
#define MFS_TOKENIZER_MODELS_WORD_LIST_MODELS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/tokenizer/models/word_model.h"

struct mfs_wordpiece_options {
	uint32_t unk;	    /* MFS_NO_ID: unknown words are refused */
	const char *prefix; /* of parts that do not begin a word; outlives the model */
	size_t prefix_len;
	size_t max_characters; /* a longer word is unknown */
};

int mfs_wordpiece_model_new(const struct mfs_token_table *tokens,
			    const struct mfs_wordpiece_options *options,
			    struct mfs_word_model **ret, struct mfs_error *err);
int mfs_wordlevel_model_new(const struct mfs_token_table *tokens, uint32_t unk,
			    struct mfs_word_model **ret, struct mfs_error *err);

#endif
