/* The size of the vocabulary, the token that ends a document and the one that is padding: by the
 * tokenizer's files, or as arguments say. */
#ifndef MFT_TRAINER_CONFIG_SETTLE_VOCAB_H
#define MFT_TRAINER_CONFIG_SETTLE_VOCAB_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "trainer/config/value.h"

struct mft_vocab_found {
	int64_t size; /* tokens; MFS_ABSENT: only the padded size is known */
	int64_t eod;  /* MFS_ABSENT: not known */
	int64_t pad;  /* MFS_ABSENT: none; also one that ends documents, too (pad_ambiguous) */
	bool pad_unknown, pad_ambiguous; /* config.h */
};

/*
 * HuggingFaceTokenizer and SFTTokenizer: tokenizer.json of the directory --tokenizer-model.
 * GPT2BPETokenizer: --vocab-file, a JSON file of tokens. SentencePieceTokenizer,
 * GPTSentencePieceTokenizer and Llama2Tokenizer: the SentencePiece model --tokenizer-model, whose
 * end of a sentence ends documents. TikTokenizer: --vocab-size or 131072, with as many tokens in
 * --tokenizer-model. NullTokenizer: --vocab-size, whose last token ends documents, or
 * --null-tokenizer-eod-id. With others, or where a tokenizer's files are not there,
 * --vocab-size or --padded-vocab-size must say it.
 *
 * Padding is HuggingFaceTokenizer's pad_token, a SentencePiece model's pad piece, TikTokenizer's
 * <pad>, --null-tokenizer-pad-id, or --pad-id. One that ends documents, too, is none, but with
 * --allow-ambiguous-pad-tokens. Sources: core/tokenizers/utils/build_tokenizer.py,
 * core/tokenizers/text/libraries, core/datasets/megatron_dataset.py.
 *
 * -EINVAL: the files are wrong; -ENODATA: nothing says the size.
 */
int mft_vocab_find(const struct mft_flag_values *v, struct mft_vocab_found *ret,
		   struct mfs_error *err);

#endif
