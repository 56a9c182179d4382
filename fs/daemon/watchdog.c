#define _GNU_SOURCE
#include "fs/daemon/watchdog.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <syslog.h>
#include <unistd.h>

#include "formats/base/threads.h"
#include "fs/cli/commands.h"
#include "fs/cli/log.h"
#include "fs/daemon/child.h"
#include "fs/cli/notify.h"

/* Thrice within the time that the manager waits. */
#define TIMES	   3
#define LONGEST_US 1000000000

/* ---- the process that asks ---- */

int mfs_watchdog_main(int argc, char **argv)
{
	struct pollfd daemon = {.fd = MFS_CHILD_FD, .events = POLLIN};
	int pause_ms, code = mfs_child_begin(argc, MFS_WATCHDOG_COMMAND);

	if (code)
		return code;
	pause_ms = (int)(strtoul(argv[2], NULL, 10) / 1000);
	do {
		if (listxattr(argv[1], NULL, 0) >= 0)
			send(MFS_CHILD_FD, "", 1, MSG_NOSIGNAL);
		/* The daemon never writes: it has ended, or wants this to. It may be another
		 * user's, who cannot kill us, and the mount point may be gone. */
	} while (!poll(&daemon, 1, pause_ms ? pause_ms : 1));
	return MFS_EXIT_OK;
}

/* ---- the daemon ---- */

struct mfs_watchdog {
	pthread_t thread;
	bool fed; /* the thread runs */
	pid_t pid;
	int fd;
};

static int start_asking(struct mfs_watchdog *w, const char *mountpoint, uint64_t us)
{
	char pause_us[32];
	char *argv[] = {"mcorefs-watchdog", MFS_WATCHDOG_COMMAND, (char *)mountpoint, pause_us,
			NULL};

	snprintf(pause_us, sizeof(pause_us), "%" PRIu64, us);
	return mfs_child_start(argv, &w->pid, &w->fd);
}

struct mfs_watchdog *mfs_watchdog_start(const char *mountpoint)
{
	uint64_t us = mfs_notify_watchdog_us() / TIMES;
	struct mfs_watchdog *w = us ? calloc(1, sizeof(*w)) : NULL;
	int rc;

	if (!w)
		return NULL;
	rc = start_asking(w, mountpoint, us < LONGEST_US ? us : LONGEST_US);
	if (!rc)
		return w;
	mfs_log(LOG_ERR, "no process that watches the mount: %s", strerror(-rc));
	free(w);
	return NULL;
}

static void *pass_on(void *arg)
{
	struct mfs_watchdog *w = arg;
	char byte;

	while (recv(w->fd, &byte, 1, 0) > 0)
		mfs_notify("WATCHDOG=1");
	return NULL;
}

void mfs_watchdog_feed(struct mfs_watchdog *w)
{
	if (!w)
		return;
	w->fed = !mfs_thread_start(&w->thread, "watchdog", pass_on, w);
	if (!w->fed)
		mfs_log(LOG_ERR, "no thread for the watchdog");
}

void mfs_watchdog_stop(struct mfs_watchdog *w)
{
	if (!w)
		return;
	shutdown(w->fd, SHUT_RDWR);
	if (w->fed)
		pthread_join(w->thread, NULL);
	kill(w->pid, SIGKILL); /* where we may: it ends by itself */
	while (waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(w->fd);
	free(w);
}
