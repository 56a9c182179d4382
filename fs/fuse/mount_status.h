/*
 * The status of a mount, by an ioctl of its root directory, for processes that may open it:
 * `mcorefs mounts`.
 */
#ifndef MFS_FS_FUSE_MOUNT_STATUS_H
#define MFS_FS_FUSE_MOUNT_STATUS_H

#include <stdint.h>
#include <sys/ioctl.h>

/* Counts begin with the mount. Fields are only ever added at the end: the size is part of the
 * ioctl's number. */
struct mfs_mount_status {
	int64_t began;	     /* seconds since 1970 */
	uint64_t reads;	     /* requests of the kernel; what its page cache answers is none */
	uint64_t bytes;	     /* served */
	uint64_t errors;     /* reads and opens that failed */
	uint64_t open_files; /* now */
	uint32_t pid;	     /* in the daemon's own namespace */
	uint32_t zero;
};
#define MFS_IOC_STATUS _IOR('m', 0x74, struct mfs_mount_status)

/* Asks a mount for its status. It waits as long as the mount does not answer. -ENOTTY: it is no
 * mount of mcorefs, or one of an older version; -errno. */
int mfs_mount_status_ask(const char *mountpoint, struct mfs_mount_status *ret);

#endif
