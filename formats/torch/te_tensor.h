/*
 * Weights that Transformer Engine keeps in 8 bits (Megatron's --fp8-param-gather), as they stand in
 * a pickled model: objects that are made of a tensor of bytes, one of scales, and the type that the
 * weight has in computations (pytorch/tensor/float8_tensor.py and float8_blockwise_tensor.py,
 * __reduce_ex__()). A weight is the 8-bit float times its scale, rounded to that type.
 *
 *   Float8Tensor            one scale. With it: recipes delayed and tensorwise
 *   Float8BlockwiseQTensor  a scale for each block of 128 rows and 128 columns, rows of scales
 *                           padded to a multiple of 4
 */
#ifndef MFS_TORCH_TE_TENSOR_H
#define MFS_TORCH_TE_TENSOR_H

#include <stdbool.h>

#include "formats/torch/torch_file.h"

struct mfs_te_tensor {
	enum mfs_dtype dtype;	       /* of the weight: float32, bfloat16, float16 */
	struct mfs_torch_tensor data;  /* [rows, cols] of uint8, row after row: float8_e4m3fn */
	struct mfs_torch_tensor scale; /* float32, [blocks of rows, at least blocks of cols] */
	uint64_t block_rows, block_cols;
	bool transposed; /* the weight is the transpose of data */
};

/* True if v is an object of Transformer Engine in place of a tensor, without checking it further;
 * those that cannot be read are too. */
bool mfs_te_is_tensor(const struct mfs_torch_file *f, mfs_value v);

/* -ENOTSUP: another class, which the message names, another type of 8-bit floats, blocks of one
 * row. -EINVAL: arguments that do not fit one another. */
int mfs_te_tensor(const struct mfs_torch_file *f, mfs_value v, struct mfs_te_tensor *ret,
		  struct mfs_error *err);

#endif
