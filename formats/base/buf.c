#include "formats/base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct mfs_buf *b, size_t more)
{
	size_t need, cap = b->cap ? b->cap : 256;
	char *data;

	if (b->failed || __builtin_add_overflow(b->len, more, &need) || need == SIZE_MAX) {
		b->failed = true;
		return false;
	}
	if (need < b->cap)
		return true;
	while (cap <= need)
		cap = cap > SIZE_MAX / 2 ? need + 1 : cap * 2;
	data = realloc(b->data, cap);
	if (!data) {
		b->failed = true;
		return false;
	}
	b->data = data;
	b->cap = cap;
	return true;
}

void mfs_buf_add(struct mfs_buf *b, const void *bytes, size_t len)
{
	if (!reserve(b, len))
		return;
	if (len)
		memcpy(b->data + b->len, bytes, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void mfs_buf_adds(struct mfs_buf *b, const char *text)
{
	mfs_buf_add(b, text, strlen(text));
}

void mfs_buf_printf(struct mfs_buf *b, const char *fmt, ...)
{
	va_list ap, again;
	int len;

	va_start(ap, fmt);
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len >= 0 && reserve(b, (size_t)len)) {
		vsnprintf(b->data + b->len, (size_t)len + 1, fmt, again);
		b->len += (size_t)len;
	}
	va_end(again);
}

void mfs_buf_add_json(struct mfs_buf *b, const char *text)
{
	mfs_buf_add_json_bytes(b, text, strlen(text));
}

/* Bytes that stand in a JSON string as they are: as many as come first. */
static size_t plain_bytes(const unsigned char *p, const unsigned char *end)
{
	const unsigned char *at = p;

	while (at < end && *at >= 0x20 && *at != '"' && *at != '\\')
		at++;
	return (size_t)(at - p);
}

void mfs_buf_add_json_part(struct mfs_buf *b, const void *bytes, size_t len)
{
	const unsigned char *p = bytes, *end = p + len;

	while (p < end) {
		const size_t plain = plain_bytes(p, end);

		mfs_buf_add(b, p, plain);
		p += plain;
		if (p == end)
			break;
		mfs_buf_printf(b, *p < 0x20 ? "\\u%04x" : "\\%c", *p);
		p++;
	}
}

void mfs_buf_add_json_bytes(struct mfs_buf *b, const void *bytes, size_t len)
{
	mfs_buf_add(b, "\"", 1);
	mfs_buf_add_json_part(b, bytes, len);
	mfs_buf_add(b, "\"", 1);
}

void mfs_buf_release(struct mfs_buf *b)
{
	free(b->data);
	*b = (struct mfs_buf){0};
}
