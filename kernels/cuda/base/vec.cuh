/*
 * Eight elements of any type as floats: what a thread loads and stores at once, 16 bytes of bf16.
 *
 * "wide" says that pointers and row lengths allow 16-byte accesses. Where they do not, or where a
 * row ends, elements go one by one, so that each kernel takes every shape.
 */
#ifndef MFK_CUDA_VEC_CUH
#define MFK_CUDA_VEC_CUH

#include <type_traits>

#include "kernels/cuda/base/context.h"
#include "kernels/cuda/base/cuda_dtypes.cuh"

#define MFK_N 8 /* elements of a vector */

static __device__ __forceinline__ float to_float(float x)
{
	return x;
}

static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

static __device__ __forceinline__ float to_float(__half x)
{
	return __half2float(x);
}

template <typename T> static __device__ __forceinline__ T from_float(float x);

template <> __device__ __forceinline__ float from_float<float>(float x)
{
	return x;
}

template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
	return __float2bfloat16_rn(x);
}

template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
	return __float2half_rn(x);
}

/* N elements as they are in memory: words of 16 bytes, or one of 8, or one element. */
template <typename T, int N = MFK_N> struct Raw {
	typedef std::conditional_t<sizeof(T) * N % 16 == 0, uint4,
				   std::conditional_t<sizeof(T) * N % 8 == 0, uint2, T>>
		Word;
	enum { WORDS = sizeof(T) * N / sizeof(Word) };
	union {
		Word word[WORDS];
		T x[N];
	};
	__device__ __forceinline__ Raw()
	{
	}
};

/* Calls, since they are rare, and inlined would be most of a kernel. */
template <int N, typename T>
static __device__ __noinline__ Raw<T, N> load_edge(const T *p, int64_t left)
{
	Raw<T, N> r;

#pragma unroll
	for (int i = 0; i < N; i++)
		r.x[i] = i < left ? p[i] : from_float<T>(0.f);
	return r;
}

template <typename T, int N>
static __device__ __noinline__ void store_edge(T *p, const Raw<T, N> r, int64_t left)
{
#pragma unroll
	for (int i = 0; i < N; i++)
		if (i < left)
			p[i] = r.x[i];
}

/* left: elements from p on that exist; the others are 0. */
template <int N = MFK_N, typename T>
static __device__ __forceinline__ Raw<T, N> load_raw(const T *p, int64_t left, bool wide)
{
	typedef Raw<T, N> R;
	R r;

	if (!wide || left < N)
		return load_edge<N>(p, left);
#pragma unroll
	for (int i = 0; i < R::WORDS; i++)
		r.word[i] = reinterpret_cast<const typename R::Word *>(p)[i];
	return r;
}

template <typename T, int N>
static __device__ __forceinline__ void store_raw(T *p, const Raw<T, N> &r, int64_t left, bool wide)
{
	typedef Raw<T, N> R;

	if (!wide || left < N) {
		store_edge(p, r, left);
		return;
	}
#pragma unroll
	for (int i = 0; i < R::WORDS; i++)
		reinterpret_cast<typename R::Word *>(p)[i] = r.word[i];
}

template <typename T, int N>
static __device__ __forceinline__ void unpack(float *v, const Raw<T, N> &r)
{
#pragma unroll
	for (int i = 0; i < N; i++)
		v[i] = to_float(r.x[i]);
}

template <typename T, int N = MFK_N>
static __device__ __forceinline__ Raw<T, N> pack(const float *v)
{
	Raw<T, N> r;

#pragma unroll
	for (int i = 0; i < N; i++)
		r.x[i] = from_float<T>(v[i]);
	return r;
}

template <int N = MFK_N, typename T>
static __device__ __forceinline__ void load(float *v, const T *p, int64_t left, bool wide)
{
	unpack(v, load_raw<N>(p, left, wide));
}

template <int N = MFK_N, typename T>
static __device__ __forceinline__ void store(T *p, const float *v, int64_t left, bool wide)
{
	store_raw(p, pack<T, N>(v), left, wide);
}

/* The same for a type that is known at run time alone: element i of the array at p. */
template <int N = MFK_N>
static __device__ __forceinline__ void load_any(float *v, enum mfk_dtype t, const void *p,
						int64_t i, int64_t left, bool wide)
{
	with_type(t, [&](auto tag) {
		load<N>(v, static_cast<const typename decltype(tag)::type *>(p) + i, left, wide);
	});
}

template <int N = MFK_N>
static __device__ __forceinline__ void store_any(enum mfk_dtype t, void *p, int64_t i,
						 const float *v, int64_t left, bool wide)
{
	with_type(t, [&](auto tag) {
		store<N>(static_cast<typename decltype(tag)::type *>(p) + i, v, left, wide);
	});
}

static __device__ __forceinline__ float load_one(enum mfk_dtype t, const void *p, int64_t i)
{
	float x = 0;

	with_type(t, [&](auto tag) {
		x = to_float(static_cast<const typename decltype(tag)::type *>(p)[i]);
	});
	return x;
}

static __device__ __forceinline__ void store_one(enum mfk_dtype t, void *p, int64_t i, float x)
{
	with_type(t, [&](auto tag) {
		typedef typename decltype(tag)::type T;

		static_cast<T *>(p)[i] = from_float<T>(x);
	});
}

/* e^x, to 2 ulp; below the smallest normal number it is 0, which saves scaling denormal ones. */
static __device__ __forceinline__ float fast_exp(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
	return y;
}

/* ---- host ---- */

/* Do all pointers allow 16-byte accesses? NULL does. */
template <typename... P> static bool aligned(P... p)
{
	return ((reinterpret_cast<uintptr_t>(p) | ...) & 15) == 0;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

/* Blocks of 256 threads of one vector each for a flat array. */
#define MFK_THREADS 256

static inline unsigned flat_blocks(int64_t count)
{
	return static_cast<unsigned>(ceil_div(count, MFK_THREADS * MFK_N));
}

/* How many blocks of a kernel the device runs at once: the grid of one whose blocks go on to the
 * next piece of work until there is none. */
template <typename K>
static int64_t blocks_at_once(struct mfk_ctx *c, K kernel, unsigned threads, size_t shared)
{
	int each = 0;

	mfk_cuda_check(
		c, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, shared),
		"the size of a grid");
	return static_cast<int64_t>(each > 0 ? each : 1) * c->device->multiprocessors;
}

/* A block's threads as rows of x threads each, so that a row of cols elements keeps its threads
 * busy. Threads of a row go on to the next columns until there are none. */
struct row_block {
	dim3 threads;
	unsigned blocks;
};

static inline row_block rows_of_threads(int64_t rows, int64_t cols)
{
	int64_t vectors = ceil_div(cols, MFK_N);
	row_block b;
	unsigned x = 1;

	while (x < vectors && x < MFK_THREADS)
		x *= 2;
	b.threads = dim3(x, MFK_THREADS / x);
	b.blocks = static_cast<unsigned>(ceil_div(rows, b.threads.y));
	return b;
}

#endif
