/*
 * Where verl keeps a model (verl/utils/checkpoint/megatron_checkpoint_manager.py): the run has
 * global_step_N/ACTOR/, and below that torch_dist's files, which have no arguments, and a
 * HuggingFace config. Where these lie depends on the release.
 */
#ifndef MFS_CKPT_READ_VERL_H
#define MFS_CKPT_READ_VERL_H

#include "formats/base/error.h"

/* Says why nothing is found although dir is verl's: it saved HuggingFace files alone, or in the
 * form of its first releases. 0, and no sentence, if it is not. */
int mfs_verl_refuse(const char *dir, struct mfs_error *err);

#endif
