/* The kinds of MLPs. */
#ifndef MFS_TRAINER_MODEL_MLP_MLP_H
#define MFS_TRAINER_MODEL_MLP_MLP_H

#include "formats/base/error.h"
#include "trainer/model/base/part.h"

extern const struct mfs_part_kind mfs_part_mlp; /* mlp.c */
extern const struct mfs_part_kind mfs_part_moe; /* moe.c */

/* Makes the context in which experts' processes communicate in parallel with the passes. Call it
 * after mfs_memory_place(). */
int mfs_experts_beside_begin(struct mfs_net *net, struct mfs_error *err);

#endif
