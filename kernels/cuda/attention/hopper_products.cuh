/*
 * Products of a warpgroup as attention needs them: 64 rows, by 64 or 128 columns, 16 summed over.
 *
 * Of 64 rows, lane l of warp w has rows 16 w + l / 4, and that + 8; of each eight columns of a sum
 * the two at l % 4 * 2: d[column / 8 * 4 + row / 8 % 2 * 2 + column % 2]. Two eights of columns of
 * a sum, packed, are a row matrix's 16 columns.
 */
#ifndef MFK_CUDA_HOPPER_ATTENTION_PRODUCTS_CUH
#define MFK_CUDA_HOPPER_ATTENTION_PRODUCTS_CUH

#include "kernels/cuda/attention/warp.cuh"
#include "kernels/cuda/base/sm90.cuh"

/*
 * set: d = a b; add: d += a b, a and b in shared memory, whose rows are rows of a and columns of b.
 * add_rows: d += a b, a in registers; rows of shared memory are rows of b.
 *
 * a must not be the same in each round of a loop: nvcc 13.0 gives its registers to other values.
 */
template <typename T, int N> struct Products;

#define LIST32                                                                                     \
	"%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                   \
	"%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LIST64                                                                                     \
	LIST32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                 \
	       "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define D4(c, i)  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define D16(c, i) D4(c, i), D4(c, i + 4), D4(c, i + 8), D4(c, i + 12)
#define D32(c)	  D16(c, 0), D16(c, 16)
#define D64(c)	  D32(c), D16(c, 32), D16(c, 48)

#define WGMMA(type, n, list, all, out, a, b, adds, trans, operands...)                             \
	asm volatile("{\n"                                                                         \
		     ".reg .pred add;\n"                                                           \
		     "setp.ne.u32 add, " adds ", 0;\n"                                             \
		     "wgmma.mma_async.sync.aligned.m64n" n "k16.f32." type "." type " {" list      \
		     "}, " a ", " b ", add, 1, 1, " trans ";\n"                                    \
		     "}"                                                                           \
		     : all(out)                                                                    \
		     : operands, "l"(y))

#define PRODUCTS(T, N, type, n, list, all, x0, x1, x2, x3, x4)                                     \
	template <> struct Products<T, N> {                                                        \
		static __device__ __forceinline__ void set(float (&d)[N / 2], uint64_t x,          \
							   uint64_t y)                             \
		{                                                                                  \
			WGMMA(type, n, list, all, "=f", x0, x1, "0", "0, 0", "l"(x));              \
		}                                                                                  \
		static __device__ __forceinline__ void add(float (&d)[N / 2], uint64_t x,          \
							   uint64_t y)                             \
		{                                                                                  \
			WGMMA(type, n, list, all, "+f", x0, x1, "1", "0, 0", "l"(x));              \
		}                                                                                  \
		static __device__ __forceinline__ void                                             \
		add_rows(float (&d)[N / 2], const uint32_t (&x)[4], uint64_t y)                    \
		{                                                                                  \
			WGMMA(type, n, list, all, "+f", "{" x0 "," x1 "," x2 "," x3 "}", x4, "1",  \
			      "1", "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]));                    \
		}                                                                                  \
	}
PRODUCTS(bf16, 64, "bf16", "64", LIST32, D32, "%32", "%33", "%34", "%35", "%36");
PRODUCTS(bf16, 128, "bf16", "128", LIST64, D64, "%64", "%65", "%66", "%67", "%68");
PRODUCTS(fp16, 64, "f16", "64", LIST32, D32, "%32", "%33", "%34", "%35", "%36");
PRODUCTS(fp16, 128, "f16", "128", LIST64, D64, "%64", "%65", "%66", "%67", "%68");
#undef PRODUCTS
#undef WGMMA
#undef D64
#undef D32
#undef D16
#undef D4
#undef LIST64
#undef LIST32

#endif
