#include "fs/log.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>

static atomic_bool debug, to_syslog;

void mfs_log_set_debug(void)
{
	debug = true;
}

void mfs_log_to_syslog(void)
{
	openlog("mcorefs", LOG_PID, LOG_DAEMON);
	to_syslog = true;
}

/* One write per message: lines of several threads do not mix. */
static void to_stderr(const char *fmt, va_list ap)
{
	char line[1024];
	int n = vsnprintf(line, sizeof(line), fmt, ap);
	size_t len = strnlen(line, sizeof(line) - 1);

	if (n < 0)
		return;
	while (len > 0 && line[len - 1] == '\n')
		len--;
	fprintf(stderr, "mcorefs: %.*s\n", (int)len, line);
}

void mfs_vlog(int priority, const char *fmt, va_list ap)
{
	if (priority == LOG_DEBUG && !debug)
		return;
	if (to_syslog)
		vsyslog(priority, fmt, ap);
	else
		to_stderr(fmt, ap);
}

void mfs_log(int priority, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	mfs_vlog(priority, fmt, ap);
	va_end(ap);
}
