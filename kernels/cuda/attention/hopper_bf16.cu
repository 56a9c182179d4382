#include "kernels/cuda/attention/hopper_launch.cuh"

#ifdef MFK_SM90A
cudaError_t hopper_run_bf16(const flash &f, const hopper_maps &m, cudaStream_t stream)
{
	return hopper_run<bf16>(f, m, stream);
}
#endif
