/*
 * Opens a source file: for reading, and only if it is a regular file. No source is opened in
 * another way.
 *
 * The owner of a source may put a FIFO, a device or a socket in a file's place at any time. So a
 * look before the open is not enough, and an open without O_NONBLOCK would wait for a FIFO's writer
 * for ever (open(2), fifo(7)).
 */
#ifndef MFS_IO_REGULAR_H
#define MFS_IO_REGULAR_H

#include <sys/stat.h>

/* Opens name below dirfd (AT_FDCWD: as open(2) does) with O_RDONLY | O_CLOEXEC | flags; a useful
 * flag is O_NOFOLLOW. ret may be NULL. 0 or -errno; -EINVAL: it is not a regular file; -ENOLINK: it
 * lies beyond a fence (fence.h). It never
 * waits for another process, except for one that holds a lease on a regular file (fcntl(2):
 * F_SETLEASE), and then as long as the kernel gives that one. */
int mfs_open_regular(int dirfd, const char *name, int flags, int *ret_fd, struct stat *ret);
/* Like mfs_open_regular(), but a file whose bytes are elsewhere (backing.h) is opened as what
 * stands in its place. mfs_open_regular() has all of its bytes fetched, and opens these; *ret is
 * what stands there. */
int mfs_open_regular_as_is(int dirfd, const char *name, int flags, int *ret_fd, struct stat *ret);
/* The reason in words, for the thread's last call of these; a URL's, if the bytes did not come. It
 * stays until the next one. */
const char *mfs_open_regular_why(int rc);

#endif
