/*
 * A distributed optimizer's state as one pickled dict (distrib_optim.pt, and dp_zero_gather_scatter
 * of torch_dist): {i: {(param dtype, grad dtype): tensors}}. i is the number of the buffer.
 *
 * Source: megatron/core/optimizer/distrib_optimizer.py: get_parameter_state_dp_zero.
 */
#ifndef MFS_OPTIM_READ_GATHERED_STATE_H
#define MFS_OPTIM_READ_GATHERED_STATE_H

#include "formats/torch/torch_file.h"

/* True if there are buffers of 8-bit parameters. */
bool mfs_gathered_has_fp8(const struct mfs_pickle *doc, mfs_value state);

/* The dict of tensors of buffer index, whose parameters are of dtype. where is for messages.
 * dtype is uint8 for 8-bit parameters. */
int mfs_gathered_buffer(const struct mfs_pickle *doc, mfs_value state, uint32_t index,
			enum mfs_dtype dtype, const char *where, mfs_value *ret,
			struct mfs_error *err);

/* Sets *ret to true if buckets are joined into 'numel_unpadded' elements for each buffer (core >=
 * 0.7). -ENOTSUP: the layout is older than 2023-12. */
int mfs_gathered_joined(const struct mfs_pickle *doc, mfs_value state, const char *where, bool *ret,
			struct mfs_error *err);

/* Reads a contiguous tensor of one axis. */
int mfs_gathered_tensor(const struct mfs_torch_file *f, mfs_value v, const char *where,
			struct mfs_torch_tensor *ret, struct mfs_error *err);

#endif
