/* Sizes of Megatron's tensors (family.h: enum mfs_dim) from a run's arguments. */
#ifndef MFS_MODEL_DIMS_H
#define MFS_MODEL_DIMS_H

#include <stdint.h>

#include "formats/megatron_args.h"
#include "formats/model/family.h"

/* padded: rows of the embedding. A size that is unset is 0; one that overflows is UINT64_MAX, which no
 * tensor has. MFS_DIM_NONE is 0. */
void mfs_dims(const struct mfs_megatron_args *a, uint64_t padded, uint64_t dims[MFS_DIM_COUNT]);

#endif
