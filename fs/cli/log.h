/*
 * Messages of the running program: "mcorefs: message". They go to stderr until
 * mfs_log_leave_terminal(), then to syslog. With a log file (-o log=) they all go to the file, and
 * none to syslog. formats/ never calls this.
 */
#ifndef MFS_FS_CLI_LOG_H
#define MFS_FS_CLI_LOG_H

#include <stdarg.h>

#include "formats/base/error.h"

/* Priorities are those of syslog(3). Debug messages are dropped without mfs_log_set_debug(). */
void mfs_log(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mfs_vlog(int priority, const char *fmt, va_list ap);

void mfs_log_set_debug(void);
/* Appends lines to a file from now on: "2026-01-31T12:00:00+0000 mcorefs[PID] error: message". The
 * file is made with mode 640. -EINVAL: it is a directory; -errno: it cannot be opened. */
int mfs_log_open(const char *path, struct mfs_error *err);
/* Opens the file again by its name, after logrotate(8) has moved it away. Without a file it does
 * nothing. After a failure the old one stays. */
int mfs_log_reopen(struct mfs_error *err);
/* Lines are JSON objects from now on, in the file and on stderr, with the fields time, level, pid,
 * mount and message; syslog gets the message alone, as before. */
void mfs_log_set_json(void);
void mfs_log_leave_terminal(void);

/* The mount point of this process, for messages; "" until it is set. Borrowed. */
void mfs_log_set_mount(const char *mountpoint);
const char *mfs_log_mount(void);

#endif
