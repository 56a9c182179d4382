/*
 * What the flash attention kernels ask of a warp: tensor-core products of 16-bit matrices, tiles in
 * shared memory, and asynchronous copies into them. sm_80 and later.
 *
 * tests/kernels/warp_emulator.hpp has the same names on a CPU, so that the kernels' own source is
 * tested where there is no GPU.
 *
 * Fragments are those of PTX's mma.m16n8k16: with g = lane / 4 and t = lane % 4 * 2, a thread has
 *
 *   of A [16 rows, 16]        {g, t..t+1} {g+8, t..t+1} {g, t+8..t+9} {g+8, t+8..t+9}
 *   of B [16, 8 columns]      {t..t+1, g} {t+8..t+9, g}
 *   of C [16 rows, 8 columns] {g, t} {g, t+1} {g+8, t} {g+8, t+1}
 */
#ifndef MFK_CUDA_ATTENTION_WARP_CUH
#define MFK_CUDA_ATTENTION_WARP_CUH

#include <stdint.h>

/* 16-bit floats as memory holds them. */
struct bf16 {
	uint16_t bits;
};
struct fp16 {
	uint16_t bits;
};

#ifdef MFK_EMULATE
#include "tests/kernels/warp_emulator.hpp"
#else

#define SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

template <typename T> struct half2_of;

template <> struct half2_of<bf16> {
	static __device__ __forceinline__ uint32_t pack(float low, float high)
	{
		uint32_t r;
		asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
		return r;
	}
	static __device__ __forceinline__ float low(uint32_t x)
	{
		return __uint_as_float(x << 16);
	}
	static __device__ __forceinline__ float high(uint32_t x)
	{
		return __uint_as_float(x & 0xffff0000u);
	}
	static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4],
						   uint32_t b0, uint32_t b1)
	{
		asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
		    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	}
};

template <> struct half2_of<fp16> {
	static __device__ __forceinline__ uint32_t pack(float low, float high)
	{
		uint32_t r;
		asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
		return r;
	}
	static __device__ __forceinline__ float low(uint32_t x)
	{
		float r;
		asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(r) : "r"(x));
		return r;
	}
	static __device__ __forceinline__ float high(uint32_t x)
	{
		float r;
		asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}" : "=f"(r) : "r"(x));
		return r;
	}
	static __device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4],
						   uint32_t b0, uint32_t b1)
	{
		asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
		    "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	}
};

/* Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8. */
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"((uint32_t)__cvta_generic_to_shared(row))
		     : "memory");
}

static __device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void *row)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"((uint32_t)__cvta_generic_to_shared(row))
		     : "memory");
}

/* 16 bytes from global to shared memory, or 16 zeros. */
static __device__ __forceinline__ void copy_async(void *to, const void *from, bool valid)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
			     (uint32_t)__cvta_generic_to_shared(to)),
		     "l"(from), "r"(valid ? 16 : 0)
		     : "memory");
}

static __device__ __forceinline__ void copy_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all groups of this thread but the last `pending` ones. */
template <int pending> static __device__ __forceinline__ void copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

static __device__ __forceinline__ float exp2_fast(float x)
{
	float r;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
	return r;
}

/* The value of lane ^ mask. */
static __device__ __forceinline__ float lane_xor(float x, int mask)
{
	return __shfl_xor_sync(0xffffffffu, x, mask);
}

static __device__ __forceinline__ int lane_xor(int x, int mask)
{
	return __shfl_xor_sync(0xffffffffu, x, mask);
}

static __device__ __forceinline__ void sync_warp(void)
{
	__syncwarp();
}

static __device__ __forceinline__ void sync_block(void)
{
	__syncthreads();
}

#endif

/* A of 16 rows and 16 columns, and B of two neighbours of 8 columns each (r[0..1], r[2..3]), from
 * tiles in shared memory whose rows have `ld` elements. */

template <typename T>
static __device__ __forceinline__ void load_a(uint32_t (&r)[4], const T *tile, int ld, int lane)
{
	load_matrices(r, tile + (lane & 15) * ld + (lane >> 4) * 8);
}

/* B's columns are the tile's rows: a product with the transposed tile. */
template <typename T>
static __device__ __forceinline__ void load_b(uint32_t (&r)[4], const T *tile, int ld, int lane)
{
	load_matrices(r, tile + ((lane & 7) + (lane >> 4) * 8) * ld + ((lane >> 3) & 1) * 8);
}

/* B's rows are the tile's rows. */
template <typename T>
static __device__ __forceinline__ void load_b_rows(uint32_t (&r)[4], const T *tile, int ld,
						   int lane)
{
	load_matrices_transposed(r, tile + (lane & 15) * ld + (lane >> 4) * 8);
}

#endif
