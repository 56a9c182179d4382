#include "formats/dataset/random/pcg.h"

#define POOL 4 /* words of SeedSequence */

static uint32_t hash(uint32_t value, uint32_t *constant, uint32_t multiplier)
{
	value ^= *constant;
	*constant *= multiplier;
	value *= *constant;
	return value ^ value >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
	const uint32_t value = x * 0xca01f9ddu - y * 0x4973f715u;

	return value ^ value >> 16;
}

/* SeedSequence(seed).generate_state(4, uint64) */
static void generate_state(uint32_t seed, uint64_t ret[4])
{
	uint32_t pool[POOL], word[8], constant = 0x43b0d7e5u;

	for (int i = 0; i < POOL; i++)
		pool[i] = hash(i ? 0 : seed, &constant, 0x931e8875u);
	for (int from = 0; from < POOL; from++)
		for (int to = 0; to < POOL; to++)
			if (from != to)
				pool[to] = mix(pool[to], hash(pool[from], &constant, 0x931e8875u));
	constant = 0x8b51f9ddu;
	for (int i = 0; i < 8; i++)
		word[i] = hash(pool[i % POOL], &constant, 0x58f38dedu);
	for (int i = 0; i < 4; i++)
		ret[i] = word[2 * i] | (uint64_t)word[2 * i + 1] << 32;
}

static unsigned __int128 wide(uint64_t high, uint64_t low)
{
	return (unsigned __int128)high << 64 | low;
}

static void step(struct mfs_pcg *r)
{
	r->state = r->state * wide(2549297995355413924u, 4865540595714422341u) + r->increment;
}

void mfs_pcg_seed(struct mfs_pcg *r, uint32_t seed)
{
	uint64_t word[4];

	generate_state(seed, word);
	*r = (struct mfs_pcg){.increment = wide(word[2], word[3]) << 1 | 1};
	step(r);
	r->state += wide(word[0], word[1]);
	step(r);
}

uint64_t mfs_pcg_next64(struct mfs_pcg *r)
{
	uint64_t folded;
	unsigned turn;

	step(r);
	folded = (uint64_t)(r->state >> 64) ^ (uint64_t)r->state;
	turn = (unsigned)(r->state >> 122);
	return folded >> turn | folded << (-turn & 63);
}

uint32_t mfs_pcg_next32(struct mfs_pcg *r)
{
	uint64_t both;

	r->has_half = !r->has_half;
	if (!r->has_half)
		return r->half;
	both = mfs_pcg_next64(r);
	r->half = (uint32_t)(both >> 32);
	return (uint32_t)both;
}

int32_t mfs_pcg_int32(struct mfs_pcg *r, int32_t low, int32_t high)
{
	const uint32_t count = (uint32_t)high - (uint32_t)low;
	uint64_t product;

	if (count == 1)
		return low;
	product = (uint64_t)mfs_pcg_next32(r) * count;
	while ((uint32_t)product < count && (uint32_t)product < -count % count)
		product = (uint64_t)mfs_pcg_next32(r) * count;
	return (int32_t)((uint32_t)low + (uint32_t)(product >> 32));
}
