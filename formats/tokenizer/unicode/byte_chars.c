#include "formats/tokenizer/unicode/byte_chars.h"

#include <string.h>

/* Ranges of bytes that are their own characters; the others follow from U+0100 on. */
static bool is_own(unsigned byte)
{
	return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* How many bytes below it are not their own characters. */
static unsigned others_below(unsigned byte)
{
	return byte < '!' ? byte : byte <= 0xa0 ? byte - 0x7f + 0x21 : 0x43;
}

void mfs_byte_chars_add(struct mfs_buf *b, const char *bytes, size_t len)
{
	char two[512];
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		const unsigned byte = (uint8_t)bytes[i];
		const unsigned c = is_own(byte) ? byte : 0x100 + others_below(byte);

		if (c < 0x80) {
			two[n++] = (char)c;
		} else {
			two[n++] = (char)(0xc0 | c >> 6);
			two[n++] = (char)(0x80 | (c & 0x3f));
		}
		if (n > sizeof(two) - 2) {
			mfs_buf_add(b, two, n);
			n = 0;
		}
	}
	mfs_buf_add(b, two, n);
}

int mfs_byte_chars_byte(uint32_t c)
{
	if (c < 0x100)
		return is_own(c) ? (int)c : -1;
	if (c < 0x121)
		return (int)(c - 0x100);
	if (c < 0x143)
		return (int)(c - 0x121 + 0x7f);
	return c == 0x143 ? 0xad : -1;
}
