/* The gradient of attention on sm_90's own tensor cores. */
#ifndef MFK_CUDA_ATTENTION_HOPPER_H
#define MFK_CUDA_ATTENTION_HOPPER_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernels do it; else why gets a phrase. Shapes alone are looked at, unless pointers is
 * set: then their alignment as well. */
bool mfk_cuda_hopper_can(const struct mfk_device *d, const struct mfk_attention *a, bool pointers,
			 const char **why);
size_t mfk_cuda_hopper_scratch(const struct mfk_attention *a);
void mfk_cuda_hopper_backward(struct mfk_ctx *c, const struct mfk_attention *a);

#ifdef __cplusplus
}
#endif

#endif
