/* Private to formats/numbers/cast.c, fp8.c and low_rank.c: one element, without a branch, so that a
 * loop of it can be vectors. */
#ifndef MFS_NUMBERS_CAST_I_H
#define MFS_NUMBERS_CAST_I_H

#include "formats/numbers/half.h"

/* Tensors lie in files at any offset. */
typedef uint16_t half_at __attribute__((aligned(1), may_alias));
typedef uint32_t word_at __attribute__((aligned(1), may_alias));

static inline uint32_t select_bits(uint32_t mask, uint32_t yes, uint32_t no)
{
	return (mask & yes) | (~mask & no);
}

/* All bits, if the condition is true. */
static inline uint32_t all_if(int condition)
{
	return (uint32_t)-condition;
}

static inline uint32_t bf16_bits(uint16_t v)
{
	return (uint32_t)v << 16;
}

static inline uint32_t f16_bits(uint16_t v)
{
	const uint32_t sign = (uint32_t)(v & 0x8000) << 16, rest = (uint32_t)(v & 0x7fff) << 13;
	/* 2^-14 and the mantissa of a subnormal, less 2^-14 again */
	const uint32_t small = mfs_float_to_bits(mfs_bits_to_float(rest + 0x38800000) - 0x1p-14f);
	const uint32_t large = rest + 0x70000000;
	const uint32_t quiet = all_if(rest > 0x0f800000) & 0x400000;
	uint32_t bits = rest + 0x38000000;

	bits = select_bits(all_if(rest < 0x00800000), small, bits);
	bits = select_bits(all_if(rest >= 0x0f800000), large | quiet, bits);
	return sign | bits;
}

static inline uint16_t to_bf16(uint32_t bits)
{
	const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;

	return (uint16_t)select_bits(all_if((bits & 0x7fffffff) > 0x7f800000), 0x7fc0, rounded);
}

static inline uint16_t to_f16(uint32_t bits)
{
	const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
	const uint32_t rebased = magnitude - 0x38000000;
	const uint32_t small = mfs_float_to_bits(mfs_bits_to_float(magnitude) + 0.5f) - 0x3f000000;
	uint32_t half = (rebased + 0xfff + (rebased >> 13 & 1)) >> 13;

	half = select_bits(all_if(magnitude < 0x38800000), small, half);
	half = select_bits(all_if(magnitude >= 0x477ff000), 0x7c00, half);
	half = select_bits(all_if(magnitude > 0x7f800000), 0x7e00 | (magnitude >> 13 & 0x3ff),
			   half);
	return (uint16_t)(sign | half);
}

/* Builds for fuzzing and with sanitizers have no vectors. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#define MFS_LOOP_INLINE static inline __attribute__((always_inline))

/*
 * Compiles a function for several processors: NAME_any, and on x86-64 NAME_avx2 and NAME_avx512.
 * MFS_BEST(NAME) is the one for the processor that the program runs on.
 */
#if defined(__x86_64__)
#define MFS_COMPILED(name, result, parameters, call)                                               \
	static result name##_any parameters                                                        \
	{                                                                                          \
		call;                                                                              \
	}                                                                                          \
	__attribute__((target("avx2,fma"))) static result name##_avx2 parameters                   \
	{                                                                                          \
		call;                                                                              \
	}                                                                                          \
	__attribute__((target(                                                                     \
		"avx512f,avx512bw,avx512dq,avx512vl"))) static result name##_avx512 parameters     \
	{                                                                                          \
		call;                                                                              \
	}

static inline int mfs_vectors(void)
{
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return 2;
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1 : 0;
}

#define MFS_BEST(name)                                                                             \
	(mfs_vectors() == 2 ? name##_avx512 : mfs_vectors() == 1 ? name##_avx2 : name##_any)
#else
#define MFS_COMPILED(name, result, parameters, call)                                               \
	static result name##_any parameters                                                        \
	{                                                                                          \
		call;                                                                              \
	}
#define MFS_BEST(name) name##_any
#endif

#endif
