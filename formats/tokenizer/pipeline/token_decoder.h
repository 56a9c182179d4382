/*
 * Decoders of tokenizer.json: a list of stages that rewrite tokens, whose results follow each
 * other. Tokens come one by one. What a later token may still change is held back.
 */
#ifndef MFS_TOKENIZER_PIPELINE_TOKEN_DECODER_H
#define MFS_TOKENIZER_PIPELINE_TOKEN_DECODER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/pipeline/pre_tokenizer.h"
#include "formats/tokenizer/unicode/token_regex.h"

struct mfs_token_decoder_kind;

struct mfs_token_decoder {
	const struct mfs_token_decoder_kind *kind;
	struct mfs_regex *regex; /* of Replace */
	struct mfs_buf content; /* of Replace; WordPiece's prefix, BPEDecoder's suffix, CTC's pad */
	struct mfs_buf delimiter; /* of CTC */
	uint32_t character;	  /* of Metaspace and Strip */
	enum mfs_prepend_scheme scheme;
	bool cleanup;
	size_t start, stop; /* of Strip */
	bool streams;	    /* what it makes of all tokens is one, and may be given on in pieces */
};

/* Without any, tokens have blanks between them. */
struct mfs_token_decoders {
	struct mfs_token_decoder *at; /* [count] */
	size_t count;
};

/* As mfs_normalizers_read(). */
int mfs_token_decoders_read(struct mfs_token_decoders *list, const json_t *json,
			    struct mfs_error *err);
/* For readers of other files: tokens are bytes, and text is what is valid of all of them. */
int mfs_token_decoders_add_bytes(struct mfs_token_decoders *list, struct mfs_error *err);
void mfs_token_decoders_release(struct mfs_token_decoders *list);

struct mfs_token_decode; /* one text; of one thread */

int mfs_token_decode_new(const struct mfs_token_decoders *list, struct mfs_token_decode **ret,
			 struct mfs_error *err);
void mfs_token_decode_free(struct mfs_token_decode *d);
int mfs_token_decode_put(struct mfs_token_decode *d, const char *token, size_t len,
			 struct mfs_buf *out, struct mfs_error *err);
/* After it the next token begins another text. */
int mfs_token_decode_end(struct mfs_token_decode *d, struct mfs_buf *out, struct mfs_error *err);

#endif
