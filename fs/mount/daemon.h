/*
 * Going into the background, in two steps: the work of starting is done by the child, with the
 * terminal still its own, and the parent lives until the child says how it went.
 *
 * Until then the child stays in the session and the process group that it was started in: an
 * automounter lets processes of its own group alone see what is below its mount point, and makes
 * all others wait until it has mounted (Documentation/filesystems/autofs.rst of the kernel; systemd
 * starts mount(8) in its own group for this).
 */
#ifndef MFS_FS_MOUNT_DAEMON_H
#define MFS_FS_MOUNT_DAEMON_H

#include "formats/base/error.h"

struct mfs_daemon {
	int report; /* the child's end of a pipe; -1: in the foreground, or reported already */
};

/* Opens /dev/null as 0, 1 and 2 where they are closed: a source must not become our stderr. */
void mfs_daemon_open_stdio(void);

/* Soft limit of open files up to the hard one. */
void mfs_daemon_raise_limits(void);

/* Forks; the parent never returns: it exits with the code that the child reports, or with `broken`
 * should the child end without a word. -errno. */
int mfs_daemon_start(struct mfs_daemon *d, int broken, struct mfs_error *err);

/* The child works, its mount answers: it gets a session of its own, its messages go to syslog or
 * its log file from now on, the terminal is released, and the parent exits with 0. Nothing happens
 * in the foreground. */
void mfs_daemon_ready(struct mfs_daemon *d);

/* The child gives up: the parent exits with this code. The caller exits with it too. */
void mfs_daemon_failed(struct mfs_daemon *d, int code);

#endif
