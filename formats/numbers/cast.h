/*
 * Casts between floating-point types, as torch's .to() does: to nearest, ties to even; what is too
 * large for float16 becomes infinity. torch has no rule for the bits of a NaN: they depend on its
 * vector unit and on the place in the tensor. Here they are those of numbers/half.h.
 *
 * The loops are written for any processor. On x86-64 they are compiled for AVX2 and AVX-512 too.
 */
#ifndef MFS_NUMBERS_CAST_H
#define MFS_NUMBERS_CAST_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/tensor.h"

/* True from float32, bfloat16, float16 and float64 to the first three. float64 goes through
 * float32. */
bool mfs_cast_is_possible(enum mfs_dtype from, enum mfs_dtype to);

/* Casts count elements; equal types are copied. The places do not overlap and need not be
 * aligned. */
void mfs_cast(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
	      uint64_t count);
/* Like mfs_cast(), without what the processor has beyond its architecture, to compare with. */
void mfs_cast_portable(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
		       uint64_t count);

#endif
