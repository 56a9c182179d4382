/* The table of the CUDA backend, the plugin's one symbol. */
#include "kernels/cuda/base/operations.h"

static const struct mfk_ops ops = {
#define OP(name) .name = mfk_cuda_##name,
	MFK_OPS(OP)
#undef OP
};

const struct mfk_backend mfk_cuda_backend = {
	.name = "cuda",
	.device = &mfk_cuda_device,
	.ops = &ops,
	.comm = &mfk_cuda_comm,
};
