/*
 * Tokenizers that are a list of byte strings by rank, as tiktoken's. An expression cuts a text into
 * words. Of a word's bytes the two neighbours that are a token of the least rank together are
 * merged, until none are (tiktoken: src/lib.rs, byte_pair_merge()). Readers of files add tokens,
 * and finish.
 */
#ifndef MFS_TOKENIZER_READ_RANKS_H
#define MFS_TOKENIZER_READ_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "formats/hf/json_scan.h"
#include "formats/tokenizer/tokenizer_kind.h"

/* Adds a token whose bytes are written in base64. Ids are in the order of ranks. */
int mfs_ranks_add(struct mfs_tokenizer *tok, uint64_t id, const char *base64, size_t len,
		  struct mfs_error *err);
/* Adds a special token. Texts have its id for it, if mfs_ranks_finish() is asked for that. */
int mfs_ranks_special(struct mfs_tokenizer *tok, const char *text, size_t len, uint32_t id,
		      struct mfs_error *err);
/* Makes the tokenizer. -EINVAL: a byte is no token. */
int mfs_ranks_finish(struct mfs_tokenizer *tok, const char *pattern, bool match_specials,
		     struct mfs_error *err);

/* Lets texts become NFC first; call it after mfs_ranks_finish(). */
int mfs_ranks_compose(struct mfs_tokenizer *tok, struct mfs_error *err);

/* Adds the tokens of a JSON list of {"rank", "token_bytes", "token_str"}, of which the first `most`
 * count; their ids begin at offset (Megatron-LM: reload_mergeable_ranks(); mistral-common:
 * _reload_mergeable_ranks()). */
int mfs_ranks_add_list(struct mfs_tokenizer *tok, struct mfs_scan list, uint64_t offset,
		       uint64_t most, struct mfs_error *err);

/* Finds the token of a role. MFS_ABSENT: there is none. */
int64_t mfs_ranks_role(const struct mfs_tokenizer *tok, const char *text);

/* Whether the bytes of a file look like lines of base64 and a rank. */
bool mfs_tiktoken_is(const char *text, size_t len);

/* Readers of files: *.tiktoken, tekken.json, Megatron's list in JSON. */
int mfs_tokenizer_tiktoken_read(struct mfs_tokenizer *tok, const char *path, const char *text,
				size_t len, struct mfs_error *err);
int mfs_tokenizer_tekken_read(struct mfs_tokenizer *tok, const char *path, const char *text,
			      size_t len, struct mfs_error *err);
int mfs_tokenizer_rank_list_read(struct mfs_tokenizer *tok, const char *path, const char *text,
				 size_t len, struct mfs_error *err);

#endif
