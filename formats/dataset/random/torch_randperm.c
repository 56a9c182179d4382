#include "formats/dataset/random/torch_randperm.h"

#include "formats/dataset/random/numpy.h"

/* From so many on, torch draws 64 bits a number, and builds the permutation from its beginning. */
#define LARGE (UINT32_MAX / 20)

static void swap(uint32_t *a, uint32_t *b)
{
	const uint32_t t = *a;

	*a = *b;
	*b = t;
}

void mfs_torch_randperm(uint32_t seed, uint32_t *ret, uint32_t count)
{
	struct mfs_numpy_random r;

	mfs_numpy_random_seed(&r, seed);
	for (uint32_t i = 0; i < count; i++)
		ret[i] = i;
	if (count >= LARGE) {
		for (uint32_t i = 0; i < count; i++)
			swap(&ret[i], &ret[mfs_numpy_random_next64(&r) % ((uint64_t)i + 1)]);
		return;
	}
	for (uint32_t i = 0; i + 1 < count; i++)
		swap(&ret[i], &ret[i + mfs_numpy_random_next32(&r) % (count - i)]);
}
