#include "fs/cli/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define LINE 2048 /* bytes of a message; a longer one is cut */

static atomic_bool debug, background;
static atomic_int file = -1;
static const char *_Atomic mount = "";

void mfs_log_set_debug(void)
{
	debug = true;
}

void mfs_log_set_mount(const char *mountpoint)
{
	mount = mountpoint;
}

const char *mfs_log_mount(void)
{
	return mount;
}

int mfs_log_open(const char *path, struct mfs_error *err)
{
	/* A FIFO without a reader must not block the mount, here or later. */
	int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);

	if (fd < 0)
		return mfs_fail_errno(err, "cannot open the log '%s'", path);
	file = fd;
	return 0;
}

void mfs_log_leave_terminal(void)
{
	if (file < 0)
		openlog("mcorefs", LOG_PID, LOG_DAEMON);
	background = true;
}

static const char *name_of(int priority)
{
	static const char *const names[] = {
		[LOG_EMERG] = "error", [LOG_ALERT] = "error",	  [LOG_CRIT] = "error",
		[LOG_ERR] = "error",   [LOG_WARNING] = "warning", [LOG_NOTICE] = "note",
		[LOG_INFO] = "note",   [LOG_DEBUG] = "debug",
	};

	return priority >= 0 && priority <= LOG_DEBUG ? names[priority] : "note";
}

/* One write() a message, so that lines of several threads and mounts do not mix. */
static void to_file(int fd, int priority, const char *text)
{
	char line[LINE + 128], when[32];
	struct tm tm;
	time_t now = time(NULL);
	ssize_t written;
	int len;

	strftime(when, sizeof(when), "%FT%T%z", localtime_r(&now, &tm));
	len = snprintf(line, sizeof(line), "%s mcorefs[%ld] %s: %s\n", when, (long)getpid(),
		       name_of(priority), text);
	written = write(fd, line, (size_t)len);
	(void)written; /* a failure cannot be reported */
}

void mfs_vlog(int priority, const char *fmt, va_list ap)
{
	char text[LINE];
	const int fd = file;
	size_t len;

	if (priority == LOG_DEBUG && !debug)
		return;
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		return;
	for (len = strlen(text); len > 0 && text[len - 1] == '\n';)
		text[--len] = '\0';
	if (fd >= 0)
		to_file(fd, priority, text);
	if (!background)
		fprintf(stderr, "mcorefs: %s\n", text);
	else if (fd < 0)
		syslog(priority, "%s", text);
}

void mfs_log(int priority, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	mfs_vlog(priority, fmt, ap);
	va_end(ap);
}
