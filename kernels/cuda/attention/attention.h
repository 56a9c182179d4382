/* Attention (kernels/kernels.h), and which of its kernels runs. */
#ifndef MFK_CUDA_ATTENTION_H
#define MFK_CUDA_ATTENTION_H

#include "kernels/cuda/base/operations.h"

#ifdef __cplusplus
extern "C" {
#endif

/* simple.cu: any shape, with dropout, without tensor cores. */
size_t mfk_cuda_attention_simple_scratch(const struct mfk_attention *a, bool backward);
void mfk_cuda_attention_simple(struct mfk_ctx *c, const struct mfk_attention *a);
void mfk_cuda_attention_simple_backward(struct mfk_ctx *c, const struct mfk_attention *a);

/* For logs and tests: "hopper", "cudnn", "flash", "simple" or "none". why, of MFK_WHY bytes: why
 * those before it were not taken. */
const char *mfk_cuda_attention_choice(const struct mfk_device *d, const struct mfk_attention *a,
				      bool backward, char *why);

#ifdef __cplusplus
}
#endif

#endif
