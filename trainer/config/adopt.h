/* --use-checkpoint-args: the model and the tokenizer of a checkpoint in place of arguments. */
#ifndef MFT_TRAINER_CONFIG_ADOPT_H
#define MFT_TRAINER_CONFIG_ADOPT_H

#include "formats/base/error.h"
#include "formats/torch/pickle.h"
#include "trainer/config/config.h"

struct mft_adopted {
	const struct mfs_megatron_args *model;
	/* The Namespace it comes from, for what the model's arguments do not have; doc NULL: an HF
	 * directory. */
	const struct mfs_pickle *doc;
	mfs_value args;
	const char *dir; /* of an HF directory: where its tokenizer is */
};

/*
 * Between parse and settle. Of a Megatron checkpoint, what Megatron takes is taken even where the
 * command line says something else, as Megatron does (checkpointing.py: load_args_from_checkpoint,
 * force=True); other arguments of the model and those without force only where nothing was given.
 * Of an HF directory everything only where nothing was given; --seq-length must be. Texts are
 * copied. -ENOMEM. A config that was not parsed but filled by hand takes the model as it is, its
 * texts borrowed.
 */
int mft_train_config_adopt(struct mft_train_config *config, const struct mft_adopted *from,
			   struct mfs_error *err);

#endif
