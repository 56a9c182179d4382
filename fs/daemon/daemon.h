/*
 * Going into the background in two steps. The child prepares the mount while it still has the
 * terminal, and the parent waits until the child reports success or failure.
 *
 * Until then the child stays in its session and process group. An automounter lets only processes
 * of its own group see below its mount point, and makes all others wait until the mount is there
 * (Documentation/filesystems/autofs.rst of the kernel; systemd starts mount(8) in its own group for
 * this).
 */
#ifndef MFS_FS_DAEMON_DAEMON_H
#define MFS_FS_DAEMON_DAEMON_H

#include "formats/base/error.h"

struct mfs_daemon {
	int report; /* the child's end of a pipe; -1: foreground, or reported already */
	int (*exit_of)(int code); /* the parent's exit status for a code; NULL: the code */
};

/* Opens /dev/null as 0, 1 and 2 if they are closed, so that no source becomes stderr. */
void mfs_daemon_open_stdio(void);

/* Raises the soft limit of open files to the hard one. */
void mfs_daemon_raise_limits(void);

/* Forks. The parent never returns: it exits with the code that the child reports, or with broken if
 * the child ends without a report; both as exit_of has it. -errno. */
int mfs_daemon_start(struct mfs_daemon *d, int broken, struct mfs_error *err);

/* The mount answers. The child begins a session of its own and releases the terminal, its
 * messages go to syslog or the log file, and the parent exits with 0. In the foreground this
 * does nothing. */
void mfs_daemon_ready(struct mfs_daemon *d);

/* The child has failed: the parent exits with this code. The caller exits with it too. */
void mfs_daemon_failed(struct mfs_daemon *d, int code);

#endif
