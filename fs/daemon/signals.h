/*
 * Signals of a mount. SIGTERM and SIGINT end it; libfuse handles these. So does SIGHUP of a
 * terminal that the mount runs on; else it asks for what can be read again. SIGUSR1 asks for a line
 * in the log. Stray signals that would kill the process by default are ignored.
 */
#ifndef MFS_FS_DAEMON_SIGNALS_H
#define MFS_FS_DAEMON_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* Called at the start of the process, before there are threads. Stray signals are ignored from now
 * on, and SIGUSR1 is blocked in this thread and those that it starts, until mfs_signals_wait()
 * takes it. */
void mfs_signals_ignore_stray(void);
/* Like mfs_signals_ignore_stray(), for SIGHUP: it does not end the mount. */
void mfs_signals_take_hangup(void);

struct mfs_signals_hooks {
	void (*status)(void *arg); /* for each SIGUSR1 */
	void (*reread)(void *arg); /* for each SIGHUP that was taken */
	void (*every)(void *arg);  /* every seconds seconds */
	time_t seconds;
};

/* Called in a thread of its own with all signals blocked. Returns when *stop is true and another
 * SIGUSR1 was sent to the thread. */
void mfs_signals_wait(const struct mfs_signals_hooks *hooks, void *arg, atomic_bool *stop);

#endif
