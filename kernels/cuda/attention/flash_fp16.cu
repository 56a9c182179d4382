#include "kernels/cuda/attention/flash_launch.cuh"

cudaError_t flash_run_fp16(const flash &f, bool back, cudaStream_t stream)
{
	return flash_run<fp16, false>(f, back, stream);
}
