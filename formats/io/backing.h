/*
 * Files whose bytes are not all on this disk. What is found by its name is then a placeholder: a
 * sparse file of the right size and time, which nobody writes. Its bytes lie in another file of
 * the same size, whose ranges are filled when somebody needs them (formats/remote).
 *
 * A placeholder is known by its inode, whatever name it was found by. Who opens files asks
 * mfs_backing_of(): mfs_open_regular() hands out a descriptor of a file that is whole, and a
 * fileset has ranges made present before it reads them. So no reader needs to know of it, and none
 * reads the zeros of a placeholder.
 */
#ifndef MFS_IO_BACKING_H
#define MFS_IO_BACKING_H

#include <stdint.h>
#include <sys/stat.h>

#include "formats/base/error.h"

/* Any thread may call these. */
struct mfs_backing_ops {
	/* A descriptor of the file that has the bytes, as far as they are present. -errno. */
	int (*open)(void *object, int *ret_fd, struct mfs_error *err);
	/* Makes [off, off+len) present, which lies in the file, and keeps it so until release() of
	 * *ret_pin. -ESTALE: the bytes have changed at their origin; -ETIMEDOUT, -EIO; -ENOMEM. It
	 * waits for a bounded time. */
	int (*acquire)(void *object, uint64_t off, uint64_t len, uint32_t *ret_pin,
		       struct mfs_error *err);
	void (*release)(void *object, uint32_t pin);
	/* Makes all bytes present, and keeps them so until the object ends: for who hands out
	 * descriptors or mappings, and is not told when they go. It may be called again and again.
	 * Errors of acquire(). */
	int (*keep)(void *object, struct mfs_error *err);
	/* Begins to make a range present. It neither fails nor waits. */
	void (*willneed)(void *object, uint64_t off, uint64_t len);
};

struct mfs_backing {
	const struct mfs_backing_ops *ops;
	void *object;
	/* Another one if the bytes may be others, whatever the placeholder's size and time are; the
	 * same on all machines. */
	uint64_t version;
};

/* From now on the inode is a placeholder. -ENOMEM. The inode must not go away before it is removed
 * here, since its number would be another file's then. */
int mfs_backing_add(const struct stat *st, const struct mfs_backing *backing);
void mfs_backing_remove(const struct stat *st);

/* NULL: an ordinary file. What it points to stays until it is removed. */
const struct mfs_backing *mfs_backing_of(const struct stat *st);

#endif
