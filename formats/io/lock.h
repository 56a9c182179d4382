/* Locks for files that several processes may want to write. */
#ifndef MFS_IO_LOCK_H
#define MFS_IO_LOCK_H

/* Locks an open file or directory until its descriptor is closed or the process ends. -EBUSY:
 * another process has the lock; or another -errno. The result is also 0 on file systems without
 * locks (Lustre without -o flock, NFS without its daemon), where nobody can tell. */
int mfs_lock_try(int fd);

#endif
