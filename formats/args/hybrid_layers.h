/*
 * Models whose layers are one sublayer each: the pattern of their letters (enum mfs_hybrid_kind).
 *
 * Sources: megatron/core/models/hybrid/hybrid_layer_allocation.py, until core 0.16
 * ssm/mamba_hybrid_layer_allocation.py. "|" ends a pipeline stage. The layers of multi-token
 * prediction follow a "/", once for each depth (core 0.17).
 */
#ifndef MFS_ARGS_HYBRID_LAYERS_H
#define MFS_ARGS_HYBRID_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"

/* A pattern, taken apart. */
struct mfs_hybrid_pattern {
	const char *letters; /* of the decoder's layers alone, in the arena */
	int64_t layers;	     /* their number */
	const char *mtp;     /* of one depth; "": no multi-token prediction */
	int64_t mtp_depths;
	const uint32_t *stages; /* [stage_count] layers of each part between "|", in the arena */
	uint32_t stage_count;
};

/* -EINVAL: a letter that Megatron does not have, or depths that differ; -ENOMEM. */
int mfs_hybrid_parse(const char *pattern, struct mfs_arena *arena, struct mfs_hybrid_pattern *ret,
		     struct mfs_error *err);

/* True if all stages have as many layers. */
bool mfs_hybrid_is_even(const struct mfs_hybrid_pattern *p);

/* True if attention (of any kind that a GPTModel has) and an MLP or experts take turns: two layers
 * are a block of a GPTModel, and so are those of a depth of multi-token prediction, which is like
 * the last block. */
bool mfs_hybrid_is_blocks(const struct mfs_hybrid_pattern *p);

/* The pattern that shares of attention and of MLPs give. Their sum is at most 1. NULL: -ENOMEM. */
const char *mfs_hybrid_from_ratios(int64_t layers, double attention, double mlp,
				   struct mfs_arena *arena);

/* [strlen(letters) / step], 1 where every step-th letter from first on is letter. NULL:
 * -ENOMEM. */
const uint8_t *mfs_hybrid_layers_of(const char *letters, char letter, size_t first, size_t step,
				    struct mfs_arena *arena);

#endif
