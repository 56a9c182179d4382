/*
 * Models whose layers are one sublayer each: the pattern of their letters (enum mfs_hybrid_kind).
 *
 * Sources: megatron/core/models/hybrid/hybrid_layer_allocation.py, until core 0.16
 * ssm/mamba_hybrid_layer_allocation.py. "|" ends a pipeline stage. The layers of multi-token
 * prediction follow a "/" (core 0.17).
 */
#ifndef MFS_ARGS_HYBRID_LAYERS_H
#define MFS_ARGS_HYBRID_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"

/*
 * The letters of the layers alone. *ret_even: false if stages are not alike. NULL: the pattern has
 * layers or multi-token prediction that are not known here, and *ret_rc is 0; or *ret_rc says why:
 * -EINVAL, a letter that Megatron does not have either, or another number of layers; -ENOMEM.
 */
const char *mfs_hybrid_layers(const char *pattern, int64_t layers, struct mfs_arena *arena,
			      bool *ret_even, int *ret_rc, struct mfs_error *err);

/* The pattern that shares of attention and of MLPs give. Their sum is at most 1. NULL: -ENOMEM. */
const char *mfs_hybrid_from_ratios(int64_t layers, double attention, double mlp,
				   struct mfs_arena *arena);

/* [layers], 1 where a layer has experts. NULL: -ENOMEM. */
const uint8_t *mfs_hybrid_moe_layers(const char *letters, struct mfs_arena *arena);

#endif
