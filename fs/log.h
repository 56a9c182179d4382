/*
 * What the program says while it runs: "mcorefs: message", on stderr until mfs_log_to_syslog().
 * The library below (formats/) never calls this.
 */
#ifndef MFS_FS_LOG_H
#define MFS_FS_LOG_H

#include <stdarg.h>

/* Priorities are those of syslog(3). Debug messages are dropped unless asked for. */
void mfs_log(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void mfs_vlog(int priority, const char *fmt, va_list ap);

void mfs_log_set_debug(void);
void mfs_log_to_syslog(void);

#endif
