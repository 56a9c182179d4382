/* The kinds of MLPs. */
#ifndef MFT_TRAINER_MODEL_MLP_MLP_H
#define MFT_TRAINER_MODEL_MLP_MLP_H

#include "formats/base/error.h"
#include "trainer/model/base/part.h"

extern const struct mft_part_kind mft_part_mlp; /* mlp.c */
extern const struct mft_part_kind mft_part_moe; /* moe.c */

/* Makes the context in which experts' processes communicate in parallel with the passes. Call it
 * after mft_memory_place(). */
int mft_experts_side_begin(struct mft_net *net, struct mfs_error *err);

#endif
