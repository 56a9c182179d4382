/*
 * Elements of 8 bits: what they are worth, how numbers become them, and what scales matrices of
 * them have. Both backends compile this, so that they have the same formulas.
 *
 *   e4m3   bias 7, 3 bits of mantissa; up to 448; no infinity, NaN at 0x7f and 0xff
 *   e5m2   bias 15, 2 bits of mantissa; up to 57344; infinity at 0x7c, NaN from 0x7d on
 *
 * Source: TransformerEngine, common/recipe/recipe_common.cuh: compute_scale_from_amax;
 * common/cast/fp8/quantize_fp8.cuh. What a checkpoint's weights of 8 bits are is in
 * formats/numbers/fp8.h, whose cast does not saturate.
 */
#ifndef MFK_EIGHT_BITS_H
#define MFK_EIGHT_BITS_H

#include <float.h>
#include <string.h>

#include "kernels/kernels.h"

#ifdef __CUDACC__
#define MFK_EIGHT static __host__ __device__ __forceinline__
#else
#define MFK_EIGHT static inline __attribute__((always_inline))
#endif

/* Rows of operands, and what products sum over, are multiples of so many elements: 16 bytes. */
#define MFK_SCALED_STEP 16

MFK_EIGHT int64_t mfk_scaled_round(int64_t count)
{
	return (count + MFK_SCALED_STEP - 1) / MFK_SCALED_STEP * MFK_SCALED_STEP;
}

/* The first column of a group in a transposed matrix whose groups each have columns up to a
 * multiple of MFK_SCALED_STEP. first: of the group's rows. It is that of no column before it, since
 * two numbers rounded up are at most a step more than their sum rounded up. */
MFK_EIGHT int64_t mfk_group_column(int64_t first, int64_t group)
{
	return mfk_scaled_round(first) + group * MFK_SCALED_STEP;
}

/* Columns of all groups together, at least. */
MFK_EIGHT int64_t mfk_group_columns(int64_t rows, int64_t groups)
{
	return mfk_group_column(rows, groups);
}

/* ---- scales ---- */

MFK_EIGHT float mfk_scaled_most(enum mfk_dtype to)
{
	return to == MFK_E4M3 ? 448.f : 57344.f;
}

/* Sets scale and inverse, unless amax is 0, infinite or a NaN. Divisions are rounded to nearest. */
MFK_EIGHT void mfk_scale_set(float most, float amax, struct mfk_scale *s)
{
	if (!(amax > 0.f && amax <= FLT_MAX))
		return;
	s->scale = most / amax;
	if (s->scale > FLT_MAX)
		s->scale = FLT_MAX;
	s->inverse = 1.f / s->scale;
}

/* An amax of 0, an infinite one and a NaN have the scale 1. */
MFK_EIGHT struct mfk_scale mfk_scale_of(enum mfk_dtype to, float amax)
{
	struct mfk_scale s = {1.f, 1.f, amax, 0.f};

	mfk_scale_set(mfk_scaled_most(to), amax, &s);
	return s;
}

/* One of struct mfk_update_scales. */
MFK_EIGHT void mfk_scale_update(const struct mfk_update_scales *u, int64_t i)
{
	const float newest = u->seen[i].amax;
	float *h = u->history + i, greatest = newest;

	u->seen[i].amax = 0.f;
	u->scales[i].amax = 0.f;
	if (newest == 0.f)
		return;
	h[0] = 0.f;
	for (int64_t k = 1; k < u->length; k++) {
		const float was = h[k * u->count];

		greatest = was > greatest ? was : greatest;
		h[k * u->count] = k + 1 < u->length ? h[(k + 1) * u->count] : newest;
	}
	mfk_scale_set(u->most, u->greatest ? greatest : newest, &u->scales[i]);
}

/* ---- elements; for the host, where the device has instructions ---- */

#ifndef __CUDACC__

MFK_EIGHT uint32_t mfk_float_bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	return u;
}

MFK_EIGHT float mfk_bits_float(uint32_t u)
{
	float x;

	memcpy(&x, &u, 4);
	return x;
}

/* A subnormal is a multiple of 2^-9: the last bit of a float of 2^14. */
MFK_EIGHT uint8_t mfk_to_e4m3(float x)
{
	const uint32_t bits = mfk_float_bits(x), whole = bits & 0x7fffffff;
	const uint32_t u = whole > 0x43e00000 ? 0x43e00000 : whole; /* 448 */
	const uint32_t small = mfk_float_bits(mfk_bits_float(u) + 0x1p14f) - 0x46800000;
	uint32_t v = (u - 0x3c000000 + 0x7ffff + (u >> 20 & 1)) >> 20;

	v = u < 0x3c800000 ? small : v;
	v |= bits >> 24 & 0x80;
	return (uint8_t)(whole > 0x7f800000 ? 0x7f : v);
}

/* A subnormal is a multiple of 2^-16: the last bit of a float of 2^7. */
MFK_EIGHT uint8_t mfk_to_e5m2(float x)
{
	const uint32_t bits = mfk_float_bits(x), whole = bits & 0x7fffffff;
	const uint32_t u = whole > 0x47600000 ? 0x47600000 : whole; /* 57344 */
	const uint32_t small = mfk_float_bits(mfk_bits_float(u) + 0x1p7f) - 0x43000000;
	uint32_t v = (u - 0x38000000 + 0xfffff + (u >> 21 & 1)) >> 21;

	v = u < 0x38800000 ? small : v;
	v |= bits >> 24 & 0x80;
	return (uint8_t)(whole > 0x7f800000 ? 0x7f : v);
}

/* Exponents are 120 less. A multiplication makes normal numbers of subnormals, too. */
MFK_EIGHT float mfk_from_e4m3(uint8_t v)
{
	const uint32_t magnitude = v & 0x7f;
	uint32_t u = mfk_float_bits(mfk_bits_float(magnitude << 20) * 0x1p120f);

	u = magnitude == 0x7f ? 0x7fc00000 : u;
	return mfk_bits_float(u | (uint32_t)(v & 0x80) << 24);
}

MFK_EIGHT float mfk_from_e5m2(uint8_t v)
{
	const uint32_t magnitude = v & 0x7f;
	uint32_t u = mfk_float_bits(mfk_bits_float(magnitude << 21) * 0x1p112f);

	u = magnitude >= 0x7c ? u | 0x7f800000 : u;
	return mfk_bits_float(u | (uint32_t)(v & 0x80) << 24);
}

#endif

/* ---- products ---- */

static inline bool mfk_gemm_is_scaled(const struct mfk_gemm *g)
{
	return mfk_is_scaled(g->dtype_a) || mfk_is_scaled(g->dtype_b);
}

/* What is wrong with a product of 8-bit operands; NULL: nothing is, or it has none. sm_90 has
 * instructions for rows along k alone, and cublasLt wants rows of 16 bytes. */
static inline const char *mfk_gemm_refusal(const struct mfk_gemm *g)
{
	const uintptr_t all = (uintptr_t)g->a | (uintptr_t)g->b | (uintptr_t)g->c;

	if (!mfk_gemm_is_scaled(g))
		return g->scaling ? "scales of operands that have more than 8 bits" : NULL;
	if (!mfk_is_scaled(g->dtype_a) || !mfk_is_scaled(g->dtype_b))
		return "one operand has 8 bits, and the other one has not";
	if (g->dtype_a == MFK_E5M2 && g->dtype_b == MFK_E5M2)
		return "both operands are e5m2";
	if (mfk_is_scaled(g->dtype_c))
		return "a result of 8 bits";
	if (g->trans_a || !g->trans_b)
		return "rows of an operand of 8 bits are not along k";
	if ((g->n | g->k | g->lda | g->ldb) % MFK_SCALED_STEP)
		return "sizes of 8-bit operands are not multiples of 16";
	if (all % 16 || g->ldc * (int64_t)mfk_dtype_size(g->dtype_c) % 16)
		return "rows do not begin at multiples of 16 bytes";
	return g->scaling != MFK_SCALING_TENSOR ? "operands of 8 bits without scales" : NULL;
}

#endif
