/*
 * Arguments of a run that change what its model computes, leave no trace in its tensors and have no
 * field in struct mfs_megatron_args. A HuggingFace model cannot express them, so such a run is
 * refused, and the message names the argument and its value.
 *
 * The list follows TransformerConfig and MLATransformerConfig of megatron-core 0.20
 * (transformer_config.py) and what training/argument_utils.py makes of the arguments. Arguments
 * that are in neither place do not change what the model is. They decide how something is computed
 * (kernels, fusions, types of intermediate results, FP8 and FP4 matrix products, recomputation,
 * communication), where it lies, or what training adds (dropout, jitter, auxiliary losses,
 * clipping, initial values).
 */
#ifndef MFS_ARGS_MEGATRON_FOREIGN_H
#define MFS_ARGS_MEGATRON_FOREIGN_H

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "formats/args/megatron_args.h"

/* Sets known's foreign and untrainable to the first such argument as "name (value)" in arena; NULL:
 * there is none. known: what has been read of the source so far. -ENOMEM. */
int mfs_megatron_foreign(const struct mfs_args_source *source, struct mfs_arena *arena,
			 struct mfs_megatron_args *known, struct mfs_error *err);

#endif
