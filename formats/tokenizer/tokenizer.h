/*
 * A tokenizer: text (bytes that should be UTF-8) to token ids and back, with the results of the
 * program that the files were made for: HuggingFace tokenizers for tokenizer.json, SentencePiece
 * for .model, tiktoken for ranks (tekken.json too). What cannot be done exactly is refused when the
 * files are read, by the name of the part.
 *
 * It is read once (read/tokenizer_open.h) and shared by threads. An encoder or decoder belongs to
 * one thread.
 */
#ifndef MFS_TOKENIZER_TOKENIZER_H
#define MFS_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/absent.h"
#include "formats/base/error.h"

struct mfs_tokenizer;
struct mfs_encoder;
struct mfs_decoder;

void mfs_tokenizer_free(struct mfs_tokenizer *tok); /* NULL: nothing */

/* Of the bytes of all files that it was made of, and of Megatron's arguments. */
uint64_t mfs_tokenizer_hash(const struct mfs_tokenizer *tok);
/* The largest id plus 1, added tokens included. */
uint32_t mfs_tokenizer_size(const struct mfs_tokenizer *tok);
/* Bytes of the token as its file has them (not decoded: "Ġthe", "▁the"). NULL: no such id. */
const char *mfs_tokenizer_token(const struct mfs_tokenizer *tok, uint32_t id, size_t *ret_len);
/* The id whose token has these bytes. MFS_ABSENT: none. */
int64_t mfs_tokenizer_id(const struct mfs_tokenizer *tok, const char *text, size_t len);
bool mfs_tokenizer_is_special(const struct mfs_tokenizer *tok, uint32_t id);

/* By role, MFS_ABSENT where the files name none. Megatron's eod is the eos of HF files. */
struct mfs_tokenizer_roles {
	int64_t bos, eos, pad, unk, mask, sep, cls;
};
const struct mfs_tokenizer_roles *mfs_tokenizer_roles(const struct mfs_tokenizer *tok);

/* Ids that grow at their end. Zero-filled at first, free(at) at the end. */
struct mfs_token_ids {
	uint32_t *at;
	size_t count, capacity;
};

/* Holds the scratch memory and the cache of words of one thread. */
int mfs_encoder_new(const struct mfs_tokenizer *tok, struct mfs_encoder **ret,
		    struct mfs_error *err);
void mfs_encoder_free(struct mfs_encoder *enc);
/* Appends the ids of a text to *ids. add_special: with what the post-processor puts around it (HF's
 * add_special_tokens). Added tokens in the text become their ids, as in tokenizers. Bytes that are
 * no UTF-8 become U+FFFD as Python's errors="replace" makes them. -ENOMEM; -ENODATA: the tokenizer
 * has no token for a part of the text; -ENOTSUP: a regular expression takes too long on it. */
int mfs_encode(struct mfs_encoder *enc, const char *text, size_t len, bool add_special,
	       struct mfs_token_ids *ids, struct mfs_error *err);

/* Streaming: each id gives the bytes that are certain by then; incomplete UTF-8 stays until the
 * next id or mfs_decode_end(). The bytes of all calls are those that decoding all ids at once
 * gives. */
int mfs_decoder_new(const struct mfs_tokenizer *tok, bool skip_special, struct mfs_decoder **ret,
		    struct mfs_error *err);
void mfs_decoder_free(struct mfs_decoder *dec);
struct mfs_buf; /* formats/base/buf.h */
int mfs_decode(struct mfs_decoder *dec, const uint32_t *ids, size_t count, struct mfs_buf *out,
	       struct mfs_error *err);
int mfs_decode_end(struct mfs_decoder *dec, struct mfs_buf *out, struct mfs_error *err);

#endif
