/*
 * A whole tokenizer of byte-level BPE, read from tokenizer.json and tokenizer_config.json for
 * formats that carry their tokenizer with them (GGUF).
 *
 * Such a tokenizer cuts text into words by a regular expression before it merges. llama.cpp has
 * these expressions in its code and knows them by names ("tokenizer.ggml.pre"). Its converter finds
 * the name by tokenising a text and hashing the ids (gguf: convert_hf_to_gguf.py,
 * get_vocab_base_pre). Here it follows from tokenizer.json's pre_tokenizer, which says it, for
 * the expressions in the table of hf_bpe.c (llama.cpp: src/llama-vocab.cpp, llm_tokenizer_bpe). A
 * tokenizer with another one is refused, since with a wrong name llama.cpp would cut words wrong
 * and say nothing.
 */
#ifndef MFS_HF_HF_BPE_H
#define MFS_HF_HF_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/hf/hf_tokenizer.h"

#define MFS_HF_TEMPLATE_MAX (1u << 20) /* bytes of chat_template.jinja */

/* Rows of a vocabulary: each is kept in memory, also one of an embedding in a hole of a file. */
#define MFS_BPE_ROWS_MAX (1u << 24)

/* GGUF's numbers (gguf/constants.py: TokenType). */
enum mfs_bpe_type {
	MFS_BPE_NORMAL = 1,
	MFS_BPE_CONTROL = 3,	  /* an added token that is special */
	MFS_BPE_USER_DEFINED = 4, /* another added token */
	MFS_BPE_UNUSED = 5,	  /* a row of the embedding without a token: "[PAD7]" */
};

struct mfs_bpe_token {
	const char *text; /* UTF-8 */
	uint32_t len;
	enum mfs_bpe_type type;
};

struct mfs_bpe {
	struct mfs_bpe_token *tokens; /* [count], by id */
	uint32_t count;
	struct mfs_bpe_token *merges; /* "a b"; a space in a or b is U+0120; the first first */
	uint32_t merge_count;
	const char *pre; /* llama.cpp's name: "llama-bpe" */
	struct mfs_hf_tokens special;
	/* whether the post-processor, or else tokenizer_config.json, puts the token around a text
	 */
	bool add_bos, add_eos;
	const char *chat_template; /* NULL: there is none */
	struct mfs_arena arena;
};

/* The three files; those that are not there are NULL, but tokenizer. */
struct mfs_bpe_files {
	const char *tokenizer, *config, *chat_template;
	size_t tokenizer_len, config_len, chat_template_len;
};

/*
 * rows: of the embedding; each has one token. The caller releases *ret, which is zero-filled, after
 * a failure too. -ENOTSUP: it is no byte-level BPE, or llama.cpp's name for it is not known, or it
 * does not fit rows; the message says which. -EINVAL: a file breaks its format.
 */
int mfs_bpe_parse(const struct mfs_bpe_files *files, uint64_t rows, struct mfs_bpe *ret,
		  struct mfs_error *err);
void mfs_bpe_release(struct mfs_bpe *bpe);

#endif
