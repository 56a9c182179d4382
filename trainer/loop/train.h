/* A training run, from its arguments to its last checkpoint. */
#ifndef MFT_TRAINER_LOOP_TRAIN_H
#define MFT_TRAINER_LOOP_TRAIN_H

#include "trainer/config/config.h"
#include "trainer/parallel/launch.h"

/* Exit codes of mcorefs-train. */
enum mft_train_exit {
	MFT_TRAIN_OK = 0,     /* also: stopped by a signal after a save */
	MFT_TRAIN_FAILED = 1, /* what is wrong has been logged */
	MFT_TRAIN_USAGE = 2,
	/* A loss or gradient is not finite (rerun_state_machine.py:
	 * EXIT_CODE_FAILED_ON_RESULT_VALIDATION). */
	MFT_TRAIN_REJECTED = 17,
};

/* Trains, or with dry_run says what memory it would need. Returns an exit code. config may change:
 * what a checkpoint says of the model goes into it. */
int mft_train(struct mft_train_config *config, const struct mft_launch *launch);

#endif
