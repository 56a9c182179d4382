/*
 * MXFP4 (OCP Microscaling Formats, version 1.0; GPT-OSS): 4-bit floats of 1 sign, 2 exponent and 1
 * mantissa bit (0, 0.5, 1, 1.5, 2, 3, 4, 6), two in a byte, the first in its low half. Each 32 have
 * a scale, which is a power of two: a byte that is its exponent plus 127. The byte 255 is NaN
 * there; transformers' convert_moe_packed_tensors() (integrations/mxfp4.py), which says what such
 * weights are in bfloat16, takes it for 2^128, and so do we.
 *
 * All of these floats are floats of 8 bits too, whose loops multiply them (fp8.h). They are doubled
 * and their scales halved, as a float32 holds no 2^128.
 */
#ifndef MFS_NUMBERS_FP4_H
#define MFS_NUMBERS_FP4_H

#include <stdint.h>

#include "formats/numbers/half.h"

#define MFS_FP4_BLOCK 32 /* elements with one scale */

/* Elements [first, first + count) of packed, doubled, as float8_e4m3fn. */
static inline void mfs_fp4_doubled(uint8_t *to, const uint8_t *packed, uint64_t first,
				   uint64_t count)
{
	static const uint8_t doubled[16] = {0x00, 0x38, 0x40, 0x44, 0x48, 0x4c, 0x50, 0x54,
					    0x80, 0xb8, 0xc0, 0xc4, 0xc8, 0xcc, 0xd0, 0xd4};

	for (uint64_t i = 0; i < count; i++)
		to[i] = doubled[packed[(first + i) / 2] >> 4 * ((first + i) & 1) & 15];
}

/* Half of a scale: 2^(v - 128). The two smallest are no normal floats. */
static inline float mfs_fp4_half_scale(uint8_t v)
{
	return mfs_bits_to_float(v > 1 ? (uint32_t)(v - 1) << 23 : 0x00200000u << v);
}

#endif
