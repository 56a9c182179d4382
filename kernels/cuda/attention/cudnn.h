/* Attention by cuDNN, where its library is. */
#ifndef MFK_CUDA_ATTENTION_CUDNN_H
#define MFK_CUDA_ATTENTION_CUDNN_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A compiled computation of one shape, in one direction. It is compiled when a shape is first asked
 * for, which takes up to seconds, and kept for the process. NULL: cuDNN does not do it, and why, of
 * MFK_WHY bytes, says so. atomics: backward may add to dq in any order, which is faster, and not
 * the same twice.
 */
struct mfk_cudnn_plan;

const struct mfk_cudnn_plan *mfk_cudnn_plan(const struct mfk_device *d,
					    const struct mfk_attention *a, bool backward,
					    bool atomics, char *why);
size_t mfk_cudnn_scratch(const struct mfk_cudnn_plan *p);
void mfk_cudnn_run(struct mfk_ctx *c, const struct mfk_cudnn_plan *p,
		   const struct mfk_attention *a);
/* 91400 for 9.14.0; 0: there is none. */
size_t mfk_cudnn_version(void);

#ifdef __cplusplus
}
#endif

#endif
