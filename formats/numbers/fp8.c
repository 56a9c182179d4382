#include "formats/numbers/fp8.h"

#include "formats/base/bytes.h"
#include "formats/numbers/cast_i.h"

/* ---- one element, without a branch ---- */

static inline uint32_t e4m3_bits(uint8_t v)
{
	const uint32_t sign = (uint32_t)(v & 0x80) << 24, rest = (uint32_t)(v & 0x7f) << 20;
	/* 2^-6 and the mantissa of a subnormal, less 2^-6 again */
	const uint32_t small = mfs_float_to_bits(mfs_bits_to_float(rest + 0x3c800000) - 0x1p-6f);
	uint32_t bits = rest + 0x3c000000;

	bits = select_bits(all_if(rest < 0x00800000), small, bits);
	bits = select_bits(all_if(rest == 0x07f00000), 0x7fc00000, bits);
	return sign | bits;
}

static inline uint8_t to_e4m3(uint32_t bits)
{
	const uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
	const uint32_t small =
		mfs_float_to_bits(mfs_bits_to_float(magnitude) + 0x1p14f) - 0x46800000;
	uint32_t v = (magnitude - 0x3c000000 + 0x7ffff + (magnitude >> 20 & 1)) >> 20;

	v = select_bits(all_if(magnitude < 0x3c800000), small, v);
	v = select_bits(all_if(magnitude > 0x43e80000), 0x7f, v);
	return (uint8_t)(sign | v);
}

static inline uint32_t times(uint32_t bits, float scale)
{
	return mfs_float_to_bits(mfs_bits_to_float(bits) * scale);
}

static inline uint32_t over(uint32_t bits, float scale)
{
	return mfs_float_to_bits(mfs_bits_to_float(bits) / scale);
}

/* ---- loops over what one block has ---- */

#define DEQUANTISE(name, to_at, value)                                                             \
	MFS_LOOP_INLINE void name(to_at *restrict to, const uint8_t *restrict from, float scale,   \
				  uint64_t count)                                                  \
	{                                                                                          \
		_Pragma("omp simd") for (uint64_t i = 0; i < count; i++) to[i] = value;            \
	}

DEQUANTISE(e4m3_to_f32, word_at, times(e4m3_bits(from[i]), scale))
DEQUANTISE(e4m3_to_bf16, half_at, to_bf16(times(e4m3_bits(from[i]), scale)))
DEQUANTISE(e4m3_to_f16, half_at, to_f16(times(e4m3_bits(from[i]), scale)))

#define QUANTISE(name, from_at, bits)                                                              \
	MFS_LOOP_INLINE void name(uint8_t *restrict to, const from_at *restrict from, float scale, \
				  uint64_t count)                                                  \
	{                                                                                          \
		_Pragma("omp simd") for (uint64_t i = 0; i < count; i++) to[i] =                   \
			to_e4m3(over(bits, scale));                                                \
	}

QUANTISE(f32_to_e4m3, word_at, from[i])
QUANTISE(bf16_to_e4m3, half_at, bf16_bits(from[i]))
QUANTISE(f16_to_e4m3, half_at, f16_bits(from[i]))

/* Magnitudes are ordered as their bits are. */
#define RAISE(name, type, at, mask)                                                                \
	MFS_LOOP_INLINE void name(at *restrict most, const at *restrict from, uint64_t count)      \
	{                                                                                          \
		_Pragma("omp simd") for (uint64_t i = 0; i < count; i++)                           \
		{                                                                                  \
			const type v = from[i] & (mask);                                           \
                                                                                                   \
			most[i] = v > most[i] ? v : most[i];                                       \
		}                                                                                  \
	}

RAISE(raise_words, uint32_t, word_at, 0x7fffffff)
RAISE(raise_halves, uint16_t, half_at, 0x7fff)

MFS_LOOP_INLINE void raise_any(enum mfs_dtype type, void *most, const void *from, uint64_t count)
{
	if (type == MFS_F32)
		raise_words(most, from, count);
	else
		raise_halves(most, from, count);
}

uint32_t mfs_fp8_largest(enum mfs_dtype from_type, const void *most, uint64_t count)
{
	const word_at *words = most;
	const half_at *halves = most;
	uint32_t largest = 0;

	for (uint64_t i = 0; i < count; i++) {
		const uint32_t v = from_type == MFS_F32 ? words[i] : halves[i];

		largest = v > largest ? v : largest;
	}
	if (from_type == MFS_F32)
		return largest;
	return from_type == MFS_BF16 ? bf16_bits((uint16_t)largest) : f16_bits((uint16_t)largest);
}

/* ---- loops over blocks ---- */

#define EACH_BLOCK(run, at, n, b)                                                                  \
	for (uint64_t at = 0, b = 0, n = mfs_min_u64((run)->count, (run)->block - (run)->first);   \
	     at < (run)->count; at += n, b++, n = mfs_min_u64((run)->count - at, (run)->block))

MFS_LOOP_INLINE void dequantise(const struct mfs_fp8_run *run, enum mfs_dtype to_type, uint8_t *to,
				const uint8_t *from, const float *scales)
{
	EACH_BLOCK(run, at, n, b)
	{
		if (to_type == MFS_F32)
			e4m3_to_f32((word_at *)(to + 4 * at), from + at, scales[b], n);
		else if (to_type == MFS_BF16)
			e4m3_to_bf16((half_at *)(to + 2 * at), from + at, scales[b], n);
		else
			e4m3_to_f16((half_at *)(to + 2 * at), from + at, scales[b], n);
	}
}

MFS_LOOP_INLINE void quantise(const struct mfs_fp8_run *run, uint8_t *to, enum mfs_dtype from_type,
			      const uint8_t *from, const float *scales)
{
	EACH_BLOCK(run, at, n, b)
	{
		if (from_type == MFS_F32)
			f32_to_e4m3(to + at, (const word_at *)(from + 4 * at), scales[b], n);
		else if (from_type == MFS_BF16)
			bf16_to_e4m3(to + at, (const half_at *)(from + 2 * at), scales[b], n);
		else
			f16_to_e4m3(to + at, (const half_at *)(from + 2 * at), scales[b], n);
	}
}

/* ---- processors ---- */

MFS_COMPILED(dequantise_for, void,
	     (const struct mfs_fp8_run *run, enum mfs_dtype to_type, void *to, const uint8_t *from,
	      const float *scales),
	     dequantise(run, to_type, to, from, scales))
MFS_COMPILED(quantise_for, void,
	     (const struct mfs_fp8_run *run, uint8_t *to, enum mfs_dtype from_type,
	      const void *from, const float *scales),
	     quantise(run, to, from_type, from, scales))
MFS_COMPILED(raise_for, void,
	     (enum mfs_dtype from_type, void *most, const void *from, uint64_t count),
	     raise_any(from_type, most, from, count))

void mfs_fp8_dequantise(const struct mfs_fp8_run *run, enum mfs_dtype to_type, void *to,
			const uint8_t *from, const float *scales)
{
	MFS_BEST(dequantise_for)(run, to_type, to, from, scales);
}

void mfs_fp8_dequantise_portable(const struct mfs_fp8_run *run, enum mfs_dtype to_type, void *to,
				 const uint8_t *from, const float *scales)
{
	dequantise_for_any(run, to_type, to, from, scales);
}

void mfs_fp8_quantise(const struct mfs_fp8_run *run, uint8_t *to, enum mfs_dtype from_type,
		      const void *from, const float *scales)
{
	MFS_BEST(quantise_for)(run, to, from_type, from, scales);
}

void mfs_fp8_quantise_portable(const struct mfs_fp8_run *run, uint8_t *to, enum mfs_dtype from_type,
			       const void *from, const float *scales)
{
	quantise_for_any(run, to, from_type, from, scales);
}

void mfs_fp8_raise(enum mfs_dtype from_type, void *most, const void *from, uint64_t count)
{
	MFS_BEST(raise_for)(from_type, most, from, count);
}

void mfs_fp8_raise_portable(enum mfs_dtype from_type, void *most, const void *from, uint64_t count)
{
	raise_for_any(from_type, most, from, count);
}
