/* Storage types to fp32 and back, to nearest even. */
#include "kernels/eight_bits.h"
#include "kernels/ref/ref_i.h"

#include <string.h>

MFK_INLINE uint32_t bits(float x)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	return u;
}

MFK_INLINE float number(uint32_t u)
{
	float x;

	memcpy(&x, &u, 4);
	return x;
}

MFK_INLINE uint16_t to_bf16(float x)
{
	uint32_t u = bits(x);
	uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;

	/* Of a NaN rounding might make infinity. */
	return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40 : rounded);
}

/* Exponents of fp16 are 112 less. Multiplying by 2^112 also turns its subnormals into normal
 * numbers; infinities and NaNs come out of it as 65536 and more, and get their exponent back. */
MFK_INLINE float from_fp16(uint16_t h)
{
	uint32_t u = (uint32_t)(h & 0x7fff) << 13;
	uint32_t v = bits(number(u) * 0x1p112f);

	v = v >= 0x47800000 ? v | 0x7f800000 : v;
	return number(v | (uint32_t)(h & 0x8000) << 16);
}

MFK_INLINE uint16_t to_fp16(float x)
{
	uint32_t u = bits(x) & 0x7fffffff;
	/* A normal result: 13 bits are rounded off, and the exponent is 112 less. */
	uint32_t normal = (u - (112u << 23) + 0xfff + (u >> 13 & 1)) >> 13;
	/* A subnormal one: its last bit is 2^-24, the last bit of a float of 0.5 to 1. */
	uint32_t subnormal = bits(number(u) + 0.5f) - bits(0.5f);
	uint32_t h = u < 0x38800000 ? subnormal : normal;

	h = u >= 0x477ff000 ? 0x7c00 : h; /* 65520 and more */
	h = u > 0x7f800000 ? 0x7e00 : h;
	return (uint16_t)(h | (bits(x) >> 16 & 0x8000));
}

static void load_f32(const void *from, int64_t count, float *to)
{
	memmove(to, from, (size_t)count * sizeof(*to));
}

static void store_f32(const float *from, int64_t count, void *to)
{
	memmove(to, from, (size_t)count * sizeof(*from));
}

MFK_SIMD static void load_bf16(const void *at, int64_t count, float *to)
{
	const uint16_t *from = at;

#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		to[i] = number((uint32_t)from[i] << 16);
}

MFK_SIMD static void load_f16(const void *at, int64_t count, float *to)
{
	const uint16_t *from = at;

#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		to[i] = from_fp16(from[i]);
}

MFK_SIMD static void store_bf16(const float *from, int64_t count, void *at)
{
	uint16_t *to = at;

#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		to[i] = to_bf16(from[i]);
}

MFK_SIMD static void store_f16(const float *from, int64_t count, void *at)
{
	uint16_t *to = at;

#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		to[i] = to_fp16(from[i]);
}

#define LOOPS(name)                                                                                \
	MFK_SIMD static void load_##name(const void *at, int64_t count, float *to)                 \
	{                                                                                          \
		const uint8_t *from = at;                                                          \
                                                                                                   \
		_Pragma("omp simd") for (int64_t i = 0; i < count; i++) to[i] =                    \
			mfk_from_##name(from[i]);                                                  \
	}                                                                                          \
                                                                                                   \
	MFK_SIMD static void store_##name(const float *from, int64_t count, void *at)              \
	{                                                                                          \
		uint8_t *to = at;                                                                  \
                                                                                                   \
		_Pragma("omp simd") for (int64_t i = 0; i < count; i++) to[i] =                    \
			mfk_to_##name(from[i]);                                                    \
	}

LOOPS(e4m3)
LOOPS(e5m2)

static const struct {
	void (*load)(const void *from, int64_t count, float *to);
	void (*store)(const float *from, int64_t count, void *to);
} types[] = {
	[MFK_F32] = {load_f32, store_f32},    [MFK_BF16] = {load_bf16, store_bf16},
	[MFK_F16] = {load_f16, store_f16},    [MFK_E4M3] = {load_e4m3, store_e4m3},
	[MFK_E5M2] = {load_e5m2, store_e5m2},
};

_Static_assert(sizeof(types) / sizeof(types[0]) == MFK_DTYPE_COUNT, "a type without a row");

void mfk_to_f32(enum mfk_dtype type, const void *from, int64_t count, float *to)
{
	types[type].load(from, count, to);
}

void mfk_from_f32(enum mfk_dtype type, const float *from, int64_t count, void *to)
{
	types[type].store(from, count, to);
}

MFK_SIMD static void add(float *y, const float *x, const float *from, int64_t count)
{
#pragma omp simd
	for (int64_t i = 0; i < count; i++)
		y[i] = x[i] + from[i];
}

void mfk_add_to(enum mfk_dtype type, void *base, int64_t element, int64_t count, const float *from,
		float *buf)
{
	const float *x = mfk_load(type, base, element, count, buf);
	float *y = mfk_begin(type, base, element, buf);

	add(y, x, from, count);
	mfk_end(type, base, element, count, y);
}
