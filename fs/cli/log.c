#define _GNU_SOURCE
#include "fs/cli/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/buf.h"
#include "formats/base/str.h"

#define LINE 2048 /* bytes of a message; a longer one is cut */

static atomic_bool debug, background, json;
static char *file_path; /* of file; set before there are threads */
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

void mfs_log_set_json(void)
{
	json = true;
}

/* A FIFO without a reader must not block the mount, here or later. */
static int open_file(const char *path, struct mfs_error *err)
{
	int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0640);

	return fd < 0 ? mfs_fail_errno(err, "cannot open the log '%s'", path) : fd;
}

int mfs_log_open(const char *path, struct mfs_error *err)
{
	int fd = open_file(path, err);

	if (fd < 0)
		return fd;
	file_path = strdup(path);
	file = fd;
	return 0;
}

/* Other threads write to the number of the old descriptor, which the new file gets. */
int mfs_log_reopen(struct mfs_error *err)
{
	int fd;

	if (file < 0 || !file_path)
		return 0;
	fd = open_file(file_path, err);
	if (fd < 0)
		return fd;
	if (dup3(fd, file, O_CLOEXEC) < 0) {
		close(fd);
		return mfs_fail_errno(err, "cannot open the log '%s'", file_path);
	}
	close(fd);
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

static void add_json(struct mfs_buf *line, const char *when, int priority, const char *text)
{
	mfs_buf_printf(line, "{\"time\":\"%s\",\"level\":\"%s\",\"pid\":%ld,\"mount\":", when,
		       name_of(priority), (long)getpid());
	mfs_buf_add_json(line, mfs_log_mount());
	mfs_buf_adds(line, ",\"message\":");
	mfs_buf_add_json(line, text);
	mfs_buf_adds(line, "}\n");
}

/* One write() a message, so that lines of several threads and mounts do not mix. */
static void to_file(int fd, int priority, const char *text)
{
	struct mfs_buf line = {0};
	char when[32];
	struct tm tm;
	time_t now = time(NULL);
	ssize_t written = 0;

	strftime(when, sizeof(when), "%FT%T%z", localtime_r(&now, &tm));
	if (json)
		add_json(&line, when, priority, text);
	else
		mfs_buf_printf(&line, "%s mcorefs[%ld] %s: %s\n", when, (long)getpid(),
			       name_of(priority), text);
	if (!line.failed)
		written = write(fd, line.data, line.len);
	(void)written; /* a failure cannot be reported */
	mfs_buf_release(&line);
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
	mfs_str_printable(text);
	if (fd >= 0)
		to_file(fd, priority, text);
	if (!background && json)
		to_file(STDERR_FILENO, priority, text);
	else if (!background)
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
