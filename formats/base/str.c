#include "formats/base/str.h"

#include <stdint.h>

bool mfs_str_ends(const char *text, const char *end)
{
	const size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && !strcmp(text + len - end_len, end);
}

int mfs_str_order(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

int mfs_str_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void mfs_str_hex(const void *bytes, size_t len, char *ret)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *b = bytes;

	for (size_t i = 0; i < len; i++) {
		*ret++ = digits[b[i] >> 4];
		*ret++ = digits[b[i] & 15];
	}
	*ret = '\0';
}

/* Bytes of the character of UTF-8 that begins here; 0: it is none, or a control character. */
static size_t character(const uint8_t *s)
{
	const size_t len = *s < 0x20 || *s == 0x7f ? 0
			   : *s < 0x80		   ? 1
			   : *s < 0xc2		   ? 0
			   : *s < 0xe0		   ? 2
			   : *s < 0xf0		   ? 3
			   : *s < 0xf5		   ? 4
						   : 0;

	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return *s == 0xc2 && s[1] < 0xa0 ? 0 : len;
}

void mfs_str_printable(char *text)
{
	size_t len;

	for (; *text; text += len ? len : 1) {
		len = character((const uint8_t *)text);
		if (!len)
			*text = '?';
	}
}
