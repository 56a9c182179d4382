/*
 * What the program says while it runs: "mcorefs: message", on stderr until
 * mfs_log_leave_terminal(), from then on in syslog. A file (-o log=) takes everything from the
 * start, and takes syslog's place. The library below (formats/) never calls this.
 */
#ifndef MFS_FS_CLI_LOG_H
#define MFS_FS_CLI_LOG_H

#include <stdarg.h>

#include "formats/base/error.h"

/* Priorities are those of syslog(3). Debug messages are dropped unless asked for. */
void mfs_log(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mfs_vlog(int priority, const char *fmt, va_list ap);

void mfs_log_set_debug(void);
/* Appends to a file, made with mode 640, a line at a time: "2026-01-31T12:00:00+0000 mcorefs[PID]
 * error: message". -errno if it cannot be opened; -EINVAL: a directory. */
int mfs_log_open(const char *path, struct mfs_error *err);
void mfs_log_leave_terminal(void);

/* Where this process has its mount, for messages; "" until it is said. Borrowed. */
void mfs_log_set_mount(const char *mountpoint);
const char *mfs_log_mount(void);

#endif
