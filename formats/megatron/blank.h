/*
 * A model that is in no file, as a checkpoint: the global tensors that a GPTModel of given
 * arguments has, which read as zeros. What works on checkpoints (ranks' lists, parameter groups,
 * the files of a torch_dist save) works on it.
 */
#ifndef MFS_MEGATRON_BLANK_H
#define MFS_MEGATRON_BLANK_H

#include "formats/ckpt/ckpt.h"

struct mfs_blank_options {
	uint64_t vocab; /* rows of the embedding, padded */
	/* Element types of weights and of the optimizer's states; MFS_DTYPE_NONE: there is no such
	 * state. Buffers are fp32. */
	enum mfs_dtype dtype[MFS_STATE_COUNT];
	/* Whether a parameter has a state of the optimizer; NULL: each has each. */
	bool (*has)(void *arg, const char *name, unsigned ndim, enum mfs_state state);
	void *arg;
};

/* args is copied; what it points to stays the caller's, and must outlive the checkpoint. -EINVAL: a
 * size is not given, or overflows; the message names the tensor and the arguments. */
int mfs_blank_ckpt(const struct mfs_megatron_args *args, const struct mfs_blank_options *options,
		   struct mfs_ckpt **ret, struct mfs_error *err);

#endif
