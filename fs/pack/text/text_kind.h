/*
 * The tokenizers that Megatron's tools/preprocess_data.py knows by --tokenizer-type: which files
 * they are made of, what they put around a text, and how large they take their vocabulary to be.
 */
#ifndef MFS_FS_PACK_TEXT_KIND_H
#define MFS_FS_PACK_TEXT_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/tokenizer/tokenizer.h"

/* What the command line has, by preprocess_data.py's names. */
struct mfs_text_tokenizer_config {
	const char *type;  /* "HuggingFaceTokenizer"; NULL: by the files of model */
	const char *model; /* a file or a directory */
	const char *vocab_file, *merge_file;
	uint64_t vocab_size;	      /* MFS_ABSENT_U64: not given */
	const char *tiktoken_pattern; /* NULL: not given */
	uint64_t tiktoken_specials;   /* --tiktoken-num-special-tokens */
	uint64_t null_eod;	      /* --null-tokenizer-eod-id; MFS_ABSENT_U64 */
	bool legacy;		      /* --legacy-tokenizer: as before core's own */
	bool without_special;	      /* --tokenizer-hf-no-include-special-tokens */
};

struct mfs_text_tokenizer {
	const struct mfs_text_tokenizer_kind *kind;
	struct mfs_tokenizer *tok; /* NULL: of numbers (NullTokenizer) */
	uint64_t vocab_size;	   /* as Megatron counts it: the dtype follows from it */
	int64_t eod;		   /* MFS_ABSENT: none */
	int64_t bos;		   /* comes before each text; MFS_ABSENT: none */
	bool add_special;	   /* mfs_encode()'s */
	bool replaces_halves;	   /* half of a surrogate pair is U+FFFD; else a fault */
};

/* -ENODATA: a file or a number that the kind needs is not given; -ENOTSUP: a kind that is not made
 * here; and what mfs_tokenizer_open() returns. */
int mfs_text_tokenizer_open(const struct mfs_text_tokenizer_config *config,
			    struct mfs_text_tokenizer *ret, struct mfs_error *err);
void mfs_text_tokenizer_release(struct mfs_text_tokenizer *t);

/* Of its files and options, without the end: whether it is the tokenizer of an earlier run. */
uint64_t mfs_text_tokenizer_hash(const struct mfs_text_tokenizer *t);

/* Appends the ids of a text. enc: of t->tok, NULL without one. -EINVAL: the text cannot be
 * encoded. */
int mfs_text_tokenize(const struct mfs_text_tokenizer *t, struct mfs_encoder *enc, const char *text,
		      size_t len, struct mfs_token_ids *ids, struct mfs_error *err);

#endif
