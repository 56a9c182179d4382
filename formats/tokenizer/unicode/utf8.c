#include "formats/tokenizer/unicode/utf8.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

size_t mfs_utf8_put(uint32_t c, char *out)
{
	static const uint8_t leads[] = {0, 0xc0, 0xe0, 0xf0};
	const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;

	out[0] = (char)(leads[more] | c >> 6 * more);
	for (int i = 1; i <= more; i++)
		out[i] = (char)(0x80 | (c >> 6 * (more - i) & 0x3f));
	return (size_t)more + 1;
}

void mfs_utf8_add(struct mfs_buf *b, uint32_t c)
{
	char bytes[4];

	mfs_buf_add(b, bytes, mfs_utf8_put(c, bytes));
}

/* What may follow a lead byte (Unicode 16, table 3-7). more: bytes that follow; 0: it leads none.
 * */
static int follow(uint8_t lead, uint8_t *low, uint8_t *high)
{
	*low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
	*high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
	if (lead >= 0xc2 && lead < 0xe0)
		return 1;
	if (lead >= 0xe0 && lead < 0xf0)
		return 2;
	return lead >= 0xf0 && lead < 0xf5 ? 3 : 0;
}

/* How many bytes at text belong together: a character if *ret_whole, else one error. */
static size_t together(const char *text, size_t len, bool *ret_whole, bool *ret_short)
{
	const uint8_t *b = (const uint8_t *)text;
	uint8_t low, high;
	const size_t more = b[0] < 0x80 ? 0 : (size_t)follow(b[0], &low, &high);
	size_t n = 1;

	*ret_short = false;
	*ret_whole = b[0] < 0x80;
	if (!more)
		return 1;
	for (; n <= more && n < len && b[n] >= low && b[n] <= high; n++) {
		low = 0x80;
		high = 0xbf;
	}
	*ret_whole = n > more;
	*ret_short = !*ret_whole && n == len;
	return n;
}

size_t mfs_utf8_valid(const char *text, size_t len)
{
	size_t at = 0, n;
	uint64_t eight;
	bool whole, is_short;

	while (at < len) {
		for (; len - at >= 8; at += 8) {
			memcpy(&eight, text + at, 8);
			if (eight & 0x8080808080808080u)
				break;
		}
		if (at == len)
			break;
		n = together(text + at, len - at, &whole, &is_short);
		if (!whole)
			break;
		at += n;
	}
	return at;
}

size_t mfs_utf8_error(const char *text, size_t len, bool *ret_short)
{
	bool whole;

	return together(text, len, &whole, ret_short);
}

void mfs_utf8_repair(struct mfs_buf *b, const char *text, size_t len)
{
	bool is_short;

	while (len) {
		size_t n = mfs_utf8_valid(text, len);

		mfs_buf_add(b, text, n);
		text += n;
		len -= n;
		if (!len)
			return;
		n = mfs_utf8_error(text, len, &is_short);
		mfs_buf_adds(b, REPLACEMENT);
		text += n;
		len -= n;
	}
}
