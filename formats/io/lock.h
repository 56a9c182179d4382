/* Locks for files that several processes may want to write. */
#ifndef MFS_IO_LOCK_H
#define MFS_IO_LOCK_H

#include <stdbool.h>

/* Locks an open file or directory until its descriptor is closed or the process ends. -EBUSY:
 * another process has the lock; or another -errno. The result is also 0 on file systems without
 * locks (Lustre without -o flock, NFS without its daemon), where nobody can tell: *ret_none is true
 * then. ret_none may be NULL. NFS locks files alone, and those that are open for writing. */
int mfs_lock_try(int fd, bool *ret_none);

#endif
