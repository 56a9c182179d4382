/* Text that a model goes on with, from the arguments to what is printed. */
#ifndef MFT_TRAINER_LOOP_GENERATE_RUN_H
#define MFT_TRAINER_LOOP_GENERATE_RUN_H

#include "trainer/config/config.h"
#include "trainer/parallel/launch.h"

/* --generate. Returns an exit code. config is not settled: the checkpoint has a word in it. */
int mft_generate(struct mft_train_config *config, const struct mft_launch *launch);

#endif
