/*
 * Inode numbers: a hash of the path within the mount, so that they are the same after a remount.
 * Programs that find hard links or loops by (device, inode) rely on two paths never sharing one.
 */
#ifndef MFS_FS_MOUNT_INODE_H
#define MFS_FS_MOUNT_INODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_INODE_ROOT 1

/* Of a path like "/iter_0000040/hf/config.json"; never 0 and, but for "/", never MFS_INODE_ROOT. */
uint64_t mfs_inode_number(const char *path);

/* Which path holds which number. Zero-filled: empty. Not thread-safe. */
struct mfs_inode_set {
	struct mfs_inode_slot *slots;
	size_t count, capacity;
};

/* 0: the number is the path's (it may have been before); -EEXIST: it is another path's; -ENOMEM. */
int mfs_inode_claim(struct mfs_inode_set *set, uint64_t ino, const char *path);
/* Takes one claim back; the number is free when all of them were. */
void mfs_inode_release(struct mfs_inode_set *set, uint64_t ino);
void mfs_inode_set_release(struct mfs_inode_set *set);

#endif
