/*
 * Token ids as text in which no token is lost: special tokens that a decoder leaves out, as
 * SentencePiece does, stand there by their names, and ids that the tokenizer has not by their
 * numbers in angle brackets: "<-1>". All others are decoded, and their bytes are those of the
 * tokenizer's decoder, which writes U+FFFD for bytes that are no UTF-8.
 */
#ifndef MFS_DATASET_TEXT_NAMED_TOKENS_H
#define MFS_DATASET_TEXT_NAMED_TOKENS_H

#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/tokenizer.h"

/* Which ids are decoded; made once, and shared by threads. */
struct mfs_named_tokens;

/* tok must outlive it. */
int mfs_named_tokens_new(const struct mfs_tokenizer *tok, struct mfs_named_tokens **ret,
			 struct mfs_error *err);
void mfs_named_tokens_free(struct mfs_named_tokens *names); /* NULL: nothing */
const struct mfs_tokenizer *mfs_named_tokens_of(const struct mfs_named_tokens *names);

/* A text on its way, of one thread. names must outlive it. */
struct mfs_named_decoder;

int mfs_named_decoder_new(const struct mfs_named_tokens *names, struct mfs_named_decoder **ret,
			  struct mfs_error *err);
void mfs_named_decoder_free(struct mfs_named_decoder *d); /* NULL: nothing */
/* Appends what is certain of the text by then, as mfs_decode() does. */
int mfs_named_decode(struct mfs_named_decoder *d, const int64_t *tokens, uint64_t count,
		     struct mfs_buf *out, struct mfs_error *err);
/* Appends the rest. The next token begins another text. */
int mfs_named_decode_end(struct mfs_named_decoder *d, struct mfs_buf *out, struct mfs_error *err);

#endif
