/*
 * An inode number is a hash of the path in the mount, so it is the same after a remount. No two
 * paths share a number: programs find hard links and loops by (device, inode).
 */
#ifndef MFS_FS_TREE_INODE_H
#define MFS_FS_TREE_INODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MFS_INODE_ROOT 1

/* The number of a path like "/iter_0000040/hf/config.json". It is never 0; only "/" has
 * MFS_INODE_ROOT. */
uint64_t mfs_inode_number(const char *path);

/* The numbers that are in use, with their paths. Zero-filled: empty. Not thread-safe. */
struct mfs_inode_set {
	struct mfs_inode_slot *slots;
	size_t count, capacity;
};

/* Claims a number for a path. A path may claim its number again. -EEXIST: another path has it;
 * -ENOMEM. */
int mfs_inode_claim(struct mfs_inode_set *set, uint64_t ino, const char *path);
/* Releases one claim. The number is free when all claims are released. */
void mfs_inode_release(struct mfs_inode_set *set, uint64_t ino);
void mfs_inode_set_release(struct mfs_inode_set *set);

#endif
