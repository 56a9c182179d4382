/* Sizes of Megatron's tensors (dim.h), computed from a run's arguments, and the check that tensors
 * have them. HF views, Megatron views and the trainer build on these. */
#ifndef MFS_CKPT_DIMS_H
#define MFS_CKPT_DIMS_H

#include <stdint.h>

#include "formats/args/megatron_args.h"
#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/dim.h"

/* Width of a Mamba mixer's convolution, for which Megatron has no argument (mamba_mixer.py:
 * d_conv). */
#define MFS_MAMBA_KERNEL 4

/* padded: rows of the embedding. A size that the arguments do not give is 0. A size that overflows
 * is UINT64_MAX, which no tensor has. MFS_DIM_NONE is 0. */
void mfs_dims(const struct mfs_megatron_args *a, uint64_t padded, uint64_t dims[MFS_DIM_COUNT]);

/* Rows of the embedding: args.padded_vocab_size if it is given, else the stored tensor's. */
uint64_t mfs_dims_padded_vocab(const struct mfs_ckpt *ckpt);

/*
 * The axes of a model tensor, by its name in ckpt.h. Axes that it does not have are MFS_DIM_NONE.
 * False: a GPTModel has no such tensor
 * (megatron/core/transformer/{attention,multi_latent_attention,mlp}.py, moe/).
 */
bool mfs_dims_of(const struct mfs_megatron_args *a, const char *name,
		 enum mfs_dim ret[MFS_PARAM_AXES]);

/* -EINVAL: a model tensor has another shape than the arguments say; the message gives argument,
 * tensor, expected and found shape. A tensor that mfs_dims_of() does not know may have any
 * shape. */
int mfs_dims_check(const struct mfs_ckpt *ckpt, const uint64_t dims[MFS_DIM_COUNT],
		   const struct mfs_global_tensor *t, struct mfs_error *err);

#endif
