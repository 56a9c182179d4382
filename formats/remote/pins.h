/*
 * Which blocks of a cache are in use, for those who would take them out: a table in a file, one for
 * each process, that all processes can map. It is the memory of a process that may be killed: its
 * table counts while it holds the lock of its directory (cache.c).
 *
 * Who reads a block writes down that he does (mfs_pins_add), and then looks whether it is present.
 * Who takes a block out says so in its state, and then looks whether it is written down
 * (mfs_pins_has). Both are in one order for all (memory_order_seq_cst), so at least one of them
 * sees the other, and no one waits.
 */
#ifndef MFS_REMOTE_PINS_H
#define MFS_REMOTE_PINS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_PINS 8192

struct mfs_pin {
	_Atomic uint64_t object; /* 0: free */
	_Atomic uint64_t blocks; /* the first in the upper half, the last in the lower one */
};

struct mfs_pins {
	struct mfs_pin *table; /* MFS_PINS, in the file */
	/* of the process that owns it */
	pthread_mutex_t lock;
	uint32_t *unused, unused_count;
};

/* Makes the file, for this process. -errno. */
int mfs_pins_create(int dirfd, const char *name, struct mfs_pins *ret);
void mfs_pins_free(struct mfs_pins *p);

/* *ret is handed to mfs_pins_remove(). -EAGAIN: all are in use. */
int mfs_pins_add(struct mfs_pins *p, uint64_t object, uint32_t first, uint32_t last, uint32_t *ret);
void mfs_pins_remove(struct mfs_pins *p, uint32_t pin);

/* Of any process: maps its table for reading. -errno; mfs_pins_unmap() ends it. */
int mfs_pins_map(int dirfd, const char *name, const struct mfs_pin **ret);
void mfs_pins_unmap(const struct mfs_pin *table);
bool mfs_pins_has(const struct mfs_pin *table, uint64_t object, uint32_t block);

#endif
