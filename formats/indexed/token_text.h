/*
 * Token ids as tokenizers print them: a stream of text that is documents of sequences of integers.
 *
 * JSON lines (RFC 8259, one value a line; CR before LF is a blank):
 *
 *   [1, 2, 3]                       a document of one sequence
 *   [[1, 2], [3]]                   a document of two
 *   {"input_ids": [1, 2, 3], ...}   either of them under a key; every other key is skipped,
 *     whatever it holds
 *   [] or an empty line             a document without a sequence
 *
 * Id lists: ids separated by blanks, commas or newlines, a NUL after each document (as find -print0
 * does with names; the last one may be missing). Lines: the same with a newline after each
 * document.
 *
 * Bytes above 127 are taken as they are inside of strings that are skipped; nothing else is
 * lenient. A fault is -EINVAL with its line and column, counted from 1 in bytes; a number that no
 * int64 holds, or that lies outside of the limits given, is -ERANGE.
 */
#ifndef MFS_INDEXED_TOKEN_TEXT_H
#define MFS_INDEXED_TOKEN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

enum mfs_token_format {
	MFS_TOKENS_DETECT, /* JSON lines if the first character is a bracket, else id lists */
	MFS_TOKENS_JSONL,
	MFS_TOKENS_NUL,
	MFS_TOKENS_LINES,
};

/* Where a document ends. A later run needs no more than this to continue after it. */
struct mfs_token_position {
	enum mfs_token_format format; /* as detected */
	uint64_t offset;	      /* bytes of the input before it */
	uint64_t line, column;	      /* of the byte at offset, from 1 */
	/* The input ended here, without a newline or a NUL. A run that continues must find nothing
	 * after it; otherwise it was another document. */
	bool last;
};

struct mfs_token_text_config {
	const char *name; /* of the input, for messages */
	const char *key;  /* in objects of JSON lines */
	int64_t low, high;
	const char *limits; /* what low and high are, for messages: "uint16" */
	struct mfs_token_position
		start; /* {0} but for a format: a new input; else a place of an earlier run */
};

/* Functions that are called as the text is read. An error ends the reading, and feed or end returns
 * it. */
struct mfs_token_hooks {
	void *arg;
	/* Ids of the current sequence, a part of them or all. */
	int (*tokens)(void *arg, const int64_t *ids, size_t count, struct mfs_error *err);
	int (*end_sequence)(void *arg, struct mfs_error *err);
	int (*end_document)(void *arg, struct mfs_error *err);
};

struct mfs_token_text;

/* Makes a reader of token text. Strings of config are borrowed. -ENOMEM. */
int mfs_token_text_new(const struct mfs_token_text_config *config,
		       const struct mfs_token_hooks *hooks, struct mfs_token_text **ret,
		       struct mfs_error *err);
void mfs_token_text_free(struct mfs_token_text *t);

/* The next bytes of the input, which may be cut anywhere. After an error nothing may follow. */
int mfs_token_text_feed(struct mfs_token_text *t, const void *bytes, size_t len,
			struct mfs_error *err);
/* The input has ended. */
int mfs_token_text_end(struct mfs_token_text *t, struct mfs_error *err);

/* The end of the last document, also after an error. */
const struct mfs_token_position *mfs_token_text_ended(const struct mfs_token_text *t);

/* "jsonl", "ids", "lines"; "auto" of MFS_TOKENS_DETECT. -EINVAL without a sentence: no such
 * name. */
const char *mfs_token_format_name(enum mfs_token_format format);
int mfs_token_format_parse(const char *name, enum mfs_token_format *ret);

#endif
