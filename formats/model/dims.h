/* Sizes of Megatron's tensors (family.h: enum mfs_dim) from a run's arguments, and whether the
 * tensors have them: what views of either kind are built on. */
#ifndef MFS_MODEL_DIMS_H
#define MFS_MODEL_DIMS_H

#include <stdint.h>

#include "formats/ckpt/ckpt.h"
#include "formats/torch/megatron_args.h"
#include "formats/model/families/family.h"

/* padded: rows of the embedding. A size that is unset is 0; one that overflows is UINT64_MAX, which
 * no tensor has. MFS_DIM_NONE is 0. */
void mfs_dims(const struct mfs_megatron_args *a, uint64_t padded, uint64_t dims[MFS_DIM_COUNT]);

/* Rows of the embedding that the arguments say, or else those that it has. */
uint64_t mfs_dims_padded_vocab(const struct mfs_ckpt *ckpt);

/*
 * The axes of a tensor of the model by its name in ckpt.h; that of a vector's columns is
 * MFS_DIM_NONE. False: no tensor of a GPTModel
 * (megatron/core/transformer/{attention,multi_latent_attention,mlp}.py, moe/).
 */
bool mfs_dims_of(const struct mfs_megatron_args *a, const char *name, enum mfs_dim ret[2]);

/* -EINVAL: the shape of a tensor of the model is not what the arguments say (argument, tensor,
 * expected, found). What mfs_dims_of() does not know has any shape. */
int mfs_dims_check(const struct mfs_ckpt *ckpt, const uint64_t dims[MFS_DIM_COUNT],
		   const struct mfs_global_tensor *t, struct mfs_error *err);

#endif
