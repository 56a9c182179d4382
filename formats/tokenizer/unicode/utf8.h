/* Characters of UTF-8, in text that is known to be valid, and what makes text valid. */
#ifndef MFS_TOKENIZER_UNICODE_UTF8_H
#define MFS_TOKENIZER_UNICODE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/buf.h"

/* Bytes of the character that begins with this byte. */
static inline size_t mfs_utf8_size(char lead)
{
	const uint8_t b = (uint8_t)lead;

	return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/* The character at text, and how many bytes it has. */
static inline uint32_t mfs_utf8_get(const char *text, size_t *ret_size)
{
	const uint8_t *b = (const uint8_t *)text;

	*ret_size = mfs_utf8_size(*text);
	switch (*ret_size) {
	case 1:
		return b[0];
	case 2:
		return (b[0] & 0x1fu) << 6 | (b[1] & 0x3fu);
	case 3:
		return (b[0] & 0xfu) << 12 | (b[1] & 0x3fu) << 6 | (b[2] & 0x3fu);
	default:
		return (b[0] & 7u) << 18 | (b[1] & 0x3fu) << 12 | (b[2] & 0x3fu) << 6 |
		       (b[3] & 0x3fu);
	}
}

/* The character that ends before end, which is not the begin of the text. */
static inline uint32_t mfs_utf8_before(const char *end, size_t *ret_size)
{
	const char *p = end - 1;

	while (((uint8_t)*p & 0xc0) == 0x80)
		p--;
	return mfs_utf8_get(p, ret_size);
}

/* Writes a character; out has room for 4 bytes. Returns how many it has. */
size_t mfs_utf8_put(uint32_t c, char *out);
void mfs_utf8_add(struct mfs_buf *b, uint32_t c);

/* The number of bytes at the begin of text that are whole characters of UTF-8 (RFC 3629). */
size_t mfs_utf8_valid(const char *text, size_t len);
/* The number of bytes at text that are one error: what Python's errors="replace" makes one U+FFFD
 * of (Unicode 16, 3.9, "U+FFFD Substitution of Maximal Subparts"). *ret_short: they may become a
 * character if more bytes follow. text is not valid at its begin, and len is not 0. */
size_t mfs_utf8_error(const char *text, size_t len, bool *ret_short);
/* Appends text with U+FFFD in place of its errors. */
void mfs_utf8_repair(struct mfs_buf *b, const char *text, size_t len);

#endif
