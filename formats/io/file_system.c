#include "formats/io/file_system.h"

#include <linux/magic.h>
#include <stddef.h>
#include <sys/vfs.h>

#include "formats/base/array.h"

/* What statfs(2) calls file systems of other machines; linux/magic.h has not all of them. */
static const unsigned long remote_magic[] = {
	NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC,	   0xff534d42 /* cifs */,   0xfe534d42 /* smb2 */,
	CEPH_SUPER_MAGIC, 0x0bd00bd0 /* lustre */, 0x47504653 /* gpfs */,   V9FS_MAGIC,
	AFS_SUPER_MAGIC,  FUSE_SUPER_MAGIC,	   0x19830326 /* beegfs */,
};

enum mfs_file_system_kind mfs_file_system_of(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return MFS_FILE_SYSTEM_REMOTE;
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC)
		return MFS_FILE_SYSTEM_MEMORY;
	for (size_t i = 0; i < MFS_ARRAY_SIZE(remote_magic); i++)
		if ((unsigned long)fs.f_type == remote_magic[i])
			return MFS_FILE_SYSTEM_REMOTE;
	return MFS_FILE_SYSTEM_DISK;
}
