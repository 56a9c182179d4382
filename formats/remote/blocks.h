/*
 * The file NAME.map next to the bytes of an object: it records which blocks are present, and their
 * checksums.
 *
 * All processes that use a cache map it, and change states by atomic operations. A block is written
 * first, then its sum, then its state. A crash of the machine may keep the state and lose the
 * bytes; the sum tells (object.c compares it when a process first meets a block).
 *
 * 0 "mcorefs blocks 1", block size, number of blocks, size of the object 64 the object's key, and
 * what it is, as text 4096 a byte for each block: its state ... from a multiple of 8 on: 8 bytes
 * for each block, XXH3-64 seeded with its number
 */
#ifndef MFS_REMOTE_BLOCKS_H
#define MFS_REMOTE_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "formats/base/error.h"

#define MFS_BLOCK_BYTES (1u << 20)

enum mfs_block_state {
	MFS_BLOCK_ABSENT = 0,
	MFS_BLOCK_PRESENT = 1,
	/* Somebody takes it out of the cache: absent, or present again if it is in use. */
	MFS_BLOCK_LEAVING = 2,
};

struct mfs_blocks {
	_Atomic uint8_t *states;
	_Atomic uint64_t *sums;
	uint32_t count;
	void *map;
	size_t mapped;
};

uint32_t mfs_blocks_count(uint64_t size);
uint64_t mfs_block_sum(const void *bytes, size_t len, uint32_t number);
/* Like mfs_block_sum(), of len bytes at off of a file. -EIO: they cannot be read. */
int mfs_block_sum_file(int fd, uint64_t off, size_t len, uint32_t number, uint64_t *ret);

/* Makes an empty file of the object: whole, or it fails. what is for people. -errno. */
int mfs_blocks_create(int dirfd, const char *name, const char *key, const char *what,
		      uint64_t size);

/* Maps a file. -EINVAL: it is not one of this object, or is damaged; -errno. */
int mfs_blocks_open(int dirfd, const char *name, const char *key, uint64_t size,
		    struct mfs_blocks *ret);
void mfs_blocks_close(struct mfs_blocks *b);

#endif
