/*
 * Unmounts for a daemon that has given up the right to: a process with the rights that the daemon
 * had, and nothing else. It unmounts when it is asked to. If the daemon ends without asking, the
 * mount stays and is dead, as it is when any daemon is killed.
 */
#ifndef MFS_FS_DAEMON_UNMOUNTER_H
#define MFS_FS_DAEMON_UNMOUNTER_H

#include <sys/types.h>

/* The command that makes the program this process. */
#define MFS_UNMOUNTER_COMMAND "--unmounter"

struct mfs_unmounter {
	pid_t pid;
	int fd;	   /* -1: there is none */
	int mount; /* its number */
};

/* The mount stands. -errno. */
int mfs_unmounter_start(const char *mountpoint, struct mfs_unmounter *ret);
/* Unmounts, and returns when that is done. Does nothing if there is no mount. -ESRCH: the process
 * was gone; -errno: it failed. After an error the mount still exists. */
int mfs_unmounter_end(struct mfs_unmounter *u);

/* main() of the process. */
int mfs_unmounter_main(int argc, char **argv);

#endif
