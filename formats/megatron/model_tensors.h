/*
 * The tensors that a GPTModel of given arguments has, by their names in ckpt.h. Order of
 * registration is rank.h's, shapes are ckpt/dims.h's.
 *
 * Sources: megatron/core/models/gpt/{gpt_model,gpt_layer_specs}.py,
 * transformer/{attention,multi_latent_attention,mlp,moe/moe_layer,moe/router}.py.
 */
#ifndef MFS_MEGATRON_MODEL_TENSORS_H
#define MFS_MEGATRON_MODEL_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/args/megatron_args.h"

struct mfs_model_tensor {
	const char *name; /* until the function returns */
	int32_t layer, expert;
	/* Models of all releases have it. Without: the newest release's have it, and no checkpoint
	 * is refused for its absence. */
	bool certain;
};

/* Calls each for every tensor. Stops when it returns non-zero, and returns that value. */
int mfs_model_tensors(const struct mfs_megatron_args *a,
		      int (*each)(void *arg, const struct mfs_model_tensor *t), void *arg);

#endif
