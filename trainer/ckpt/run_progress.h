/* Where a run stands, apart from its tensors: what a checkpoint keeps in its common state. */
#ifndef MFT_TRAINER_CKPT_RUN_PROGRESS_H
#define MFT_TRAINER_CKPT_RUN_PROGRESS_H

#include <stdint.h>

#include "trainer/optim/schedule.h"

struct mft_progress {
	uint64_t iteration; /* updates made, skipped ones included */
	uint64_t consumed_train_samples, consumed_valid_samples, skipped_train_samples;
	uint64_t sft_samples;	 /* with --sft: of an epoch; 0: not known */
	uint64_t sft_order;	 /* mft_sft_blend_order() of packed or blended ones; 0: not known */
	uint64_t optimizer_step; /* of Adam: updates made */
	double floating_point_operations;
	struct mft_schedule schedule;
	struct mft_loss_scaler scaler;
};

/* What checkpoints call the styles of a schedule, by enum mft_lr_decay_style and enum mft_wd_incr.
 * NULL ends each. */
extern const char *const mft_lr_decay_names[], *const mft_wd_incr_names[];

#endif
