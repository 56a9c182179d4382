/*
 * Read-ahead on the sources of a virtual file. The kernel reads ahead within the virtual file; only
 * the daemon knows which source extents that will be.
 *
 * State of one open file, shared by its readers without a lock: a lost race costs a request to the
 * kernel that was made twice or not at all, never a wrong byte.
 */
#ifndef MFS_FS_MOUNT_READAHEAD_H
#define MFS_FS_MOUNT_READAHEAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "formats/plan/vfile.h"

struct mfs_readahead {
	_Atomic uint64_t last;	 /* end of the newest request */
	_Atomic uint64_t front;	 /* sources are asked for up to here */
	_Atomic uint64_t window; /* bytes to be in front; 0: not reading in sequence */
};

/* Before a request is answered: asks for the sources of a request that nothing has foreseen. */
void mfs_readahead_demand(struct mfs_readahead *ra, struct mfs_vfile *f, uint64_t off,
			  uint64_t len);

/* After it was answered: asks for what comes next, if requests follow each other. */
void mfs_readahead_next(struct mfs_readahead *ra, struct mfs_vfile *f, uint64_t off, uint64_t len);

#endif
