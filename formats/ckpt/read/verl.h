/*
 * Where verl keeps a model (verl/utils/checkpoint/megatron_checkpoint_manager.py): the run has
 * global_step_N/ACTOR/, and below that torch_dist's files, which have no arguments, and a
 * HuggingFace config. Where these lie depends on the release.
 */
#ifndef MFS_CKPT_READ_VERL_H
#define MFS_CKPT_READ_VERL_H

#include <stdbool.h>

#include "formats/base/error.h"

struct mfs_verl {
	const char *weights; /* folder of torch_dist's files: "actor/dist_ckpt" */
	const char *hf;	     /* folder of config.json: "actor/huggingface" */
	const char *optim;   /* folder of the optimizer's state; NULL: it is among the weights */
};

/* What of verl lies below dir, which may be a step or its actor. NULL: no .metadata does. */
const struct mfs_verl *mfs_verl_find(const char *dir);

/* True if the optimizer's state lies beside the weights. */
bool mfs_verl_has_optim(const char *dir, const struct mfs_verl *verl);

/* Says why nothing is found although dir is verl's: it saved HuggingFace files alone, or in the
 * form of its first releases. 0, and no sentence, if it is not. */
int mfs_verl_refuse(const char *dir, struct mfs_error *err);

#endif
