/*
 * What the kinds of files share. Each kind (tokenizer.json, SentencePiece, ranks) has a reader,
 * which fills a struct mfs_tokenizer: its tokens, its added tokens, its roles, and the functions
 * that encode and decode. read/tokenizer_open.c has the table of kinds.
 */
#ifndef MFS_TOKENIZER_TOKENIZER_KIND_H
#define MFS_TOKENIZER_TOKENIZER_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/buf.h"
#include "formats/base/error.h"
#include "formats/tokenizer/added_tokens.h"
#include "formats/tokenizer/token_table.h"
#include "formats/tokenizer/tokenizer.h"

/* How a kind of tokenizer works. Members may be NULL where there is nothing to do, but encode and
 * decode. */
struct mfs_tokenizer_ops {
	/* Makes enc->impl, and releases it. */
	int (*encoder_init)(struct mfs_encoder *enc, struct mfs_error *err);
	void (*encoder_release)(struct mfs_encoder *enc);
	/* mfs_encode() of a text that is valid UTF-8. */
	int (*encode)(struct mfs_encoder *enc, const char *text, size_t len, bool add_special,
		      struct mfs_token_ids *ids, struct mfs_error *err);
	/* Makes dec->impl, and releases it. */
	int (*decoder_init)(struct mfs_decoder *dec, struct mfs_error *err);
	void (*decoder_release)(struct mfs_decoder *dec);
	/* mfs_decode() and mfs_decode_end(). tokenizer.c has checked nothing of the ids. */
	int (*decode)(struct mfs_decoder *dec, const uint32_t *ids, size_t count,
		      struct mfs_buf *out, struct mfs_error *err);
	int (*decode_end)(struct mfs_decoder *dec, struct mfs_buf *out, struct mfs_error *err);
	/* Frees impl. */
	void (*release)(struct mfs_tokenizer *tok);
};

struct mfs_tokenizer {
	const struct mfs_tokenizer_ops *ops;
	struct mfs_token_table tokens; /* those of the model */
	struct mfs_added_tokens added; /* come before the model's, by id and by text */
	struct mfs_tokenizer_roles roles;
	void *impl;		/* the kind's own */
	struct mfs_arena arena; /* for impl, and for texts of tokens */
	uint64_t hash;		/* of the files that have been read */
};

struct mfs_encoder {
	const struct mfs_tokenizer *tok;
	void *impl;
	struct mfs_buf repaired; /* the text, where it was not UTF-8 */
};

struct mfs_decoder {
	const struct mfs_tokenizer *tok;
	void *impl;
	bool skip_special;
};

/* A reader of a kind: fills *tok, which is zero-filled but for its roles, which are absent. What it
 * leaves there is released by the caller, after a failure too. path: the file; text: its bytes,
 * with a NUL after them. */
struct mfs_tokenizer_kind {
	const char *name; /* of the file in a directory; "*.tiktoken": any with this end */
	int (*read)(struct mfs_tokenizer *tok, const char *path, const char *text, size_t len,
		    struct mfs_error *err);
};

/* Takes a file that was found next to path into the hash. */
void mfs_tokenizer_add_file(struct mfs_tokenizer *tok, const char *text, size_t len);
/* Reads a tokenizer of a kind from the bytes of its file. path: for messages, and for the files
 * next to it. */
int mfs_tokenizer_parse(const struct mfs_tokenizer_kind *kind, const char *path, const char *text,
			size_t len, struct mfs_tokenizer **ret, struct mfs_error *err);

#endif
