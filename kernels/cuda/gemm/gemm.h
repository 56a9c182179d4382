/* Products of matrices (kernels/kernels.h). */
#ifndef MFK_CUDA_GEMM_H
#define MFK_CUDA_GEMM_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

void mfk_cuda_gemm(struct mfk_ctx *c, const struct mfk_gemm *a);
void mfk_cuda_gemm_grouped(struct mfk_ctx *c, const struct mfk_gemm_grouped *a);
bool mfk_cuda_gemm_grouped_wants_host(struct mfk_device *d, const struct mfk_gemm_grouped *a);
void mfk_cuda_gemm_act(struct mfk_ctx *c, const struct mfk_gemm *g, const struct mfk_act *a);
void mfk_cuda_gemm_act_backward(struct mfk_ctx *c, const struct mfk_gemm *g,
				const struct mfk_act *a);

#ifdef __cplusplus
}
#endif

#endif
