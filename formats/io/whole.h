/* Reads and writes that go on until all bytes are done. Both return 0 or -errno. */
#ifndef MFS_IO_WHOLE_H
#define MFS_IO_WHOLE_H

#include <stddef.h>
#include <stdint.h>

/* Reads exactly len bytes at off. -EIO: the file ends before; -errno. */
int mfs_pread_whole(int fd, uint64_t off, void *buf, size_t len);
/* At the descriptor's own offset. -EIO if nothing more is taken. */
int mfs_write_whole(int fd, const void *bytes, size_t len);

#endif
