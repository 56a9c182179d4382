/*
 * What follows from arguments, and what they may not be: megatron/training/arguments.py:
 * validate_args, and what training.py and the tokenizer's builder put into args later.
 */
#ifndef MFT_TRAINER_CONFIG_SETTLE_H
#define MFT_TRAINER_CONFIG_SETTLE_H

#include <stdbool.h>

#include "formats/base/error.h"
#include "trainer/config/config.h"

/* Fills all fields of config. -EINVAL: arguments are missing or contradict each other; -ENOTSUP:
 * one is not supported, with what is nearest. After parse and adopt; a config that is
 * settled, or was not parsed but filled by hand, stays as it is. */
int mft_train_config_settle(struct mft_train_config *config, struct mfs_error *err);

/* Before that: whether a size of the model is missing that a checkpoint says. */
bool mft_train_config_lacks_model(const struct mft_train_config *config);

#endif
