/*
 * What processes that have the same parameters send each other: gradients are added up before an
 * update, and with the distributed optimizer weights are gathered after it, bucket by bucket
 * (trainer/params/buckets.h).
 *
 * With --overlap-grad-reduce that is submitted to a context of its own: a bucket's gradients are
 * added up as soon as backward has the last of them, while it goes on. With --overlap-param-gather
 * all buckets are gathered while the next forward runs, which waits for a bucket when it comes to
 * it. Results have the same bits.
 *
 * With --num-distributed-optimizer-instances a bucket's gradients are added up in an instance, and
 * what a process owns of them across the instances. Its weights come from its instance.
 *
 * What FSDP divides is gathered and added up unit by unit, in each pass: windows.h.
 *
 * Sources: megatron/core/distributed/param_and_grad_buffer.py: start_grad_sync, start_param_sync;
 * core/distributed/distributed_data_parallel.py: _make_backward_post_hook, _make_forward_pre_hook;
 * core/distributed/finalize_model_grads.py.
 */
#ifndef MFT_TRAINER_OPTIM_SYNC_H
#define MFT_TRAINER_OPTIM_SYNC_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/model/net.h"
#include "trainer/params/memory.h"
#include "trainer/params/params.h"
#include "trainer/parallel/parallel.h"

struct mft_sync;

/* Plans what FSDP needs (trainer/optim/windows.h). Borrows everything. */
int mft_sync_new(const struct mft_train_config *config, struct mft_params *params,
		 struct mft_memory *memory, const struct mfk_backend *backend,
		 struct mfk_device *device, const struct mft_parallel *parallel,
		 struct mft_sync **ret, struct mfs_error *err);
/* NULL is fine. */
void mft_sync_free(struct mft_sync *s);

/* What a net tells it: a net needs it where weights or gradients are divided. */
struct mft_net_hooks mft_sync_hooks(struct mft_sync *s);

/* Before a step's first microbatch. */
void mft_sync_begin(struct mft_sync *s);
/* Call it after a step's last microbatch. What is owned of the gradients is their sum then, for
 * what follows in ctx; the others may hold parts of sums, but what lies between parameters stays
 * zero. */
void mft_sync_reduce(struct mft_sync *s, struct mfk_ctx *ctx);
/* Call it after an update, in ctx, of what is owned: it gathers the others' weights. */
void mft_sync_gather(struct mft_sync *s, struct mfk_ctx *ctx);
/* What follows in ctx may read all weights. */
void mft_sync_await(struct mft_sync *s, struct mfk_ctx *ctx);

#endif
