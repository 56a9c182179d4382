#include "formats/base/cast.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/base/half.h"

/* Tensors lie in files at any offset. */
typedef uint16_t half_at __attribute__((aligned(1), may_alias));
typedef uint32_t word_at __attribute__((aligned(1), may_alias));

/* ---- one element, without a branch, so that a loop of it can be vectors ---- */

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

/* ---- loops ---- */

/* Builds for fuzzing and with sanitizers have no vectors. */
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#define ALWAYS static inline __attribute__((always_inline))

#define LOOP(name, from_at, to_at, value)                                                          \
	ALWAYS void name(to_at *restrict to, const from_at *restrict from, uint64_t count)         \
	{                                                                                          \
		_Pragma("omp simd") for (uint64_t i = 0; i < count; i++) to[i] = value;            \
	}

LOOP(bf16_to_f32, half_at, word_at, bf16_bits(from[i]))
LOOP(f16_to_f32, half_at, word_at, f16_bits(from[i]))
LOOP(f32_to_bf16, word_at, half_at, to_bf16(from[i]))
LOOP(f32_to_f16, word_at, half_at, to_f16(from[i]))
LOOP(bf16_to_f16, half_at, half_at, to_f16(bf16_bits(from[i])))
LOOP(f16_to_bf16, half_at, half_at, to_bf16(f16_bits(from[i])))

ALWAYS void cast(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
		 uint64_t count)
{
	if (from_type == MFS_BF16)
		to_type == MFS_F32 ? bf16_to_f32(to, from, count) : bf16_to_f16(to, from, count);
	else if (from_type == MFS_F16)
		to_type == MFS_F32 ? f16_to_f32(to, from, count) : f16_to_bf16(to, from, count);
	else
		to_type == MFS_BF16 ? f32_to_bf16(to, from, count) : f32_to_f16(to, from, count);
}

/* ---- processors ---- */

typedef void cast_fn(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
		     uint64_t count);

#define COMPILED(name, attributes)                                                                 \
	attributes static void name(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type,    \
				    const void *from, uint64_t count)                              \
	{                                                                                          \
		cast(to_type, to, from_type, from, count);                                         \
	}

COMPILED(cast_any, )

#if defined(__x86_64__)
COMPILED(cast_avx2, __attribute__((target("avx2"))))
COMPILED(cast_avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))

static cast_fn *best(void)
{
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return cast_avx512;
	return __builtin_cpu_supports("avx2") ? cast_avx2 : cast_any;
}
#else
static cast_fn *best(void)
{
	return cast_any;
}
#endif

/* ---- the whole ---- */

#define STEP 1024 /* float64 elements on the stack */

static void cast_doubles(cast_fn *fn, enum mfs_dtype to_type, uint8_t *to, const uint8_t *from,
			 uint64_t count)
{
	const unsigned size = mfs_dtype_size(to_type);
	float step[STEP];
	double d;

	for (uint64_t i = 0, n; i < count; i += n) {
		n = mfs_min_u64(STEP, count - i);
		for (uint64_t k = 0; k < n; k++) {
			memcpy(&d, from + (i + k) * sizeof(d), sizeof(d));
			step[k] = (float)d;
		}
		if (to_type == MFS_F32)
			memcpy(to + i * size, step, n * size);
		else
			fn(to_type, to + i * size, MFS_F32, step, n);
	}
}

static void cast_by(cast_fn *fn, enum mfs_dtype to_type, void *to, enum mfs_dtype from_type,
		    const void *from, uint64_t count)
{
	if (to_type == from_type)
		memcpy(to, from, count * mfs_dtype_size(to_type));
	else if (from_type == MFS_F64)
		cast_doubles(fn, to_type, to, from, count);
	else
		fn(to_type, to, from_type, from, count);
}

bool mfs_cast_is_possible(enum mfs_dtype from, enum mfs_dtype to)
{
	return mfs_dtype_is_float(from) && mfs_dtype_is_float(to) && to != MFS_F64;
}

void mfs_cast(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
	      uint64_t count)
{
	cast_by(best(), to_type, to, from_type, from, count);
}

void mfs_cast_portable(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
		       uint64_t count)
{
	cast_by(cast_any, to_type, to, from_type, from, count);
}
