#include "formats/numbers/cast.h"

#include <string.h>

#include "formats/base/bytes.h"
#include "formats/numbers/cast_i.h"

/* ---- loops ---- */

#define LOOP(name, from_at, to_at, value)                                                          \
	MFS_LOOP_INLINE void name(to_at *restrict to, const from_at *restrict from,                \
				  uint64_t count)                                                  \
	{                                                                                          \
		_Pragma("omp simd") for (uint64_t i = 0; i < count; i++) to[i] = value;            \
	}

LOOP(bf16_to_f32, half_at, word_at, bf16_bits(from[i]))
LOOP(f16_to_f32, half_at, word_at, f16_bits(from[i]))
LOOP(f32_to_bf16, word_at, half_at, to_bf16(from[i]))
LOOP(f32_to_f16, word_at, half_at, to_f16(from[i]))
LOOP(bf16_to_f16, half_at, half_at, to_f16(bf16_bits(from[i])))
LOOP(f16_to_bf16, half_at, half_at, to_bf16(f16_bits(from[i])))

MFS_LOOP_INLINE void cast(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type,
			  const void *from, uint64_t count)
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

MFS_COMPILED(cast_for, void,
	     (enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
	      uint64_t count),
	     cast(to_type, to, from_type, from, count))

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
	cast_by(MFS_BEST(cast_for), to_type, to, from_type, from, count);
}

void mfs_cast_portable(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
		       uint64_t count)
{
	cast_by(cast_for_any, to_type, to, from_type, from, count);
}
