/*
 * Text in JSON lines: one object a line, whose members are found and decoded as Python's json does,
 * and nothing more lenient. A line is checked to its end (RFC 8259, UTF-8; NaN and Infinity as
 * Python has them); of a member that stands twice the last one counts.
 *
 * A fault is -EINVAL: "FILE, line N, column C: expected ..., found ...". Columns are bytes from 1.
 */
#ifndef MFS_TEXT_JSON_TEXT_H
#define MFS_TEXT_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"
#include "formats/base/error.h"

/* Where a line is, for messages. */
struct mfs_text_line {
	const char *name; /* of the input, as messages begin: "'x.jsonl'", "standard input" */
	uint64_t line;	  /* from 1 */
};

enum mfs_json_value_kind {
	MFS_JSON_ABSENT,
	MFS_JSON_STRING,
	MFS_JSON_LIST,
	MFS_JSON_OTHER,
};

struct mfs_json_value {
	enum mfs_json_value_kind kind;
	const char *at, *end; /* a string: what stands between its quotes */
};

/* Checks a line, without its newline, and finds the values of count keys. */
int mfs_json_text_find(const struct mfs_text_line *place, const char *line, size_t len,
		       const char *const *keys, size_t count, struct mfs_json_value *ret,
		       struct mfs_error *err);

/* Steps through the values of a list that was found; *ret is {0} at first and each before is passed
 * in. False: there is no more. */
bool mfs_json_text_next(const struct mfs_json_value *list, struct mfs_json_value *ret);

/* Appends the characters of a string that was found, as UTF-8. Half of a surrogate pair is U+FFFD
 * if replace, else it is -EINVAL without a sentence. -ENOMEM. */
int mfs_json_text_decode(const struct mfs_json_value *string, bool replace, struct mfs_buf *ret);

#endif
