/* Products of groups on sm_90, of 16-bit elements. */
#ifndef MFK_CUDA_GEMM_GEMM_HOPPER_H
#define MFK_CUDA_GEMM_GEMM_HOPPER_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the device and the shape allow it; pointers and host_offsets are not looked at. */
bool mfk_cuda_gemm_hopper_can(const struct mfk_device *d, const struct mfk_gemm_grouped *a);
/* Whether the pointers do, too: all begin at 16 bytes. */
bool mfk_cuda_gemm_hopper_aligned(const struct mfk_gemm_grouped *a);
void mfk_cuda_gemm_hopper(struct mfk_ctx *c, const struct mfk_gemm_grouped *a);

#ifdef __cplusplus
}
#endif

#endif
