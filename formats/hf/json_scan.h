/*
 * Finds values in JSON text without building a tree, for files of tens of megabytes
 * (tokenizer.json). What is found is text again: jansson parses it where it is small, or it is
 * scanned further. Nothing here recurses or allocates.
 */
#ifndef MFS_HF_JSON_SCAN_H
#define MFS_HF_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_SCAN_MAX_ID (1ll << 31) /* token ids are 32 bits wide everywhere */

struct mfs_scan {
	const char *at, *end;
};

/* The next character that is no space, or NUL at the end. */
char mfs_scan_peek(struct mfs_scan *s);
/* Steps over c if it is the next one. */
bool mfs_scan_accept(struct mfs_scan *s, char c);
/* A string; *ret covers what stands between the quotes, escapes included. */
bool mfs_scan_string(struct mfs_scan *s, struct mfs_scan *ret);
/* Any value; *ret covers it. Brackets are counted and not matched by kind. */
bool mfs_scan_value(struct mfs_scan *s, struct mfs_scan *ret);
/* Steps through the members of an object, whose '{' has been accepted. False: it has ended, or the
 * text is not such an object, and then *broken is set. */
bool mfs_scan_member(struct mfs_scan *s, bool *first, struct mfs_scan *key, bool *broken);

bool mfs_scan_is(const struct mfs_scan *text, const char *what);
/* The value of an object's member; false if there is none, or the text is broken before it. */
bool mfs_scan_find(struct mfs_scan object, const char *name, struct mfs_scan *ret);
/* Whether the text is one object whose brackets balance, with nothing after it. A file that was cut
 * is not. */
bool mfs_scan_is_whole(struct mfs_scan text);
/* A token id, below MFS_SCAN_MAX_ID, that is the whole value. */
bool mfs_scan_id(const struct mfs_scan *value, int64_t *ret);

/* Decodes what stands between the quotes of a string. out has room for as many bytes, which are
 * never exceeded. Returns the length; SIZE_MAX: an escape that JSON has not, half of a surrogate
 * pair, a NUL, or bytes that are not UTF-8. */
size_t mfs_scan_decode(const struct mfs_scan *string, char *out);
/* Like mfs_scan_decode(), but a NUL may be in the string. */
size_t mfs_scan_decode_any(const struct mfs_scan *string, char *out);

#endif
