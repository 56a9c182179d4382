/* Sums of columns: gradients of weights and biases, first by blocks of rows, then over the blocks.
 */
#ifndef MFK_CUDA_COLUMNS_CUH
#define MFK_CUDA_COLUMNS_CUH

#include "kernels/cuda/cuda_i.h"

/* to[cols] += sum over parts [count, cols], in the order of the parts. */
void mfk_cuda_add_columns(struct mfk_ctx *c, enum mfk_dtype type, void *to, const float *parts,
			  int64_t count, int64_t cols);

#endif
