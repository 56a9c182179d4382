/*
 * Text in the place of token ids: files that people have before they tokenize, told by their bytes,
 * and what to do with them. Nothing here tokenizes.
 */
#ifndef MFS_INDEXED_PLAIN_TEXT_H
#define MFS_INDEXED_PLAIN_TEXT_H

#include <stddef.h>
#include <stdint.h>

enum mfs_plain_text_kind {
	MFS_TEXT_NONE, /* none of these */
	MFS_TEXT_JSONL,
	MFS_TEXT_LINES,
	MFS_TEXT_PARQUET,
};

/* What the first bytes of a file are. */
enum mfs_plain_text_kind mfs_plain_text_of(const uint8_t *bytes, size_t len);
/* Of a regular file; MFS_TEXT_NONE where it cannot be read. */
enum mfs_plain_text_kind mfs_plain_text_file(const char *path);

/* "text in JSON lines": for messages. */
const char *mfs_plain_text_name(enum mfs_plain_text_kind kind);
/* The command that makes a dataset of it, in one line; FILE, DIR (the tokenizer's) and PREFIX stand
 * for the person's. */
const char *mfs_plain_text_remedy(enum mfs_plain_text_kind kind);

#endif
