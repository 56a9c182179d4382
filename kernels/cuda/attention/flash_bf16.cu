#include "kernels/cuda/attention/flash_launch.cuh"

cudaError_t flash_run_bf16(const flash &f, bool back, cudaStream_t stream)
{
	return flash_run<bf16, false>(f, back, stream);
}
