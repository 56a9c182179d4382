/* Times that somebody had to wait, as a histogram: 16 steps to each power of two. */
#ifndef MFS_TRAINER_DATA_STALL_H
#define MFS_TRAINER_DATA_STALL_H

#include <stdint.h>

#define MFS_STALL_STEPS 16

struct mfs_stall {
	uint64_t count, total_ns, max_ns;
	uint32_t bucket[64 * MFS_STALL_STEPS];
};

void mfs_stall_add(struct mfs_stall *s, uint64_t ns);
/* The time that a share of all waits did not exceed, to within 1/16. */
uint64_t mfs_stall_percentile(const struct mfs_stall *s, double share);

#endif
