/* Where a run stands, apart from its tensors: what a checkpoint keeps in its common state. */
#ifndef MFS_TRAINER_CKPT_PROGRESS_H
#define MFS_TRAINER_CKPT_PROGRESS_H

#include <stdint.h>

#include "trainer/optim/schedule.h"

struct mfs_progress {
	uint64_t iteration; /* updates made, skipped ones included */
	uint64_t consumed_train_samples, consumed_valid_samples, skipped_train_samples;
	uint64_t optimizer_step; /* of Adam: updates made */
	double floating_point_operations;
	struct mfs_schedule schedule;
	struct mfs_loss_scaler scaler;
};

/* What checkpoints call the styles of a schedule, by enum mfs_lr_decay and enum mfs_wd_incr. NULL
 * ends each. */
extern const char *const mfs_lr_decay_names[], *const mfs_wd_incr_names[];

#endif
