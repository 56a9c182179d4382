/*
 * Windows: device memory in which units (trainer/params/params.h) lie whole for a while, with FSDP.
 *
 * A process has its slices of weights and gradients alone (trainer/params/buckets.h). Before a pass
 * uses a unit, the unit's weights are gathered into a window, where they stay until another unit
 * needs it. Gradients of a unit are written into a window of theirs; after the unit's backward they
 * are added up over the processes, and each adds what it owns to what it has. A window serves one
 * unit after the other: layers share one, or two if communication runs in parallel with the passes.
 * Then the next unit's weights are gathered into one while the pass reads the other, and gradients
 * of one are added up while the pass writes the next one's.
 *
 * All processes of a group come to the same units in the same order.
 *
 * Sources: megatron/core/distributed/fsdp/src/megatron_fsdp/megatron_fsdp.py: _register_fsdp_hooks;
 * param_and_grad_buffer.py: AllGatherPipeline, GradReducePipeline.
 */
#ifndef MFT_TRAINER_OPTIM_WINDOWS_H
#define MFT_TRAINER_OPTIM_WINDOWS_H

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/model/net.h"
#include "trainer/params/memory.h"
#include "trainer/params/params.h"
#include "trainer/parallel/parallel.h"

struct mft_windows;

/* Plans them. Without FSDP there are none, and the functions below do nothing. side: the context
 * that communication is submitted to; NULL: the passes' context. Borrows everything. */
int mft_windows_new(const struct mft_train_config *config, struct mft_params *params,
		    struct mft_memory *memory, const struct mfk_backend *backend,
		    struct mfk_device *device, const struct mft_parallel *parallel,
		    struct mfk_ctx *side, struct mft_windows **ret, struct mfs_error *err);
/* Call it when the context `side` is done. w may be NULL. */
void mft_windows_free(struct mft_windows *w);

/* The functions of struct mft_net_hooks. Between the two calls the unit's weights and gradients are
 * where the net looks for them. */
void mft_windows_begins(struct mft_windows *w, struct mfk_ctx *ctx, const struct mft_net_visit *v);
void mft_windows_ends(struct mft_windows *w, struct mfk_ctx *ctx, const struct mft_net_visit *v);

/* Before a step's first microbatch: gradients are anew. */
void mft_windows_begin_step(struct mft_windows *w);
/* After a step's last unit: what follows in ctx may read the sums, and change weights. */
void mft_windows_end_step(struct mft_windows *w, struct mfk_ctx *ctx);
/* After an update that ctx has: gathered weights are no longer the model's. The first ones of the
 * next pass are gathered. */
void mft_windows_updated(struct mft_windows *w, struct mfk_ctx *ctx);

#endif
