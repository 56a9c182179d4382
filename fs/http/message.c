#define _GNU_SOURCE
#include "fs/http/message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void mfs_reply_header(struct mfs_reply *a, const char *name, const char *fmt, ...)
{
	char *value;
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vasprintf(&value, fmt, ap);
	va_end(ap);
	if (len < 0 || a->header_count == MFS_REPLY_HEADERS) {
		a->failed = true;
		if (len >= 0)
			free(value);
		return;
	}
	for (char *c = value; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	a->headers[a->header_count].name = name;
	a->headers[a->header_count++].value = value;
}

static void drop_body(struct mfs_reply *a)
{
	mfs_buf_release(&a->text);
	a->text = (struct mfs_buf){0};
	if (a->stream)
		a->stream->release(a->object);
	a->stream = NULL;
	a->object = NULL;
	a->length = 0;
}

void mfs_reply_error(struct mfs_reply *a, unsigned status, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(a->why, sizeof(a->why), fmt, ap);
	va_end(ap);
	drop_body(a);
	a->status = status;
	a->type = "text/plain; charset=utf-8";
	mfs_buf_printf(&a->text, "%s\n", a->why);
}

void mfs_reply_release(struct mfs_reply *a)
{
	drop_body(a);
	for (unsigned i = 0; i < a->header_count; i++)
		free(a->headers[i].value);
	a->header_count = 0;
}
