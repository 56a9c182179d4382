#include "kernels/cuda/attention/flash_launch.cuh"

cudaError_t flash_run_bf16_dropout(const flash &f, bool back, cudaStream_t stream)
{
	return flash_run<bf16, true>(f, back, stream);
}
