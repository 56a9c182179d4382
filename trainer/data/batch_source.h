/* Where a step's microbatches come from: a loader's data, or rows that a run has made itself. */
#ifndef MFT_TRAINER_DATA_BATCH_SOURCE_H
#define MFT_TRAINER_DATA_BATCH_SOURCE_H

#include "formats/base/error.h"

struct mft_batch;

struct mft_batch_source_ops {
	/* The next microbatch, which is the caller's until he gives it back; he has two at a time
	 * at most. -ENODATA: there is no more. */
	int (*next)(void *arg, const struct mft_batch **ret, struct mfs_error *err);
	void (*give_back)(void *arg, const struct mft_batch *b);
};

struct mft_batch_source {
	const struct mft_batch_source_ops *ops;
	void *arg;
};

#endif
