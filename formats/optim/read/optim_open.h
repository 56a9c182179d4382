#ifndef MFS_OPTIM_READ_OPTIM_OPEN_H
#define MFS_OPTIM_READ_OPTIM_OPEN_H

#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/told.h"

/*
 * Opens an iteration directory with its state and its optimizer, from whichever of these it holds:
 * legacy Float16Optimizer, FP32Optimizer and distrib_optim.pt; torch_dist optimizer.state.* (normal
 * shapes, and the flattened ones of core 0.8-0.15), dp_reshardable and fully_sharded_bucket_space
 * buckets, dp_zero_gather_scatter; what FSDP runs save (torch_dcp, fsdp_dtensor). A checkpoint
 * without an optimizer is no error. On success each parameter has the same chunks' worth of exp_avg
 * and exp_avg_sq as it has elements (of an SGD run: of momentum_buffer, if it has momentum), and of
 * fp32 if mfs_optim_info()->has_main. -ENOTSUP: a form that is not read, or a save that is known to
 * be corrupt; the sentence says which.
 */
int mfs_optim_open(const char *dir, struct mfs_ckpt **ret, struct mfs_error *err);

/* Like mfs_optim_open(), where told (or NULL) says what a save without arguments is. Such a save
 * has no state and no optimizer here: its weights alone are read, with a warning. */
int mfs_optim_open_told(const char *dir, const struct mfs_ckpt_told *told, struct mfs_ckpt **ret,
			struct mfs_error *err);

#endif
