/*
 * --step-batch-size-schedule "0:768 250B:1536": from so many tokens on, this global batch size; and
 * --rampup-batch-size 32 32 65000000, which is such a schedule, too.
 */
#ifndef MFT_TRAINER_CONFIG_BATCH_STEPS_H
#define MFT_TRAINER_CONFIG_BATCH_STEPS_H

#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "trainer/config/config.h"

/*
 * Pairs with spaces or commas between, sorted by threshold. Numbers may have a fraction, and K, M,
 * B or T after them (1e3 to 1e12). Thresholds are tokens; the result has samples (tokens /
 * seq_length). text NULL: none. -EINVAL: it is not such a list, does not begin at 0, or has a
 * threshold twice. Source: core/num_microbatches_calculator.py:
 * StepBatchsizeNumMicroBatchesCalculator.
 */
int mft_batch_steps_parse(const char *text, int64_t seq_length, struct mfs_arena *arena,
			  const struct mft_batch_step **ret, uint32_t *ret_count,
			  struct mfs_error *err);

/*
 * From start to end, by increments that are evenly spread over so many samples. Megatron's main
 * branch takes the flag and ignores it. -EINVAL: what RampupBatchsizeNumMicroBatchesCalculator of
 * core 0.12 refuses, or more than 2^13 increments.
 */
struct mft_batch_ramp {
	int64_t start, increment, samples, end;
};
int mft_batch_ramp_steps(const struct mft_batch_ramp *ramp, struct mfs_arena *arena,
			 const struct mft_batch_step **ret, uint32_t *ret_count,
			 struct mfs_error *err);

#endif
