/*
 * numpy.random.default_rng(seed): PCG64 (XSL-RR 128/64), seeded by SeedSequence, and its bounded
 * integers (numpy/random/bit_generator.pyx: SeedSequence; src/pcg64/pcg64.h;
 * src/distributions/distributions.c: buffered_bounded_lemire_uint32).
 */
#ifndef MFS_DATASET_RANDOM_PCG_H
#define MFS_DATASET_RANDOM_PCG_H

#include <stdbool.h>
#include <stdint.h>

struct mfs_pcg {
	unsigned __int128 state, increment;
	bool has_half; /* the high half of the last 64 bits is not drawn yet */
	uint32_t half;
};

void mfs_pcg_seed(struct mfs_pcg *r, uint32_t seed);
uint64_t mfs_pcg_next64(struct mfs_pcg *r);
uint32_t mfs_pcg_next32(struct mfs_pcg *r);
/* Generator.integers(low, high, dtype=int32), low < high: uniform in [low, high), by Lemire's
 * method. */
int32_t mfs_pcg_int32(struct mfs_pcg *r, int32_t low, int32_t high);

#endif
