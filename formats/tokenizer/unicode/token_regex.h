/*
 * The regular expressions of tokenizers, which Oniguruma runs for HuggingFace tokenizers, run by
 * PCRE2. What the two write differently is rewritten: classes of characters, quantifiers of
 * quantifiers, sets in sets. What cannot be rewritten is refused.
 */
#ifndef MFS_TOKENIZER_UNICODE_TOKEN_REGEX_H
#define MFS_TOKENIZER_UNICODE_TOKEN_REGEX_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

struct mfs_regex;
struct mfs_regex_memory; /* of one thread */

/* The syntax of an expression. */
enum mfs_regex_style {
	MFS_REGEX_ONIGURUMA, /* HF tokenizers */
	MFS_REGEX_RUST,	     /* fancy-regex, which tiktoken uses */
	MFS_REGEX_LITERAL,   /* none: the text itself */
};

/* Translates an expression to PCRE2's syntax. -EINVAL: it is none; -ENOTSUP: it cannot be done. */
int mfs_regex_translate(const char *pattern, size_t len, enum mfs_regex_style style,
			struct mfs_buf *ret, struct mfs_error *err);

int mfs_regex_new(const char *pattern, size_t len, enum mfs_regex_style style,
		  struct mfs_regex **ret, struct mfs_error *err);
void mfs_regex_free(struct mfs_regex *regex);

int mfs_regex_memory_new(struct mfs_regex_memory **ret, struct mfs_error *err);
void mfs_regex_memory_free(struct mfs_regex_memory *memory);

/* A walk through the matches of an expression in a text that is valid UTF-8. An empty match is none
 * where the match before has ended (onig: FindMatches). */
struct mfs_regex_walk {
	const struct mfs_regex *regex;
	struct mfs_regex_memory *memory;
	const char *text;
	size_t len;
	size_t at;	 /* where to look on */
	size_t last_end; /* plus 1; 0: there was no match yet */
	char *replaced;	 /* the text, where it has characters that PCRE2 does not know */
};

/* memory: of this thread; walks may share it. -ENOMEM. */
int mfs_regex_walk_begin(struct mfs_regex_walk *walk, const struct mfs_regex *regex,
			 struct mfs_regex_memory *memory, const char *text, size_t len,
			 struct mfs_error *err);
void mfs_regex_walk_end(struct mfs_regex_walk *walk);
/* 1: a match from *ret_start to *ret_end; 0: there is none; -ENOTSUP: PCRE2 gave up. */
int mfs_regex_walk_next(struct mfs_regex_walk *walk, size_t *ret_start, size_t *ret_end,
			struct mfs_error *err);

#endif
