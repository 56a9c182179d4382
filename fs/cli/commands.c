#include "fs/cli/commands.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

#include "fs/cli/log.h"

static const char *usage_of;
static char failure[2048];
static int print_errno; /* of the first flush that failed */

void mfs_usage_of(const char *command)
{
	usage_of = command;
}

int mfs_usage_error(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mfs_log(LOG_ERR, "%s (mcorefs %s%s--help says more)", text, usage_of ? usage_of : "",
		usage_of ? " " : "");
	return MFS_EXIT_USAGE;
}

int mfs_command_failed(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(failure, sizeof(failure), fmt, ap);
	va_end(ap);
	mfs_log(LOG_ERR, "%s", failure);
	return MFS_EXIT_FAILED;
}

const char *mfs_command_failure(void)
{
	return *failure ? failure : NULL;
}

/* A failed flush drops its bytes, and a later one may succeed. So the first failure is kept. */
void mfs_print_flush(void)
{
	errno = 0;
	if ((fflush(stdout) || ferror(stdout)) && !print_errno)
		print_errno = errno ? errno : EIO;
}

int mfs_print_end(int code, int failed)
{
	mfs_print_flush();
	if (!print_errno)
		return code;
	mfs_command_failed("cannot write to standard output: %s", strerror(print_errno));
	return failed;
}
