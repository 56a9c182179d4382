/*
 * float8_e4m3fn: 1 sign, 4 exponent and 3 mantissa bits, up to 448, no infinity, NaN at 0x7f and
 * 0xff. Weights of 8 bits have a scale for each block of a matrix (DeepSeek: 128 rows and 128
 * columns, "weight_scale_inv"):
 *
 *   dequantised  float32(weight) * scale, rounded once to the type wanted: weight_dequant() of
 *                DeepSeek-V3 (inference/kernel.py), transformers (integrations/finegrained_fp8.py)
 *   quantised    scale = amax / 448, weight = value / scale, all in float32: act_quant() of the
 *                same file. A block of zeros has the scale 1: its quotient is 0 / 0 otherwise.
 *
 * Single elements stand here as a reference; the loops (fp8.c) are for any processor, and on x86-64
 * are compiled for AVX2 and AVX-512 too.
 */
#ifndef MFS_NUMBERS_FP8_H
#define MFS_NUMBERS_FP8_H

#include <stdint.h>

#include "formats/numbers/half.h"
#include "formats/base/tensor.h"

#define MFS_E4M3_MAX 448.0f

static inline float mfs_e4m3_to_float(uint8_t v)
{
	const uint32_t exponent = v >> 3 & 15, rest = v & 7;
	float f;

	if ((v & 0x7f) == 0x7f)
		f = mfs_bits_to_float(0x7fc00000);
	else if (exponent)
		f = mfs_bits_to_float((exponent + 120) << 23 | rest << 20);
	else
		f = (float)rest * 0x1p-9f;
	return v & 0x80 ? -f : f;
}

/* To nearest, ties to even; what would be 480 or more is NaN, as in torch. */
static inline uint8_t mfs_float_to_e4m3(float f)
{
	const uint32_t bits = mfs_float_to_bits(f), magnitude = bits & 0x7fffffff;
	const uint8_t sign = (uint8_t)(bits >> 24 & 0x80);
	uint32_t v;

	if (magnitude > 0x43e80000) /* beyond 464, the middle of 448 and 480; NaN */
		return sign | 0x7f;
	if (magnitude < 0x3c800000) /* a subnormal is a multiple of 2^-9 */
		v = mfs_float_to_bits(mfs_bits_to_float(magnitude) + 0x1p14f) - 0x46800000;
	else
		v = (magnitude - 0x3c000000 + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
	return sign | (uint8_t)v;
}

/* The scale of a block whose largest magnitude has these bits of a float32. */
static inline float mfs_fp8_scale(uint32_t amax)
{
	const float scale = mfs_bits_to_float(amax) / MFS_E4M3_MAX;

	return scale == 0 ? 1 : scale;
}

/* Elements of one row of a matrix that lie in several blocks: the first of them is the first-th of
 * its block, and each block has block columns. Scales are one a block, from the first element's on.
 * Elements need not be aligned. */
struct mfs_fp8_run {
	uint64_t first, block, count;
};

/* to_type: float32, bfloat16 or float16. */
void mfs_fp8_dequantise(const struct mfs_fp8_run *run, enum mfs_dtype to_type, void *to,
			const uint8_t *from, const float *scales);
/* from_type: likewise. */
void mfs_fp8_quantise(const struct mfs_fp8_run *run, uint8_t *to, enum mfs_dtype from_type,
		      const void *from, const float *scales);

/* Raises each of most, which are magnitudes of from_type, to that of an element. A NaN's is larger
 * than any other. */
void mfs_fp8_raise(enum mfs_dtype from_type, void *most, const void *from, uint64_t count);
/* The largest of such magnitudes, as bits of a float32. */
uint32_t mfs_fp8_largest(enum mfs_dtype from_type, const void *most, uint64_t count);

/* Like mfs_fp8_dequantise() and mfs_fp8_quantise(), without what the processor has beyond its
 * architecture, to compare with. */
void mfs_fp8_dequantise_portable(const struct mfs_fp8_run *run, enum mfs_dtype to_type, void *to,
				 const uint8_t *from, const float *scales);
void mfs_fp8_quantise_portable(const struct mfs_fp8_run *run, uint8_t *to, enum mfs_dtype from_type,
			       const void *from, const float *scales);
void mfs_fp8_raise_portable(enum mfs_dtype from_type, void *most, const void *from, uint64_t count);

#endif
