/*
 * Template sizes of the flash kernels, and their launches. A file for each 16-bit type, and one for
 * each with dropout, includes it, since compiling them takes long.
 */
#ifndef MFK_CUDA_ATTENTION_FLASH_LAUNCH_CUH
#define MFK_CUDA_ATTENTION_FLASH_LAUNCH_CUH

#include "kernels/cuda/attention/flash.cuh"

/*
 * Tiles of head dimensions (DQ of q and k, DV of v): 16s of rows that a warp owns, and 8s of the
 * other axis in a step. A thread's accumulators (2 or 4 registers for each 8 columns of 16 rows)
 * must stay below 255 registers.
 */
template <int DQ, int DV> struct flash_sizes;

template <> struct flash_sizes<32, 32> {
	enum { forward_m = 2, forward_n = 8, q_m = 2, q_n = 8, kv_warps = 4, kv_m = 2, kv_n = 8 };
};
template <> struct flash_sizes<64, 64> {
	enum { forward_m = 2, forward_n = 8, q_m = 2, q_n = 8, kv_warps = 4, kv_m = 2, kv_n = 4 };
};
template <> struct flash_sizes<128, 128> {
	enum { forward_m = 2, forward_n = 8, q_m = 2, q_n = 4, kv_warps = 8, kv_m = 1, kv_n = 8 };
};
template <> struct flash_sizes<192, 128> {
	enum { forward_m = 2, forward_n = 8, q_m = 1, q_n = 8, kv_warps = 8, kv_m = 1, kv_n = 4 };
};

#ifndef MFK_EMULATE
#include <cuda_runtime.h>

#include "kernels/kernels.h"

template <typename F>
static cudaError_t flash_launch(F *kernel, int64_t blocks, int threads, int bytes, const flash &f,
				cudaStream_t stream)
{
	cudaError_t rc =
		bytes > 48 << 10
			? cudaFuncSetAttribute((const void *)kernel,
					       cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)
			: cudaSuccess;

	if (rc)
		return rc;
	kernel<<<(unsigned)blocks, threads, bytes, stream>>>(f);
	return cudaGetLastError();
}
#endif

static inline int64_t tiles_of(int seq, int rows)
{
	return (seq + rows - 1) / rows;
}

template <typename T, int DQ, int DV, bool DROP> struct flash_kernels {
	using sizes = flash_sizes<DQ, DV>;
	using forward_tile = flash_forward_tile<T, DQ, DV, sizes::forward_m, sizes::forward_n>;
	using q_tile = flash_backward_q_tile<T, DQ, DV, sizes::q_m, sizes::q_n>;
	using kv_tile =
		flash_backward_kv_tile<T, DQ, DV, sizes::kv_warps, sizes::kv_m, sizes::kv_n>;

#ifndef MFK_EMULATE
	static cudaError_t forward(const flash &f, cudaStream_t stream)
	{
		return flash_launch(
			flash_forward<T, DQ, DV, sizes::forward_m, sizes::forward_n, DROP>,
			tiles_of(f.seq, forward_tile::rows) * f.heads * f.batch,
			forward_tile::threads, forward_tile::bytes, f, stream);
	}

	static cudaError_t backward(flash f, cudaStream_t stream)
	{
		int group = f.heads / f.kv_heads;

		cudaError_t rc = cudaSuccess;
		f.steps = (int)tiles_of(f.seq, kv_tile::rows);
		if (f.first_key && f.causal) {
			flash_steps<<<(f.batch * f.steps + 127) / 128, 128, 0, stream>>>(
				f, kv_tile::rows);
			rc = cudaGetLastError();
		}
		if (!rc)
			rc = flash_launch(flash_backward_q<T, DQ, DV, sizes::q_m, sizes::q_n, DROP>,
					  tiles_of(f.seq, q_tile::rows) * f.heads * f.batch,
					  q_tile::threads, q_tile::bytes, f, stream);
		f.section = f.section > group ? f.section / group : 1;
		if (!rc)
			rc = flash_launch(flash_backward_kv<T, DQ, DV, sizes::kv_warps, sizes::kv_m,
							    sizes::kv_n, DROP>,
					  tiles_of(f.seq, kv_tile::keys) * f.kv_heads * f.batch,
					  kv_tile::threads, kv_tile::bytes, f, stream);
		return rc;
	}

	static cudaError_t run(const flash &f, bool back, cudaStream_t stream)
	{
		return back ? backward(f, stream) : forward(f, stream);
	}
#endif

	static int shared_bytes(bool back)
	{
		return !back					  ? forward_tile::bytes
		       : (int)q_tile::bytes > (int)kv_tile::bytes ? q_tile::bytes
								  : kv_tile::bytes;
	}
};

/* The smallest size that holds the dimensions; its number, or -1. */
static inline int flash_size_of(int64_t qk_dim, int64_t v_dim)
{
	static const int sizes[][2] = {{32, 32}, {64, 64}, {128, 128}, {192, 128}};

	for (int i = 0; i < (int)(sizeof(sizes) / sizeof(*sizes)); i++)
		if (qk_dim <= sizes[i][0] && v_dim <= sizes[i][1])
			return i;
	return -1;
}

#ifndef MFK_EMULATE
template <typename T, bool DROP>
static cudaError_t flash_run(const flash &f, bool back, cudaStream_t stream)
{
	switch (flash_size_of(f.qk_dim, f.v_dim)) {
	case 0:
		return flash_kernels<T, 32, 32, DROP>::run(f, back, stream);
	case 1:
		return flash_kernels<T, 64, 64, DROP>::run(f, back, stream);
	case 2:
		return flash_kernels<T, 128, 128, DROP>::run(f, back, stream);
	case 3:
		return flash_kernels<T, 192, 128, DROP>::run(f, back, stream);
	}
	return cudaErrorInvalidValue;
}

/* What an operation says, and where its scratch is. */
flash flash_of(const struct mfk_attention *a);
flash flash_backward_of(const struct mfk_attention *a);
/* lse_log2 and dot, which backward needs. */
cudaError_t flash_run_dot(const flash &f, enum mfk_dtype dtype, cudaStream_t stream);
cudaError_t flash_run_bf16(const flash &f, bool back, cudaStream_t stream);
cudaError_t flash_run_fp16(const flash &f, bool back, cudaStream_t stream);
cudaError_t flash_run_bf16_dropout(const flash &f, bool back, cudaStream_t stream);
cudaError_t flash_run_fp16_dropout(const flash &f, bool back, cudaStream_t stream);
#endif

#endif
