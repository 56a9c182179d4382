/*
 * Batch sizes by consumed samples, and how many iterations a run has.
 *
 * Sources: megatron/core/num_microbatches_calculator.py; megatron/training/training.py:
 * update_train_iters.
 */
#ifndef MFT_TRAINER_CONFIG_BATCH_SCHEDULE_H
#define MFT_TRAINER_CONFIG_BATCH_SCHEDULE_H

#include "trainer/config/config.h"

/* Samples that the step is asked for which begins after so many consumed ones. */
uint64_t mft_schedule_global_batch(const struct mft_train_config *config, uint64_t consumed);
/* Those that it trains with: with decrease_batch_size_if_needed whole microbatches alone. The rest
 * counts as skipped. */
uint64_t mft_schedule_batch(const struct mft_train_config *config, uint64_t consumed);
/* The number of iterations of the run, if train_samples gives its length: those that consume the
 * samples. With a schedule of batch sizes the last iteration may exceed them. Without one, or after
 * a ramp, samples that do not fill a batch are left. */
uint64_t mft_schedule_iterations(const struct mft_train_config *config);
/* True of --iterations-to-skip: 1 is the first one. */
bool mft_schedule_skips(const struct mft_train_config *config, uint64_t iteration);

#endif
