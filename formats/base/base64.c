#include "formats/base/base64.h"

#include <stdint.h>

static int digit_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int mfs_base64_decode(const char *text, size_t len, struct mfs_buf *ret, struct mfs_error *err)
{
	uint32_t bits = 0;
	unsigned count = 0;
	size_t padding = 0;

	if (len % 4)
		return mfs_fail(err, -EINVAL, "base64 of %zu characters; expected a multiple of 4",
				len);
	while (padding < 2 && padding < len && text[len - 1 - padding] == '=')
		padding++;
	for (size_t i = 0; i < len - padding; i++) {
		const int digit = digit_of(text[i]);
		uint8_t byte;

		if (digit < 0)
			return mfs_fail(err, -EINVAL,
					"base64 with a character that is none of its");
		bits = bits << 6 | (uint32_t)digit;
		count += 6;
		if (count < 8)
			continue;
		count -= 8;
		byte = (uint8_t)(bits >> count);
		mfs_buf_add(ret, &byte, 1);
	}
	return ret->failed ? mfs_fail_nomem(err) : 0;
}
