/* Unigram (tokenizers: models/unigram): of all ways to cut a word into tokens the one with the
 * largest sum of scores. */
#ifndef MFS_TOKENIZER_MODELS_UNIGRAM_MODEL_H
#define MFS_TOKENIZER_MODELS_UNIGRAM_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/tokenizer/models/word_model.h"

struct mfs_unigram_options {
	const double *scores; /* [tokens->count], copied */
	uint32_t unk;	      /* MFS_NO_ID: a text with unknown characters is refused */
	bool byte_fallback;   /* "<0x41>" for the bytes of an unknown text */
};

int mfs_unigram_model_new(const struct mfs_token_table *tokens,
			  const struct mfs_unigram_options *options, struct mfs_word_model **ret,
			  struct mfs_error *err);

#endif
