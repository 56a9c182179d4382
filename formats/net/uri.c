#include "formats/net/uri.h"

#include <errno.h>
#include <string.h>

#include "formats/base/str.h"

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

/* Decodes the byte that begins at text[*i], and moves *i past it. At most 0: there is none. */
static int next_byte(const char *text, size_t len, size_t *i, bool plus_is_space)
{
	const char c = text[(*i)++];
	int high, low;

	if (c == '+' && plus_is_space)
		return ' ';
	if (c != '%')
		return (unsigned char)c;
	if (len - *i < 2)
		return -1;
	high = mfs_str_digit(text[*i]);
	low = mfs_str_digit(text[*i + 1]);
	*i += 2;
	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

int mfs_uri_decode(struct mfs_buf *b, const char *text, size_t len, bool plus_is_space)
{
	for (size_t i = 0; i < len;) {
		const int byte = next_byte(text, len, &i, plus_is_space);
		const char c = (char)byte;

		if (byte <= 0)
			return -EINVAL;
		mfs_buf_add(b, &c, 1);
	}
	return b->failed ? -ENOMEM : 0;
}

int mfs_uri_decode_text(char *text, bool plus_is_space)
{
	const size_t len = strlen(text);
	char *to = text;

	for (size_t i = 0; i < len;) {
		const int byte = next_byte(text, len, &i, plus_is_space);

		if (byte <= 0)
			return -EINVAL;
		*to++ = (char)byte;
	}
	*to = '\0';
	return 0;
}
