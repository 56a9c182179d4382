/* Numbers of Philox4x32-10 (kernels/kernels.h), and what is made of them. */
#include "kernels/ref/ref_i.h"

#include <math.h>
#include <string.h>

#define CHUNK 1024 /* numbers that are made at once */

/* Words of counters first, first + 1, ... */
MFK_SIMD static void philox(uint64_t seed, uint64_t first, int64_t counters, uint32_t *words)
{
#pragma omp simd
	for (int64_t i = 0; i < counters; i++) {
		uint64_t counter = first + (uint64_t)i;
		uint32_t x0 = (uint32_t)counter, x1 = (uint32_t)(counter >> 32), x2 = 0, x3 = 0;
		uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

		for (int round = 0; round < 10; round++) {
			uint64_t a = (uint64_t)x0 * 0xd2511f53u, b = (uint64_t)x2 * 0xcd9e8d57u;

			x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
			x1 = (uint32_t)b;
			x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
			x3 = (uint32_t)a;
			k0 += 0x9e3779b9u;
			k1 += 0xbb67ae85u;
		}
		words[4 * i] = x0;
		words[4 * i + 1] = x1;
		words[4 * i + 2] = x2;
		words[4 * i + 3] = x3;
	}
}

/* Numbers first, ..., at most CHUNK of them, begin where the result says. */
static const uint32_t *numbers(uint64_t seed, uint64_t first, int64_t count,
			       uint32_t words[CHUNK + 8])
{
	int64_t skip = (int64_t)(first % 4);

	philox(seed, first / 4, (skip + count + 3) / 4, words);
	return words + skip;
}

void mfk_numbers(uint64_t seed, uint64_t first, int64_t count, uint32_t *ret)
{
	uint32_t words[CHUNK + 8];

	memcpy(ret, numbers(seed, first, count, words), (size_t)count * sizeof(*ret));
}

MFK_SIMD static void keep_chunk(const uint32_t *words, int64_t count, float p, float by,
				float *keep)
{
#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		keep[i] = (float)(int32_t)(words[i] >> 8) * 0x1p-24f >= p ? by : 0;
}

void mfk_keep(uint64_t seed, uint64_t first, int64_t count, float p, float *keep)
{
	uint32_t words[CHUNK + 8];

	for (int64_t i = 0; i < count; i += CHUNK) {
		int64_t n = count - i < CHUNK ? count - i : CHUNK;

		keep_chunk(numbers(seed, first + (uint64_t)i, n, words), n, p, 1 / (1 - p),
			   keep + i);
	}
}

/* ---- normal numbers ---- */

struct normals {
	enum mfk_dtype type;
	void *x;
	float mean, std;
	uint64_t seed, offset;
};

static float normal(const uint32_t *pair, bool second)
{
	float u = (float)((pair[0] >> 8) + 1) * 0x1p-24f, v = (float)(pair[1] >> 8) * 0x1p-24f;
	float r = sqrtf(-2 * logf(u)), angle = 6.28318531f * v;

	return r * (second ? sinf(angle) : cosf(angle));
}

static void normal_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct normals *a = arg;
	float *x = mfk_begin(a->type, a->x, begin, scratch);
	uint32_t words[CHUNK + 8];

	for (int64_t i = begin; i < end; i += CHUNK / 2) {
		int64_t n = end - i < CHUNK / 2 ? end - i : CHUNK / 2;
		uint64_t first = a->offset + (uint64_t)i, even = first / 2 * 2;
		const uint32_t *w = numbers(a->seed, even, (int64_t)(first - even) + n + 1, words);

		for (int64_t j = 0; j < n; j++) {
			uint64_t at = first + (uint64_t)j;

			x[i - begin + j] =
				a->mean + a->std * normal(w + (at / 2 * 2 - even), at & 1);
		}
	}
	mfk_end(a->type, a->x, begin, end - begin, x);
}

void mfk_ref_fill_normal(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count,
			 float mean, float std, uint64_t seed, uint64_t offset)
{
	struct normals a = {dtype, x, mean, std, seed, offset};

	mfk_parallel(c, count, MFK_GRAIN, MFK_GRAIN, normal_part, &a);
}

/* ---- uniform numbers ---- */

static void uniform_part(const void *arg, int64_t begin, int64_t end, float *scratch)
{
	const struct mfk_uniform *a = arg;
	float *x = mfk_begin(a->dtype, a->x, begin, scratch);
	uint32_t words[CHUNK + 8];

	for (int64_t i = begin; i < end; i += CHUNK) {
		const int64_t n = end - i < CHUNK ? end - i : CHUNK;
		const uint32_t *w = numbers(a->seed, a->offset + (uint64_t)i, n, words);

		for (int64_t j = 0; j < n; j++) {
			const float u = (float)((w[j] >> 8) + 1) * 0x1p-24f;
			const float value = a->low + (a->high - a->low) * u;

			x[i - begin + j] = a->logarithm ? logf(value) : value;
		}
	}
	mfk_end(a->dtype, a->x, begin, end - begin, x);
}

void mfk_ref_fill_uniform(struct mfk_ctx *c, const struct mfk_uniform *a)
{
	mfk_parallel(c, a->count, MFK_GRAIN, MFK_GRAIN, uniform_part, a);
}
