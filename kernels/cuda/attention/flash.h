/* The flash attention of flash.cuh, for each 16-bit type. */
#ifndef MFK_CUDA_ATTENTION_FLASH_H
#define MFK_CUDA_ATTENTION_FLASH_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the kernels do it; else why gets a phrase. Shapes alone are looked at, unless pointers is
 * set: then their alignment as well. */
bool mfk_cuda_flash_can(const struct mfk_device *d, const struct mfk_attention *a, bool backward,
			bool pointers, const char **why);
size_t mfk_cuda_flash_scratch(const struct mfk_attention *a, bool backward);
void mfk_cuda_flash(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_cuda_flash_backward(struct mfk_ctx *c, const struct mfk_attention *a);

#ifdef __cplusplus
}
#endif

#endif
