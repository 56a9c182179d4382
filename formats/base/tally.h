/*
 * What this process has done with its sources, counted where it is done. Any thread counts, without
 * a lock: threads have cells of their own, a cache line apart, which are summed up when somebody
 * asks (as fs/stats/stats.h does for what a front end counts).
 */
#ifndef MFS_BASE_TALLY_H
#define MFS_BASE_TALLY_H

#include <stdint.h>

enum mfs_tally {
	MFS_TALLY_READ_LOCAL,  /* bytes of files on this machine, or that its kernel has mounted */
	MFS_TALLY_READ_REMOTE, /* bytes of files on servers, by way of the cache */
	/* Bytes of tensors, as they are stored, that one of these has made others of. */
	MFS_TALLY_TRANSPOSE, /* elements that lie apart in the source */
	MFS_TALLY_CAST,
	MFS_TALLY_SHIFT, /* one is added or subtracted */
	MFS_TALLY_QUANTISE,
	MFS_TALLY_DEQUANTISE,
	MFS_TALLY_MERGE,   /* an adapter */
	MFS_TALLY_CHANGED, /* sets of files that were found to have changed */
	MFS_TALLIES,
};

void mfs_tally_add(enum mfs_tally of, uint64_t n);
uint64_t mfs_tally_sum(enum mfs_tally of);

#endif
