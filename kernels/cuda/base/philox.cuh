/*
 * Philox4x32-10 (Salmon and others, Parallel random numbers: as easy as 1, 2, 3, SC 2011). The key
 * is the seed. Number n is word n % 4 of counter n / 4, so any thread can compute it from n alone.
 */
#ifndef MFK_CUDA_PHILOX_CUH
#define MFK_CUDA_PHILOX_CUH

#include <stdint.h>

static __device__ __forceinline__ uint4 philox(uint64_t counter, uint64_t seed)
{
	uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
	uint4 x = make_uint4(static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
			     0, 0);

#pragma unroll
	for (int i = 0; i < 10; i++) {
		uint32_t high0 = __umulhi(0xd2511f53u, x.x), low0 = 0xd2511f53u * x.x;
		uint32_t high1 = __umulhi(0xcd9e8d57u, x.z), low1 = 0xcd9e8d57u * x.z;

		x = make_uint4(high1 ^ x.y ^ k0, low1, high0 ^ x.w ^ k1, low0);
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	return x;
}

/* The twelve numbers from the counter of n on: n is the n % 4th. */
static __device__ __forceinline__ void philox12(uint64_t n, uint64_t seed, uint32_t ret[12])
{
#pragma unroll
	for (int i = 0; i < 3; i++) {
		uint4 x = i < 2 || n % 4 ? philox(n / 4 + i, seed) : make_uint4(0, 0, 0, 0);

		ret[4 * i] = x.x;
		ret[4 * i + 1] = x.y;
		ret[4 * i + 2] = x.z;
		ret[4 * i + 3] = x.w;
	}
}

/* Eight numbers from n on. */
static __device__ __forceinline__ void philox8(uint64_t n, uint64_t seed, uint32_t ret[8])
{
	uint32_t all[12];
	int skip = static_cast<int>(n % 4);

	philox12(n, seed, all);
	/* No index that is known at run time alone: all[] stays in registers. */
#pragma unroll
	for (int i = 0; i < 8; i++)
		ret[i] = skip == 0   ? all[i]
			 : skip == 1 ? all[i + 1]
			 : skip == 2 ? all[i + 2]
				     : all[i + 3];
}

static __device__ __forceinline__ uint32_t philox1(uint64_t n, uint64_t seed)
{
	uint4 x = philox(n / 4, seed);

	switch (n % 4) {
	case 0:
		return x.x;
	case 1:
		return x.y;
	case 2:
		return x.z;
	}
	return x.w;
}

/* A uniform number of [0, 1). */
static __device__ __forceinline__ float uniform(uint32_t x)
{
	return static_cast<float>(x >> 8) * 0x1p-24f;
}

static __device__ __forceinline__ bool dropout_keeps(uint32_t x, float p)
{
	return uniform(x) >= p;
}

#endif
