#define _GNU_SOURCE
#include "fs/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <syslog.h>
#include <unistd.h>

#include "fs/cli/log.h"

void mfs_daemon_open_stdio(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= 2);
	if (fd > 2)
		close(fd);
}

void mfs_daemon_raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void __attribute__((noreturn))
wait_for_report(const struct mfs_daemon *d, int fd, int broken)
{
	unsigned char byte;
	ssize_t n;
	int code;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	code = n == 1 ? byte : broken;
	_exit(d->exit_of ? d->exit_of(code) : code);
}

int mfs_daemon_start(struct mfs_daemon *d, int broken, struct mfs_error *err)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return mfs_fail_errno(err, "cannot make a pipe");
	pid = fork();
	if (pid < 0) {
		int rc = mfs_fail_errno(err, "cannot start a process");

		close(ends[0]);
		close(ends[1]);
		return rc;
	}
	if (pid > 0) {
		close(ends[1]);
		wait_for_report(d, ends[0], broken);
	}
	close(ends[0]);
	d->report = ends[1];
	return 0;
}

static void report(struct mfs_daemon *d, int code)
{
	unsigned char byte = (unsigned char)code;
	ssize_t n;

	do {
		n = write(d->report, &byte, 1);
	} while (n < 0 && errno == EINTR);
	close(d->report);
	d->report = -1;
}

/* Called before the report: a program that reads our stderr to its end must not wait for the
 * daemon. */
static void release_terminal(void)
{
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	for (int i = 0; i < 3; i++)
		dup2(fd, i);
	close(fd);
}

void mfs_daemon_ready(struct mfs_daemon *d)
{
	if (d->report < 0)
		return;
	setsid();
	mfs_log_leave_terminal();
	release_terminal();
	if (chdir("/"))
		mfs_log(LOG_WARNING, "cannot leave the working directory");
	report(d, 0);
}

void mfs_daemon_failed(struct mfs_daemon *d, int code)
{
	if (d->report >= 0)
		report(d, code);
}
