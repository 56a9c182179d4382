/* Copies a few bytes to the host by a kernel, so that they do not wait for other streams' copies
 * (device.c). */
#include "kernels/cuda/base/context.h"

#define THREADS 256

template <typename T>
static __global__ void __launch_bounds__(THREADS) copy_kernel(T *to, const T *from, size_t count)
{
	for (size_t i = threadIdx.x; i < count; i += THREADS)
		to[i] = from[i];
}

void mfk_cuda_copy_small(struct mfk_ctx *c, void *to, const void *from, size_t bytes)
{
	uintptr_t both =
		reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;

	if (both % sizeof(uint64_t) == 0)
		copy_kernel<<<1, THREADS, 0, c->stream>>>(static_cast<uint64_t *>(to),
							  static_cast<const uint64_t *>(from),
							  bytes / sizeof(uint64_t));
	else
		copy_kernel<<<1, THREADS, 0, c->stream>>>(
			static_cast<uint8_t *>(to), static_cast<const uint8_t *>(from), bytes);
	mfk_cuda_end(c, "a copy from the GPU");
}
