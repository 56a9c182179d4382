/* Who uses a mount. */
#ifndef MFS_FS_DAEMON_USERS_H
#define MFS_FS_DAEMON_USERS_H

#include <sys/types.h>

#define MFS_MOUNT_USERS 4

struct mfs_mount_users {
	pid_t pids[MFS_MOUNT_USERS];
	char names[MFS_MOUNT_USERS][32]; /* of their programs, without control characters */
	unsigned count, more;		 /* those named, and others */
};

/* Finds processes that have a file of the mount on place open, stand in it, or run from it, by the
 * links in /proc. Those of other users are seen by root alone. It asks nothing of the mount, which
 * may not answer. */
void mfs_mount_users_find(const char *place, struct mfs_mount_users *ret);

#endif
