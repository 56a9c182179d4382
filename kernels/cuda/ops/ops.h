/* Operations by rows and by elements, in files of their names or families, and what others use of
 * them. */
#ifndef MFK_CUDA_OPS_H
#define MFK_CUDA_OPS_H

#include "kernels/cuda/base/operations.h"

#ifdef __cplusplus
extern "C" {
#endif

/* elementwise.cu: c = beta c + bias + product, which is fp32 [m, n], rounded once. product NULL: it
 * is 0, a product over 0 elements. */
void mfk_cuda_gemm_bias(struct mfk_ctx *c, const struct mfk_gemm *a, const float *product);

#ifdef __cplusplus
}
#endif

#endif
