/* Tokens by id and by their bytes. It is filled by one thread, and then read by any. */
#ifndef MFS_TOKENIZER_TOKEN_TABLE_H
#define MFS_TOKENIZER_TOKEN_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_TOKEN_ID_MAX (1u << 24) /* ids are below it: a table has a row for each */
#define MFS_NO_ID	 UINT32_MAX
/* What is looked for in a text byte by byte, and hashed at each of its lengths, has at most so many
 * bytes. */
#define MFS_TOKEN_BYTES_MAX 4096

struct mfs_token {
	const char *text; /* NULL: no such id. It need not end in a NUL */
	uint32_t len;
};

struct mfs_token_slot {
	uint32_t tag; /* a part of the hash */
	uint32_t id;  /* MFS_NO_ID: nothing is here */
};

struct mfs_token_table {
	struct mfs_token *at; /* [count], by id */
	uint32_t count;	      /* the largest id plus 1 */
	uint32_t used;	      /* ids that have a token */
	struct mfs_token_slot *slots;
	uint32_t mask;
};

/* Gives an id its text, which stays the caller's and is not copied. -EINVAL: the id is too large or
 * has a text already. */
int mfs_token_table_set(struct mfs_token_table *t, uint64_t id, const char *text, size_t len,
			struct mfs_error *err);
/* Makes the index by text; call it once, when all are set. Of two ids with one text the larger is
 * found. */
int mfs_token_table_index(struct mfs_token_table *t, struct mfs_error *err);
/* The id of a text. MFS_NO_ID: none. */
uint32_t mfs_token_table_find(const struct mfs_token_table *t, const char *text, size_t len);
void mfs_token_table_release(struct mfs_token_table *t);

/* The ids of "<0x00>" to "<0xFF>", which stand for bytes; MFS_NO_ID: there is no such token. */
void mfs_token_find_bytes(const struct mfs_token_table *t, uint32_t ret[256]);

/* What tables of this folder begin their hashes with. It differs in every process, and is not 0. */
uint64_t mfs_token_seed(void);
/* A hash of bytes for them. */
uint64_t mfs_token_hash(const char *text, size_t len);

#endif
