/* Fields of a config that follow from one flag each. */
#ifndef MFS_TRAINER_CONFIG_FILL_H
#define MFS_TRAINER_CONFIG_FILL_H

#include "formats/base/error.h"
#include "trainer/config/config.h"

/* mfs_train_config_parse() calls it, and again who has changed flags since. */
int mfs_train_config_fill(struct mfs_train_config *config, struct mfs_error *err);

#endif
