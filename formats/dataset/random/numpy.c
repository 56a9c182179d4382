#include "formats/dataset/random/numpy.h"

#include <stddef.h>
#include <string.h>

#define SHIFT 397

/* Four words at once, on whatever the machine has. */
typedef uint32_t words __attribute__((vector_size(16)));

static inline words load(const uint32_t *p)
{
	words v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline void store(uint32_t *p, words v)
{
	memcpy(p, &v, sizeof(v));
}

static inline uint32_t twist1(uint32_t here, uint32_t next, uint32_t far)
{
	const uint32_t y = (here & 0x80000000u) | (next & 0x7fffffffu);

	return far ^ y >> 1 ^ (-(y & 1) & 0x9908b0dfu);
}

static inline words twist4(words here, words next, words far)
{
	const words y = (here & 0x80000000u) | (next & 0x7fffffffu);

	return far ^ y >> 1 ^ (-(y & 1) & 0x9908b0dfu);
}

/* Computes the next state. Each word depends on the word after it and on the one SHIFT words later,
 * around the end. */
static void twist(uint32_t *key)
{
	unsigned i = 0;

	for (; i + 4 <= MFS_MT_WORDS - SHIFT; i += 4)
		store(key + i, twist4(load(key + i), load(key + i + 1), load(key + i + SHIFT)));
	for (; i < MFS_MT_WORDS - SHIFT; i++)
		key[i] = twist1(key[i], key[i + 1], key[i + SHIFT]);
	for (; i + 4 < MFS_MT_WORDS; i += 4)
		store(key + i, twist4(load(key + i), load(key + i + 1),
				      load(key + i + SHIFT - MFS_MT_WORDS)));
	for (; i < MFS_MT_WORDS; i++)
		key[i] = twist1(key[i], key[(i + 1) % MFS_MT_WORDS], key[i + SHIFT - MFS_MT_WORDS]);
}

static void refill(struct mfs_numpy_random *r)
{
	twist(r->key);
	for (unsigned i = 0; i < MFS_MT_WORDS; i += 4) {
		words y = load(r->key + i);

		y ^= y >> 11;
		y ^= y << 7 & 0x9d2c5680u;
		y ^= y << 15 & 0xefc60000u;
		y ^= y >> 18;
		store(r->word + i, y);
	}
	r->next = 0;
}

void mfs_numpy_random_seed(struct mfs_numpy_random *r, uint32_t seed)
{
	r->key[0] = seed;
	for (uint32_t i = 1; i < MFS_MT_WORDS; i++)
		r->key[i] = 1812433253u * (r->key[i - 1] ^ r->key[i - 1] >> 30) + i;
	r->next = MFS_MT_WORDS;
}

uint32_t mfs_numpy_random_next32(struct mfs_numpy_random *r)
{
	if (r->next == MFS_MT_WORDS)
		refill(r);
	return r->word[r->next++];
}

uint64_t mfs_numpy_random_next64(struct mfs_numpy_random *r)
{
	const uint64_t high = mfs_numpy_random_next32(r);

	return high << 32 | mfs_numpy_random_next32(r);
}

/* All ones up to max's highest bit; max > 0. */
static inline uint64_t mask_of(uint64_t max)
{
	return UINT64_MAX >> __builtin_clzll(max);
}

uint64_t mfs_numpy_random_interval(struct mfs_numpy_random *r, uint64_t max)
{
	uint64_t mask, v;

	if (!max)
		return 0;
	mask = mask_of(max);
	do
		v = max <= UINT32_MAX ? mfs_numpy_random_next32(r) & mask
				      : mfs_numpy_random_next64(r) & mask;
	while (v > max);
	return v;
}

/* ---- shuffle: for i = n-1 down to 1, exchange a[i] with a[interval(i)] ---- */

/*
 * Of an array larger than the caches nearly every exchange waits for memory. The random numbers do
 * not depend on what is in the array, so a window of them is drawn ahead and the elements they
 * point at are fetched, while the window before is exchanged.
 */
#define WINDOW 128

/* Exchanges that are due: a[top] with a[at[0]], a[top-1] with a[at[1]], ... */
struct exchanges {
	uint64_t top;
	unsigned count;
	uint32_t at[WINDOW];
};

/* Draws interval(i), interval(i-1), ...: at most WINDOW of them, all with one mask. i is in [1,
 * 2^32). There is no branch on whether a word is taken, as a processor would guess it wrongly
 * every third time. */
static void draw(struct mfs_numpy_random *r, uint64_t i, struct exchanges *w)
{
	const uint32_t mask = (uint32_t)mask_of(i);
	const uint64_t same_mask = i - (mask >> 1);
	const unsigned want = same_mask < WINDOW ? (unsigned)same_mask : WINDOW;
	uint32_t max = (uint32_t)i;
	unsigned got = 0;

	while (got < want) {
		unsigned steps = want - got;
		const uint32_t *word;

		if (r->next == MFS_MT_WORDS)
			refill(r);
		if (steps > MFS_MT_WORDS - r->next)
			steps = MFS_MT_WORDS - r->next;
		word = r->word + r->next;
		r->next += steps;
		for (; steps; steps--) {
			const uint32_t v = *word++ & mask;
			const unsigned taken = v <= max;

			w->at[got] = v;
			got += taken;
			max -= taken;
		}
	}
	w->top = i;
	w->count = want;
}

#define EXCHANGE(a, i, j)                                                                          \
	do {                                                                                       \
		const typeof(*(a)) kept_ = (a)[i];                                                 \
                                                                                                   \
		(a)[i] = (a)[j];                                                                   \
		(a)[j] = kept_;                                                                    \
	} while (0)

/* Two windows: one whose elements are on their way, one that is exchanged. */
#define SHUFFLE(r, a, count)                                                                       \
	do {                                                                                       \
		uint64_t i_ = (count) ? (count)-1 : 0;                                             \
		struct exchanges two_[2] = {{.count = 0}, {.count = 0}};                           \
		unsigned which_ = 0;                                                               \
                                                                                                   \
		for (; i_ > UINT32_MAX; i_--) {                                                    \
			const uint64_t j_ = mfs_numpy_random_interval(r, i_);                      \
                                                                                                   \
			EXCHANGE(a, i_, j_);                                                       \
		}                                                                                  \
		while (i_ || two_[which_].count) {                                                 \
			struct exchanges *ahead_ = &two_[!which_], *due_ = &two_[which_];          \
                                                                                                   \
			ahead_->count = 0;                                                         \
			if (i_)                                                                    \
				draw(r, i_, ahead_);                                               \
			for (unsigned k_ = 0; k_ < ahead_->count; k_++)                            \
				__builtin_prefetch(&(a)[ahead_->at[k_]], 1);                       \
			for (unsigned k_ = 0; k_ < due_->count; k_++)                              \
				EXCHANGE(a, due_->top - k_, due_->at[k_]);                         \
			i_ -= ahead_->count;                                                       \
			which_ = !which_;                                                          \
		}                                                                                  \
	} while (0)

void mfs_numpy_shuffle32(struct mfs_numpy_random *r, uint32_t *a, uint64_t count)
{
	SHUFFLE(r, a, count);
}

void mfs_numpy_shuffle64(struct mfs_numpy_random *r, uint64_t *a, uint64_t count)
{
	SHUFFLE(r, a, count);
}

/* ---- sum ---- */

#define BLOCK 128

double mfs_numpy_sum(const double *v, size_t count)
{
	double r[8], sum;
	size_t i;

	if (count < 8) {
		sum = 0;
		for (i = 0; i < count; i++)
			sum += v[i];
		return sum;
	}
	if (count > BLOCK) {
		const size_t half = count / 2 / 8 * 8;

		sum = mfs_numpy_sum(v, half);
		return sum + mfs_numpy_sum(v + half, count - half);
	}
	for (i = 0; i < 8; i++)
		r[i] = v[i];
	for (; i + 8 <= count; i += 8)
		for (size_t k = 0; k < 8; k++)
			r[k] += v[i + k];
	sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
	for (; i < count; i++)
		sum += v[i];
	return sum;
}
