#include "formats/numbers/low_rank.h"

#include "formats/base/bytes.h"
#include "formats/numbers/cast_i.h"

#define BLOCK 256 /* elements whose sums are in the first cache at once */

MFS_LOOP_INLINE void sum(float *restrict to, const struct mfs_low_rank *l, const float *b,
			 uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		to[i] = 0;
	for (uint64_t k = 0; k < l->rank; k++, b += l->b_stride) {
		const float a = l->a[k * l->a_stride];

		_Pragma("omp simd") for (uint64_t i = 0; i < count; i++) to[i] =
			__builtin_fmaf(a, b[i], to[i]);
	}
}

#define ADD(name, at, widen, narrow)                                                               \
	MFS_LOOP_INLINE void name(at *restrict w, const float *restrict sums, float scale,         \
				  uint64_t count)                                                  \
	{                                                                                          \
		_Pragma("omp simd") for (uint64_t i = 0; i < count; i++)                           \
		{                                                                                  \
			const float delta = sums[i] * scale;                                       \
                                                                                                   \
			w[i] = narrow(mfs_float_to_bits(mfs_bits_to_float(widen(w[i])) + delta));  \
		}                                                                                  \
	}

#define AS_IS(bits) (bits)

ADD(add_f32, word_at, AS_IS, AS_IS)
ADD(add_bf16, half_at, bf16_bits, to_bf16)
ADD(add_f16, half_at, f16_bits, to_f16)

MFS_LOOP_INLINE void add(enum mfs_dtype dtype, uint8_t *w, const struct mfs_low_rank *l,
			 uint64_t count)
{
	const unsigned element = dtype == MFS_F32 ? 4 : 2;
	float sums[BLOCK];

	for (uint64_t i = 0, n; i < count; i += n) {
		n = mfs_min_u64(BLOCK, count - i);
		sum(sums, l, l->b + i, n);
		if (dtype == MFS_F32)
			add_f32((word_at *)(w + i * element), sums, l->scale, n);
		else if (dtype == MFS_BF16)
			add_bf16((half_at *)(w + i * element), sums, l->scale, n);
		else
			add_f16((half_at *)(w + i * element), sums, l->scale, n);
	}
}

MFS_COMPILED(add_for, void,
	     (enum mfs_dtype dtype, uint8_t *w, const struct mfs_low_rank *l, uint64_t count),
	     add(dtype, w, l, count))

bool mfs_low_rank_is_possible(enum mfs_dtype dtype)
{
	return dtype == MFS_F32 || dtype == MFS_BF16 || dtype == MFS_F16;
}

void mfs_low_rank_add(enum mfs_dtype dtype, void *w, const struct mfs_low_rank *l, uint64_t count)
{
	MFS_BEST(add_for)(dtype, w, l, count);
}

void mfs_low_rank_add_portable(enum mfs_dtype dtype, void *w, const struct mfs_low_rank *l,
			       uint64_t count)
{
	add_for_any(dtype, w, l, count);
}
