/* Sizes of hopper.cuh's tiles, and launches. A file for each 16-bit type includes it. */
#ifndef MFK_CUDA_ATTENTION_HOPPER_LAUNCH_CUH
#define MFK_CUDA_ATTENTION_HOPPER_LAUNCH_CUH

#include "kernels/cuda/attention/flash_launch.cuh"
#include "kernels/cuda/attention/hopper_kv.cuh"
#include "kernels/cuda/attention/hopper_q.cuh"

/* Warpgroups that own rows, the other axis' rows in a step, and stages. */
template <typename T, int D> struct hopper_tiles;

template <typename T> struct hopper_tiles<T, 64> {
	typedef hopper_kv_tile<T, 64, 2, 128, 3> kv;
	typedef hopper_q_tile<T, 64, 3, 64, 4> q;
};
template <typename T> struct hopper_tiles<T, 128> {
	typedef hopper_kv_tile<T, 128, 2, 64, 3> kv;
	typedef hopper_q_tile<T, 128, 2, 128, 2> q;
};

template <typename K, typename F>
static cudaError_t hopper_launch(F *kernel, const flash &f, const hopper_maps &m, int heads,
				 cudaStream_t stream)
{
	const int64_t blocks = tiles_of(f.seq, K::rows) * heads * f.batch;
	cudaError_t rc = cudaFuncSetAttribute(
		(const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, K::bytes);

	if (rc)
		return rc;
	kernel<<<(unsigned)blocks, K::threads, K::bytes, stream>>>(f, m);
	return cudaGetLastError();
}

template <typename KV, typename Q>
static cudaError_t hopper_launch_both(const flash &f, const hopper_maps &m, cudaStream_t stream)
{
	cudaError_t rc = hopper_launch<KV>(hopper_kv<KV>, f, m, f.kv_heads, stream);

	return rc ? rc : hopper_launch<Q>(hopper_q<Q>, f, m, f.heads, stream);
}

template <typename T>
static cudaError_t hopper_run(const flash &f, const hopper_maps &m, cudaStream_t stream)
{
	typedef hopper_tiles<T, 64> small;
	typedef hopper_tiles<T, 128> large;

	return f.qk_dim == 64
		       ? hopper_launch_both<typename small::kv, typename small::q>(f, m, stream)
		       : hopper_launch_both<typename large::kv, typename large::q>(f, m, stream);
}

cudaError_t hopper_run_bf16(const flash &f, const hopper_maps &m, cudaStream_t stream);
cudaError_t hopper_run_fp16(const flash &f, const hopper_maps &m, cudaStream_t stream);

#endif
