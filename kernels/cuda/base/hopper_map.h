/* Maps of tensors, by which sm_90's tensor memory accelerator copies. */
#ifndef MFK_CUDA_HOPPER_MAP_H
#define MFK_CUDA_HOPPER_MAP_H

#include <cuda.h>

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor [planes, rows, cols], of which boxes of [box_rows, 128 bytes] are copied. ld and stride,
 * in elements: from row to row, and from plane to plane. */
struct mfk_cuda_matrix {
	enum mfk_dtype type;
	const void *p;
	int64_t cols, rows, planes, ld, stride;
	int box_rows;
};

/* Encodes m for copies by the tensor memory accelerator. False: that failed, and so has the
 * context. */
bool mfk_cuda_map(struct mfk_ctx *c, const struct mfk_cuda_matrix *m, CUtensorMap *ret);

#ifdef __cplusplus
}
#endif

#endif
