#include "formats/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/str.h"

void mfs_error_set(struct mfs_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (!err)
		return;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	mfs_str_printable(err->msg);
}

const char *mfs_errno_text(int code)
{
	return code == ENOLINK ? "a link leads out of its source" : strerror(code);
}

int mfs_fail_in(struct mfs_error *err, const char *fmt, ...)
{
	char prefix[sizeof(err->msg)];
	size_t len, room;
	va_list ap;

	if (!err)
		return -EIO;
	va_start(ap, fmt);
	vsnprintf(prefix, sizeof(prefix) / 2, fmt, ap);
	va_end(ap);
	mfs_str_printable(prefix);
	strcat(prefix, ": ");
	len = strlen(prefix);
	room = sizeof(err->msg) - len;
	memmove(err->msg + len, err->msg, room);
	err->msg[sizeof(err->msg) - 1] = '\0';
	memcpy(err->msg, prefix, len);
	return err->code ? err->code : -EIO;
}
