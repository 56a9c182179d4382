/* The types of elements in C++: from a type that is known at run time to a kernel of it. */
#ifndef MFK_CUDA_DTYPES_CUH
#define MFK_CUDA_DTYPES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/dtypes.h"

template <enum mfk_dtype> struct element_of;
template <> struct element_of<MFK_F32> {
	typedef float type;
};
template <> struct element_of<MFK_BF16> {
	typedef __nv_bfloat16 type;
};
template <> struct element_of<MFK_F16> {
	typedef __half type;
};

template <typename T> struct type_tag {
	typedef T type;
};

/* Calls f with the tag of a type, on the host or in a kernel. Those of 8 bits have none. The last
 * type is not asked for: a kernel has no code for what cannot be. */
template <typename F>
static __host__ __device__ __forceinline__ void with_type(enum mfk_dtype t, F f)
{
#define ROW(NAME, ...)                                                                             \
	if (MFK_##NAME + 1 == MFK_STORED_COUNT || t == MFK_##NAME)                                 \
		return f(type_tag<element_of<MFK_##NAME>::type>());
	MFK_STORED_DTYPES(ROW)
#undef ROW
}

/* The same for types of SIZE bytes alone: no kernels of others are made. False: t is none of
 * them. */
template <size_t SIZE, typename F> static bool with_type_of(enum mfk_dtype t, F f)
{
	bool found = false;

	with_type(t, [&](auto tag) {
		if constexpr (sizeof(typename decltype(tag)::type) == SIZE) {
			f(tag);
			found = true;
		}
	});
	return found;
}

#endif
