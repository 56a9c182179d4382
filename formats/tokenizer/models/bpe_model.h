/*
 * Byte-pair encoding (tokenizers: models/bpe): a word's characters are tokens at first, and the
 * pair whose merge has the least rank is merged until none has one.
 */
#ifndef MFS_TOKENIZER_MODELS_BPE_MODEL_H
#define MFS_TOKENIZER_MODELS_BPE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/tokenizer/models/word_model.h"

/* Texts stay the caller's and outlive the model. */
struct mfs_bpe_options {
	uint32_t unk;	    /* MFS_NO_ID: unknown characters vanish */
	const char *prefix; /* of what continues a word; NULL: none */
	const char *suffix; /* of what ends a word; NULL: none */
	bool no_unk;	    /* unknown characters are refused: their token is none of these */
	bool fuse_unk;	    /* one for a run of unknown characters */
	bool byte_fallback; /* "<0x41>" for the bytes of an unknown character */
	bool from_bytes;    /* tokens are bytes of texts, not of characters that stand for them */
	bool ignore_merges; /* a word that is a token is that token */
};

/* A model without merges. */
int mfs_bpe_model_new(const struct mfs_token_table *tokens, const struct mfs_bpe_options *options,
		      struct mfs_word_model **ret, struct mfs_error *err);
/* Adds a merge, of less importance than those before it. Of two with one pair the later holds. The
 * texts of the tokens are joined, and a token must be that. -EINVAL: it is none. */
int mfs_bpe_model_merge(struct mfs_word_model *model, uint32_t left, uint32_t right,
			struct mfs_error *err);
/* Adds a merge of a rank of its own, whose result is known. */
int mfs_bpe_model_merge_into(struct mfs_word_model *model, uint32_t left, uint32_t right,
			     uint32_t rank, uint32_t result, struct mfs_error *err);

#endif
