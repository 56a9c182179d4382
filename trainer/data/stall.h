/* Times that somebody had to wait, as a histogram: 16 steps to each power of two. */
#ifndef MFT_TRAINER_DATA_STALL_H
#define MFT_TRAINER_DATA_STALL_H

#include <stdint.h>

#define MFT_STALL_STEPS 16

struct mft_stall {
	uint64_t count, total_ns, max_ns;
	uint32_t bucket[64 * MFT_STALL_STEPS];
};

void mft_stall_add(struct mft_stall *s, uint64_t ns);
/* The time that a share of all waits did not exceed, to within 1/16. */
uint64_t mft_stall_percentile(const struct mft_stall *s, double share);

#endif
