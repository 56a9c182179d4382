#define _GNU_SOURCE
#include "fs/fuse/mount_status.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int mfs_mount_status_ask(const char *mountpoint, struct mfs_mount_status *ret)
{
	int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = ioctl(fd, MFS_IOC_STATUS, ret) ? -errno : 0;
	close(fd);
	return rc;
}
