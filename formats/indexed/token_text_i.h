/* Private to the reader of token ids: a machine of states. The step of a state takes one byte or
 * more, or goes over to another state that will. */
#ifndef MFS_INDEXED_TOKEN_TEXT_I_H
#define MFS_INDEXED_TOKEN_TEXT_I_H

#include <stdbool.h>

#include "formats/indexed/token_text.h"

#define MFS_TEXT_DEPTH 512 /* levels of what is skipped */
#define MFS_TEXT_IDS   4096

enum mfs_text_state {
	/* token_text.c */
	TEXT_DETECT,	 /* nothing but blanks so far */
	TEXT_LINE,	 /* JSON lines: before the value */
	TEXT_TAIL,	 /* after it */
	TEXT_LIST_FIRST, /* after a '[' of ids */
	TEXT_LIST_NEXT,	 /* after its ',' */
	TEXT_LIST_AFTER, /* after one of its elements */
	TEXT_LIST_ID,	 /* in a number */
	TEXT_IDS,	 /* id lists: between numbers */
	TEXT_IDS_ID,	 /* in a number */
	TEXT_IDS_AFTER,	 /* just after one */
	/* token_text_json.c: an object, and all that is skipped */
	TEXT_KEY_FIRST,	 /* after '{' */
	TEXT_KEY,	 /* after a ',' of an object */
	TEXT_COLON,	 /* after a key */
	TEXT_VALUE,	 /* before a value */
	TEXT_ITEM_FIRST, /* after '[' */
	TEXT_AFTER,	 /* after a value */
	TEXT_STRING,
	TEXT_ESCAPE, /* after a backslash */
	TEXT_HEX,    /* after "\u" */
	TEXT_WORD,   /* true, false, null */
	TEXT_MINUS,  /* of numbers, by their grammar */
	TEXT_ZERO,
	TEXT_INTEGER,
	TEXT_POINT,
	TEXT_FRACTION,
	TEXT_E,
	TEXT_SIGN,
	TEXT_EXPONENT,
	TEXT_STATES,
};

/* A key that is compared as it is read. */
struct mfs_text_key {
	bool reading;	    /* the string at hand is a key of the outermost object */
	bool same;	    /* so far */
	bool wanted;	    /* it was the key: its value is next */
	bool found;	    /* in this line */
	size_t len;	    /* bytes compared */
	unsigned surrogate; /* the first of a pair, 0: none */
};

struct mfs_token_text {
	struct mfs_token_text_config config;
	struct mfs_token_hooks hooks;
	enum mfs_text_state state;
	enum mfs_token_format format;
	struct mfs_token_position ended;

	const uint8_t *p, *end; /* of the bytes being fed */
	uint64_t at;		/* offset of end in the input */
	uint64_t line, line_start;

	uint64_t blank_lines; /* TEXT_DETECT */
	bool guessed;	      /* id lists by their first character: no NUL seen yet */
	bool broken;	      /* guessed, and a line has ended after an id */

	/* The list of ids at hand. */
	unsigned level; /* of brackets */
	enum { LIST_EMPTY, LIST_FLAT, LIST_NESTED } kind;
	bool in_object;

	/* The number at hand. */
	uint64_t value, number_at;
	unsigned digits;
	bool negative, too_large;

	/* What is skipped: one bit a level, set for objects. */
	unsigned depth;
	uint64_t objects[MFS_TEXT_DEPTH / 64];
	bool in_key; /* the string at hand is a key, of whatever object */
	struct mfs_text_key key;
	unsigned hex, hex_digits;
	const char *word; /* what is left of it */

	bool in_document; /* id lists: ids since the last end */
	size_t count;
	int64_t ids[MFS_TEXT_IDS];
};

typedef int mfs_text_step(struct mfs_token_text *t, struct mfs_error *err);

mfs_text_step mfs_text_key_first, mfs_text_key_next, mfs_text_colon, mfs_text_value,
	mfs_text_item_first, mfs_text_after, mfs_text_string, mfs_text_escape, mfs_text_hex,
	mfs_text_word, mfs_text_number;

/* At a '{' that begins a line's value. */
int mfs_text_begin_object(struct mfs_token_text *t, struct mfs_error *err);
/* At the '[' of the ids. */
int mfs_text_begin_list(struct mfs_token_text *t, bool in_object);

/* Skips blanks that are no newline; false: no byte is left. */
bool mfs_text_skip_blanks(struct mfs_token_text *t);
/* -EINVAL: "NAME, line 1, column 2: expected WHAT, found ...". */
int mfs_text_unexpected(const struct mfs_token_text *t, const char *what, struct mfs_error *err);
/* "NAME, line 1, column 2: " and a sentence about the byte at that offset. */
int mfs_text_fail(const struct mfs_token_text *t, uint64_t offset, int code, struct mfs_error *err,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static inline uint64_t mfs_text_offset(const struct mfs_token_text *t)
{
	return t->at - (uint64_t)(t->end - t->p);
}

#endif
