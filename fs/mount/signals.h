/*
 * Signals of a mount. SIGTERM, SIGINT and SIGHUP end it (libfuse sees to that). SIGUSR1 asks for a
 * line in the log. Others that by default would kill, and that nobody sends on purpose, are
 * ignored.
 */
#ifndef MFS_FS_MOUNT_SIGNALS_H
#define MFS_FS_MOUNT_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

/* For the start of the process, before there are threads: nothing stray kills it from now on, and
 * SIGUSR1 waits for mfs_signals_wait(), in this thread and those that it starts. */
void mfs_signals_ignore_stray(void);

/* In a thread of its own, with all signals blocked: calls status(arg) for each SIGUSR1, and
 * every(arg) whenever so many seconds have gone by, until *stop is true and one more was sent to
 * the thread. */
void mfs_signals_wait(void (*status)(void *arg), void (*every)(void *arg), time_t seconds,
		      void *arg, atomic_bool *stop);

#endif
