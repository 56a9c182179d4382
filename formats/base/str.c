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
