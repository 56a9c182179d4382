/*
 * How many bytes each of some rows has as text. Nothing but a pass over all tokens tells, so it is
 * made once: by several threads, each of which takes MFS_TEXT_BLOCK rows at a time. 8 bytes of each
 * row are kept in a file, and 16 bytes of each block in memory.
 *
 *   64 bytes: MFS_TEXT_MAGIC, the key, numbers of rows and blocks, a hash of the sums
 *   u32[2] of each row: its text, and the same inside of a JSON string
 *   u64[2] of each block, and of the end: the sums of all rows before it
 *
 * Numbers are in the order of the machine's bytes: the file is a cache, and is not carried about.
 */
#ifndef MFS_DATASET_TEXT_TEXT_LENGTHS_H
#define MFS_DATASET_TEXT_TEXT_LENGTHS_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/text/named_tokens.h"

#define MFS_TEXT_BLOCK 1024 /* rows */
#define MFS_TEXT_MAGIC "mcorefs lengths of texts, 1\n"

/* A text as it is, and inside of a JSON string. */
enum mfs_text_form_kind { MFS_TEXT_PLAIN, MFS_TEXT_JSON, MFS_TEXT_FORMS };

struct mfs_text_length {
	uint32_t of[MFS_TEXT_FORMS];
};

struct mfs_text_lengths;

/* Where lengths are kept. dir NULL: in memory, as long as they are used. Otherwise in a file of
 * that directory whose name has the key, for who asks again. The directory is made if it is
 * missing; if it takes no file, lengths are kept in memory. */
struct mfs_text_store {
	const char *dir;
	uint64_t key; /* what they are lengths of: rows, tokenizer */
};

/* Lengths of all rows: those that the store has, or new ones. Rows that are known to be unreadable
 * (rows->bad) have no bytes. threads 0: one for each processor. -ENOTSUP: a row's text has 2^31
 * bytes or more; what reading rows and decoding them fail with. */
int mfs_text_lengths_open(const struct mfs_rows *rows, const struct mfs_named_tokens *names,
			  const struct mfs_text_store *store, unsigned threads,
			  struct mfs_text_lengths **ret, struct mfs_error *err);
void mfs_text_lengths_free(struct mfs_text_lengths *l); /* NULL: nothing */

/* Of the rows [first, first+count). -EIO: the file cannot be read, or has changed. */
int mfs_text_lengths_get(const struct mfs_text_lengths *l, uint64_t first, uint64_t count,
			 struct mfs_text_length *ret, struct mfs_error *err);
/* Bytes of all rows before block b; the block after the last one is the end. */
uint64_t mfs_text_lengths_before(const struct mfs_text_lengths *l, enum mfs_text_form_kind form,
				 uint64_t b);
/* Bytes of all rows before this one, which may be the end. */
int mfs_text_lengths_at(const struct mfs_text_lengths *l, enum mfs_text_form_kind form,
			uint64_t row, uint64_t *ret, struct mfs_error *err);
uint64_t mfs_text_lengths_blocks(const struct mfs_text_lengths *l);

#endif
