/*
 * Signals of a mount. SIGTERM, SIGINT and SIGHUP end it; libfuse handles these. SIGUSR1 asks for a
 * line in the log. Stray signals that would kill the process by default are ignored.
 */
#ifndef MFS_FS_MOUNT_SIGNALS_H
#define MFS_FS_MOUNT_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* Called at the start of the process, before there are threads. Stray signals are ignored from now
 * on, and SIGUSR1 is blocked in this thread and those that it starts, until mfs_signals_wait()
 * takes it. */
void mfs_signals_ignore_stray(void);

/* Called in a thread of its own with all signals blocked. Calls status(arg) for each SIGUSR1, and
 * every(arg) every seconds seconds. Returns when *stop is true and another SIGUSR1 was sent to the
 * thread. */
void mfs_signals_wait(void (*status)(void *arg), void (*every)(void *arg), time_t seconds,
		      void *arg, atomic_bool *stop);

#endif
