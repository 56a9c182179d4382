/*
 * What processes that have the same parameters say to each other: gradients are added up before an
 * update, and with the distributed optimizer weights are gathered behind it, bucket by bucket
 * (trainer/model/buckets.h).
 *
 * Sources: megatron/core/distributed/param_and_grad_buffer.py: start_grad_sync, start_param_sync;
 * core/distributed/finalize_model_grads.py.
 */
#ifndef MFS_TRAINER_OPTIM_SYNC_H
#define MFS_TRAINER_OPTIM_SYNC_H

#include "kernels/kernels.h"
#include "trainer/model/params.h"
#include "trainer/parallel/parallel.h"

struct mfs_sync {
	const struct mfs_params *params;
	const struct mfs_parallel *parallel;
};

/* Behind a step's last microbatch. What is owned of the gradients is their sum then; the others
 * may hold parts of sums, but what lies between parameters stays zero. */
void mfs_sync_reduce(const struct mfs_sync *s, struct mfk_ctx *ctx);
/* Behind an update of what is owned: weights are whole. */
void mfs_sync_gather(const struct mfs_sync *s, struct mfk_ctx *ctx);

#endif
