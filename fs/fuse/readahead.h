/*
 * Read-ahead on the sources of a virtual file. The kernel reads ahead in the virtual file; only the
 * daemon knows which ranges of the sources these bytes come from.
 *
 * The state belongs to one open file. Its readers share it without a lock: a lost race can only
 * repeat or omit an advice to the kernel.
 */
#ifndef MFS_FS_FUSE_READAHEAD_H
#define MFS_FS_FUSE_READAHEAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "formats/plan/vfile.h"

struct mfs_readahead {
	_Atomic uint64_t last;	 /* end of the newest request */
	_Atomic uint64_t front;	 /* the kernel was asked for sources up to here */
	_Atomic uint64_t window; /* bytes to ask for ahead; 0: not reading in sequence */
};

/* Called before a request is answered. Asks the kernel for its sources unless that was done
 * ahead. */
void mfs_readahead_demand(struct mfs_readahead *ra, struct mfs_vfile *f, uint64_t off,
			  uint64_t len);

/* Called after the answer. Asks for what comes next if requests follow each other. */
void mfs_readahead_next(struct mfs_readahead *ra, struct mfs_vfile *f, uint64_t off, uint64_t len);

#endif
