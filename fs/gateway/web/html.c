#include "fs/gateway/web/html.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"

/* The bytes of the character that begins here, and its number; 0: it is no UTF-8 (RFC 3629). */
static size_t decode(const uint8_t *at, size_t left, uint32_t *ret)
{
	static const struct {
		uint8_t mask, lead;
		size_t len;
		uint32_t least;
	} forms[] = {{0x80, 0x00, 1, 0},
		     {0xe0, 0xc0, 2, 0x80},
		     {0xf0, 0xe0, 3, 0x800},
		     {0xf8, 0xf0, 4, 0x10000}};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(forms); i++) {
		uint32_t c = *at & (uint8_t)~forms[i].mask;

		if ((*at & forms[i].mask) != forms[i].lead || forms[i].len > left)
			continue;
		for (size_t k = 1; k < forms[i].len; k++) {
			if ((at[k] & 0xc0) != 0x80)
				return 0;
			c = c << 6 | (at[k] & 0x3f);
		}
		*ret = c;
		return c < forms[i].least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)
			       ? 0
			       : forms[i].len;
	}
	return 0;
}

/* Characters that are not seen, and change what is. */
static bool is_hidden(uint32_t c)
{
	static const uint32_t ranges[][2] = {
		{0x00, 0x1f},	  {0x7f, 0x9f},	    {0x061c, 0x061c}, {0x200e, 0x200f},
		{0x2028, 0x202e}, {0x2066, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(ranges); i++)
		if (c >= ranges[i][0] && c <= ranges[i][1])
			return true;
	return false;
}

void mfs_html_text_part(struct mfs_buf *b, const char *text, size_t len)
{
	const uint8_t *at = (const uint8_t *)text;

	while (len) {
		uint32_t c = 0;
		const size_t n = decode(at, len, &c);

		if (!n || is_hidden(c))
			mfs_buf_adds(b, "&#xFFFD;");
		else if (n == 1 && strchr("<>&\"'`", (int)c))
			mfs_buf_printf(b, "&#%u;", c);
		else
			mfs_buf_add(b, at, n);
		at += n ? n : 1;
		len -= n ? n : 1;
	}
}

void mfs_html_text(struct mfs_buf *b, const char *text)
{
	mfs_html_text_part(b, text, strlen(text));
}

void mfs_html_name(struct mfs_buf *b, const char *name)
{
	mfs_buf_adds(b, "<bdi>");
	mfs_html_text(b, name);
	mfs_buf_adds(b, "</bdi>");
}

void mfs_html_link(struct mfs_buf *b, const char *href, const char *name)
{
	mfs_buf_adds(b, "<a href=\"");
	mfs_html_text(b, href);
	mfs_buf_adds(b, "\">");
	mfs_html_name(b, name);
	mfs_buf_adds(b, "</a>");
}

void mfs_html_fact(struct mfs_buf *b, const char *what, const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mfs_buf_printf(b, "<dt>%s<dd>", what);
	mfs_html_text(b, text);
	mfs_buf_adds(b, "\n");
}
