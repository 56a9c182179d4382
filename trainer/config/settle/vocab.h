/* The size of the vocabulary, and the token that ends a document: by the tokenizer's files, or as
 * arguments say. */
#ifndef MFS_TRAINER_CONFIG_VOCAB_H
#define MFS_TRAINER_CONFIG_VOCAB_H

#include "formats/base/error.h"
#include "trainer/config/value.h"

struct mfs_vocab_found {
	int64_t size; /* tokens; MFS_UNSET: only the padded size is known */
	int64_t eod;  /* MFS_UNSET: not known */
};

/*
 * HuggingFaceTokenizer: tokenizer.json of the directory --tokenizer-model. GPT2BPETokenizer:
 * --vocab-file, a JSON file of tokens. SentencePieceTokenizer, GPTSentencePieceTokenizer and
 * Llama2Tokenizer: the SentencePiece model --tokenizer-model, whose end of a sentence ends
 * documents. TikTokenizer: --vocab-size or 131072, with as many tokens in --tokenizer-model.
 * NullTokenizer: --vocab-size, whose last token ends documents, or --null-tokenizer-eod-id. With
 * others, or where a tokenizer's files are not there,
 * --vocab-size or --padded-vocab-size must say it. Sources:
 * core/tokenizers/utils/build_tokenizer.py, core/tokenizers/text/libraries.
 *
 * -EINVAL: the files are wrong; -ENODATA: nothing says the size.
 */
int mfs_vocab_find(const struct mfs_flag_values *v, struct mfs_vocab_found *ret,
		   struct mfs_error *err);

#endif
