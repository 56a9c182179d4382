/* One writer at a time of what several may want to write. */
#ifndef MFS_IO_LOCK_H
#define MFS_IO_LOCK_H

/* Locks an open file or directory until its descriptor is closed, however the process ends. -EBUSY:
 * another process has it; other -errno. 0, too, on file systems that know no locks (Lustre without
 * -o flock, NFS without its daemon): there nobody can tell. */
int mfs_lock_try(int fd);

#endif
