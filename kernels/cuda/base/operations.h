/* The operations of kernels/kernels.h. Each is defined in a file of its name or family, in one of
 * the folders next to this one. */
#ifndef MFK_CUDA_OPERATIONS_H
#define MFK_CUDA_OPERATIONS_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OP(name) __typeof__(*((struct mfk_ops *)0)->name) mfk_cuda_##name;
MFK_OPS(OP)
#undef OP

#ifdef __cplusplus
}
#endif

#endif
