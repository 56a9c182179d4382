/* Fields of a config that follow from one flag each. */
#ifndef MFT_TRAINER_CONFIG_FILL_H
#define MFT_TRAINER_CONFIG_FILL_H

#include "formats/base/error.h"
#include "trainer/config/config.h"

/* mft_train_config_parse() calls it, and again who has changed flags since. */
int mft_train_config_fill(struct mft_train_config *config, struct mfs_error *err);

#endif
