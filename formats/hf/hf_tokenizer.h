/*
 * What config.json needs from a tokenizer's files: the ids of its special tokens, and on request
 * the number of tokens; and what chat templates need: the texts of the special tokens.
 *
 * tokenizer_config.json names the special tokens, as a string or as an object with "content". Where
 * it has no "added_tokens_decoder", special_tokens_map.json comes before it; what neither of them
 * mentions is the tokenizer class's own. Ids are in "added_tokens_decoder", in "added_tokens" of
 * tokenizer.json, or in its vocabulary (transformers/tokenization_utils_base.py: _from_pretrained,
 * tokenizers' AddedToken). tokenizer.json may have tens of megabytes, so it is scanned for the part
 * that is needed and never becomes a tree.
 *
 * Files larger than the limits are refused. Nothing here recurses deeper than jansson's 2048.
 */
#ifndef MFS_HF_HF_TOKENIZER_H
#define MFS_HF_HF_TOKENIZER_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/absent.h"
#include "formats/base/error.h"

#define MFS_HF_TOKENIZER_CONFIG_MAX (4u << 20)	 /* bytes; also of the list of added tokens */
#define MFS_HF_TOKENIZER_MAX	    (256u << 20) /* bytes */

struct mfs_hf_tokens {
	int64_t bos, eos, pad, unk, mask, sep, cls; /* MFS_ABSENT: the files do not say */
};

#define MFS_HF_TOKENS_ABSENT                                                                       \
	{                                                                                          \
		MFS_ABSENT, MFS_ABSENT, MFS_ABSENT, MFS_ABSENT, MFS_ABSENT, MFS_ABSENT, MFS_ABSENT \
	}

struct mfs_hf_text {
	const char *text; /* NULL: there is no such file */
	size_t len;
};

struct mfs_hf_token_files {
	struct mfs_hf_text config;    /* tokenizer_config.json */
	struct mfs_hf_text map;	      /* special_tokens_map.json */
	struct mfs_hf_text tokenizer; /* tokenizer.json */
};

/* Finds the ids of the special tokens in the texts of the files. -EINVAL: a text is not JSON;
 * -ENOTSUP: it is too large. */
int mfs_hf_tokens_parse(const struct mfs_hf_token_files *files, struct mfs_hf_tokens *ret,
			struct mfs_error *err);
/* Like mfs_hf_tokens_parse(), from a directory. A file or directory that does not exist gives
 * MFS_ABSENT. */
int mfs_hf_tokens_read(const char *dir, struct mfs_hf_tokens *ret, struct mfs_error *err);

/* The members of struct mfs_hf_tokens, as the files call them: "bos_token", ... NULL ends them. */
extern const char *const mfs_hf_token_names[8];

/* The texts of the special tokens: an object, by name. null: the files say that there is no such
 * token; a name that is missing: they do not say. *ret_config: tokenizer_config.json; NULL: there
 * is none. json_decref() both. Fails as mfs_hf_tokens_read() does. */
int mfs_hf_token_texts_read(const char *dir, json_t **ret, json_t **ret_config,
			    struct mfs_error *err);

/* The largest id of tokenizer.json's vocabulary and added tokens, plus 1. -EINVAL: not such a
 * file. */
int mfs_hf_token_count_parse(const char *tokenizer, size_t len, uint64_t *ret,
			     struct mfs_error *err);
/* Like mfs_hf_token_count_parse(), from a directory. -ENODATA: it has no tokenizer.json. */
int mfs_hf_token_count_read(const char *dir, uint64_t *ret, struct mfs_error *err);

#endif
