/*
 * The types of elements, a row each. What a backend needs of a type in addition is a row of its
 * own: how it is loaded and stored in kernels/ref/convert.c, what CUDA and its libraries call it in
 * kernels/cuda/base/cuda_dtypes.h.
 */
#ifndef MFK_DTYPES_H
#define MFK_DTYPES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Name, bytes, word in files, exact: operations compute with the elements as they are, and what
 * they add up is of this type, too. Elements of other types become it, and results are rounded.
 */
#define MFK_STORED_DTYPES(ROW)                                                                     \
	ROW(F32, 4, "fp32", true)                                                                  \
	ROW(BF16, 2, "bf16", false)                                                                \
	ROW(F16, 2, "fp16", false)
/* Operands of products alone, whose elements have a scale (eight_bits.h). */
#define MFK_SCALED_DTYPES(ROW)                                                                     \
	ROW(E4M3, 1, "e4m3", false)                                                                \
	ROW(E5M2, 1, "e5m2", false)
#define MFK_DTYPES(ROW) MFK_STORED_DTYPES(ROW) MFK_SCALED_DTYPES(ROW)

enum mfk_dtype {
#define ROW(NAME, ...) MFK_##NAME,
	MFK_DTYPES(ROW)
#undef ROW
};

struct mfk_dtype_row {
	size_t size;
	const char *word;
	bool exact;
};

#define ROW(NAME, ...) +1
enum { MFK_STORED_COUNT = MFK_STORED_DTYPES(ROW), MFK_DTYPE_COUNT = MFK_DTYPES(ROW) };
#undef ROW

static inline const struct mfk_dtype_row *mfk_dtype_row(enum mfk_dtype t)
{
	static const struct mfk_dtype_row rows[] = {
#define ROW(NAME, ...) {__VA_ARGS__},
		MFK_DTYPES(ROW)
#undef ROW
	};

	return &rows[t];
}

static inline size_t mfk_dtype_size(enum mfk_dtype t)
{
	return mfk_dtype_row(t)->size;
}

static inline bool mfk_is_exact(enum mfk_dtype t)
{
	return mfk_dtype_row(t)->exact;
}

static inline bool mfk_is_scaled(enum mfk_dtype t)
{
	return (int)t >= MFK_STORED_COUNT;
}

#endif
