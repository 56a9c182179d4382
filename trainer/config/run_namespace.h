/*
 * The argparse.Namespace `args` of a run, pickled as Megatron pickles it, so that Megatron loads
 * what we save with --use-checkpoint-args, and our readers read it (formats/args/megatron_args.h).
 *
 * It has all attributes that Megatron's has after validate_args(), in the order of the table of
 * flags: numbers, texts and lists as Python's, element types as torch.bfloat16, enums as calls of
 * their classes. Ignored flags have the values that were given.
 */
#ifndef MFT_TRAINER_CONFIG_RUN_NAMESPACE_H
#define MFT_TRAINER_CONFIG_RUN_NAMESPACE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/torch/pickle_write.h"
#include "trainer/config/config.h"

/* What changes during a run. */
struct mft_namespace_extra {
	uint64_t iteration; /* that is saved; args.curr_iteration is one less */
	uint64_t consumed_train_samples, consumed_valid_samples, skipped_train_samples;
	/* ours, which Megatron does not look for (ckpt/run_progress.h); 0: not written */
	uint64_t sft_samples, sft_order;
};

/* Leaves one value more on the reader's stack. config is settled. extra may be NULL: a run that has
 * not begun. A value that cannot be written fails the writer (mfs_pickle_end()). -ENOMEM. */
int mft_train_namespace_write(struct mfs_pickle_writer *w, const struct mft_train_config *config,
			      const struct mft_namespace_extra *extra);

#endif
