/*
 * numpy.random.RandomState, which numpy keeps as it was in 1.16: MT19937, seeded with init_genrand,
 * and its shuffle, to the bit (numpy/random/_mt19937.pyx: _legacy_seeding; mtrand.pyx: shuffle;
 * src/distributions/distributions.c: random_interval; src/mt19937/mt19937.c).
 */
#ifndef MFS_DATASET_RANDOM_NUMPY_H
#define MFS_DATASET_RANDOM_NUMPY_H

#include <stddef.h>
#include <stdint.h>

#define MFS_MT_WORDS 624

struct mfs_numpy_random {
	uint32_t key[MFS_MT_WORDS];
	uint32_t word[MFS_MT_WORDS]; /* of the current state, tempered */
	unsigned next;		     /* first word not drawn yet */
};

/* RandomState(seed) */
void mfs_numpy_random_seed(struct mfs_numpy_random *r, uint32_t seed);
uint32_t mfs_numpy_random_next32(struct mfs_numpy_random *r);
/* Two words, the first one is the high half. */
uint64_t mfs_numpy_random_next64(struct mfs_numpy_random *r);
/* Uniform in [0, max], by masked rejection. Draws nothing for max = 0. */
uint64_t mfs_numpy_random_interval(struct mfs_numpy_random *r, uint64_t max);

/* RandomState.shuffle of a 1-D array of count elements. */
void mfs_numpy_shuffle32(struct mfs_numpy_random *r, uint32_t *a, uint64_t count);
void mfs_numpy_shuffle64(struct mfs_numpy_random *r, uint64_t *a, uint64_t count);

/*
 * numpy.sum of float64, whose order of additions decides the last bit of every blend weight
 * (numpy/_core/src/umath/loops_utils.h.src: pairwise_sum): fewer than 8 one after the other; up to
 * 128 in eight accumulators; more in two halves, the first a multiple of 8.
 */
double mfs_numpy_sum(const double *v, size_t count);

#endif
