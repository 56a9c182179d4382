/*
 * Batch sizes by consumed samples, and how many iterations a run has.
 *
 * Sources: megatron/core/num_microbatches_calculator.py; megatron/training/training.py:
 * update_train_iters.
 */
#ifndef MFS_TRAINER_CONFIG_BATCHES_H
#define MFS_TRAINER_CONFIG_BATCHES_H

#include "trainer/config/config.h"

/* Samples of the step that begins after so many consumed ones. */
uint64_t mfs_schedule_batch(const struct mfs_train_config *config, uint64_t consumed);
/* Iterations of the run, if train_samples says its length: those that consume them. With a schedule
 * of batch sizes the last one may go beyond; without, what does not fill a batch is left. */
uint64_t mfs_schedule_iterations(const struct mfs_train_config *config);

#endif
