/* --step-batch-size-schedule "0:768 250B:1536": from so many tokens on, this global batch size. */
#ifndef MFS_TRAINER_CONFIG_BATCH_STEPS_H
#define MFS_TRAINER_CONFIG_BATCH_STEPS_H

#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "trainer/config/config.h"

/*
 * Pairs with spaces or commas between, sorted by threshold. Numbers may have a fraction and K, M, B
 * or T behind (1e3 to 1e12). Thresholds are tokens; the result has samples (tokens / seq_length).
 * text NULL: none. -EINVAL: it is not such a list, does not begin at 0, or has a threshold twice.
 * Source: core/num_microbatches_calculator.py: StepBatchsizeNumMicroBatchesCalculator.
 */
int mfs_batch_steps_parse(const char *text, int64_t seq_length, struct mfs_arena *arena,
			  const struct mfs_batch_step **ret, uint32_t *ret_count,
			  struct mfs_error *err);

#endif
