#include "trainer/data/stall.h"

#include "formats/base/bytes.h"

/* Below 16 ns each has a bucket. Above, the four bits after the highest one choose the bucket. */
static unsigned bucket_of(uint64_t ns)
{
	unsigned high;

	if (ns < MFT_STALL_STEPS)
		return (unsigned)ns;
	high = 63 - (unsigned)__builtin_clzll(ns);
	return (high - 3) * MFT_STALL_STEPS + (unsigned)(ns >> (high - 4) & 15);
}

/* The longest time of a bucket. */
static uint64_t end_of(unsigned bucket)
{
	const unsigned shift = bucket / MFT_STALL_STEPS;

	if (!shift)
		return bucket;
	return ((MFT_STALL_STEPS + bucket % MFT_STALL_STEPS + UINT64_C(1)) << (shift - 1)) - 1;
}

void mft_stall_add(struct mft_stall *s, uint64_t ns)
{
	s->count++;
	s->total_ns += ns;
	s->max_ns = mfs_max_u64(s->max_ns, ns);
	s->bucket[bucket_of(ns)]++;
}

uint64_t mft_stall_percentile(const struct mft_stall *s, double share)
{
	const double wanted = share * (double)s->count;
	uint64_t seen = 0;

	for (unsigned i = 0; i < 64 * MFT_STALL_STEPS; i++) {
		seen += s->bucket[i];
		if (seen && (double)seen >= wanted)
			return mfs_min_u64(end_of(i), s->max_ns);
	}
	return s->max_ns;
}
