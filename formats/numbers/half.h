/*
 * The two 16-bit floats. Rounding is to nearest, ties to even, as torch does. A NaN stays one: to
 * and from float16 it becomes quiet and keeps its upper bits, as with the instructions of x86 and
 * Arm; to bfloat16 it becomes 0x7fc0 (c10/util/BFloat16.h). numbers/cast.h has loops.
 */
#ifndef MFS_NUMBERS_HALF_H
#define MFS_NUMBERS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float mfs_bits_to_float(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t mfs_float_to_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline float mfs_bf16_to_float(uint16_t v)
{
	return mfs_bits_to_float((uint32_t)v << 16);
}

static inline uint16_t mfs_float_to_bf16(float f)
{
	uint32_t bits = mfs_float_to_bits(f);

	if (f != f)
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float mfs_f16_to_float(uint16_t v)
{
	const uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31,
		       rest = v & 0x3ff;
	float f;

	if (exponent == 31)
		return mfs_bits_to_float(sign | 0x7f800000 | (rest ? 0x400000 : 0) | rest << 13);
	if (exponent)
		return mfs_bits_to_float(sign | (exponent + 112) << 23 | rest << 13);
	f = (float)rest * 0x1p-24f; /* a subnormal is a multiple of 2^-24 */
	return sign ? -f : f;
}

static inline uint16_t mfs_float_to_f16(float f)
{
	const uint32_t bits = mfs_float_to_bits(f), sign = bits >> 16 & 0x8000;
	const uint32_t magnitude = bits & 0x7fffffff;
	uint32_t half;

	if (f != f)
		return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
	if (magnitude >= 0x477ff000) /* 65520 and above round to infinity */
		return (uint16_t)(sign | 0x7c00);
	if (magnitude < 0x38800000) {
		/* Below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low mantissa bits,
		 * rounded. */
		half = mfs_float_to_bits(mfs_bits_to_float(magnitude) + 0.5f) - 0x3f000000;
		return (uint16_t)(sign | half);
	}
	half = magnitude - 0x38000000;
	return (uint16_t)(sign | (half + 0xfff + (half >> 13 & 1)) >> 13);
}

#endif
