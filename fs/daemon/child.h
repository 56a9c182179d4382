/*
 * Starts a second process of this program that works on the daemon's own mount. A thread could not
 * do that: a thread that waits for an answer of its own process keeps it from being killed. The
 * program is started anew and not forked, because a fork would keep the daemon's mappings and
 * /dev/fuse.
 */
#ifndef MFS_FS_DAEMON_CHILD_H
#define MFS_FS_DAEMON_CHILD_H

#include <sys/types.h>

/* In the child: its end of the socket, and its only file but /dev/null as 0, 1 and 2. */
#define MFS_CHILD_FD 3

/* argv[1] names what it is to be (fs/main.c). *ret_fd: our end of a socket of packets. No signal is
 * blocked or handled in the child. -errno. */
int mfs_child_start(char **argv, pid_t *ret_pid, int *ret_fd);

/* The first thing that a child does. It ends with the daemon, and with nobody else: a terminal or a
 * service manager signals all processes, and the daemon reacts for its children. It has two
 * arguments; if not, a person gives the command, and is told that there is none. An exit status, or
 * 0. */
int mfs_child_begin(int argc, const char *command);

#endif
