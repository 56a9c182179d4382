#include "formats/net/uri.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static bool is_unreserved(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
	       (c && strchr("-._~", c));
}

void mfs_uri_encode(struct mfs_buf *b, const char *bytes, size_t len, bool keep_slash)
{
	static const char digits[] = "0123456789ABCDEF";

	for (size_t i = 0; i < len; i++) {
		const unsigned char c = (unsigned char)bytes[i];
		const char code[] = {'%', digits[c >> 4], digits[c & 15]};

		if (is_unreserved(c) || (keep_slash && c == '/'))
			mfs_buf_add(b, bytes + i, 1);
		else
			mfs_buf_add(b, code, sizeof(code));
	}
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int mfs_uri_decode(struct mfs_buf *b, const char *text, size_t len, bool plus_is_space)
{
	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '%') {
			if (len - i < 3 || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0)
				return -EINVAL;
			c = (char)(digit(text[i + 1]) << 4 | digit(text[i + 2]));
			i += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		if (!c)
			return -EINVAL;
		mfs_buf_add(b, &c, 1);
	}
	return b->failed ? -ENOMEM : 0;
}
