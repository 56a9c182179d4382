#include "fs/commands.h"

#include <stdarg.h>
#include <stdio.h>
#include <syslog.h>

#include "fs/log.h"

int mfs_usage_error(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	mfs_log(LOG_ERR, "%s (mcorefs --help says more)", text);
	return MFS_EXIT_USAGE;
}

int mfs_command_failed(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	mfs_vlog(LOG_ERR, fmt, ap);
	va_end(ap);
	return MFS_EXIT_FAILED;
}
