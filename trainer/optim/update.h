/*
 * The update of a step: gradient norm, clipping, AdamW or SGD over the flat buffers.
 *
 * Sources: megatron/core/optimizer/optimizer.py: MixedPrecisionOptimizer.step, FP32Optimizer.step;
 * clip_grads.py: get_grad_norm_fp32, clip_grad_by_total_norm_fp32.
 */
#ifndef MFS_TRAINER_OPTIM_UPDATE_H
#define MFS_TRAINER_OPTIM_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/params/params.h"
#include "trainer/optim/schedule.h"
#include "trainer/base/memory.h"
#include "trainer/parallel/parallel.h"

struct mfs_update;

/* Plans a few doubles of device memory, and what is offloaded of the host's: with a backend that is
 * there then, in params. Borrows everything. */
int mfs_update_new(const struct mfs_train_config *config, struct mfs_params *params,
		   struct mfs_memory *memory, const struct mfk_backend *backend,
		   struct mfk_device *device, const struct mfs_parallel *parallel,
		   struct mfs_update **ret, struct mfs_error *err);
void mfs_update_free(struct mfs_update *u);

/* Called before elements [first, first+count) of weights, main parameters and moments change: by
 * operations of ctx, or by the host when these are done. */
typedef void mfs_update_fence(void *arg, struct mfk_ctx *ctx, uint64_t first, uint64_t count);

struct mfs_update_step {
	uint64_t number; /* of Adam, from 1: it corrects the moments' bias */
	double lr, decoupled_lr, mup_lr, weight_decay;
	/* What the gradients were multiplied by in excess: the loss scale, and with per-token loss
	 * the step's tokens. */
	double grad_divisor;
	mfs_update_fence *fence; /* NULL: none */
	void *fence_arg;
};

struct mfs_update_result {
	double grad_norm; /* before clipping */
	bool not_finite;  /* a gradient is NaN or infinite */
	bool skipped;	  /* nothing is changed */
};

/* The norm of the gradients; waits for the context. *ret says whether an update is to be skipped:
 * with a loss scale, gradients that are not finite skip it. Without, Megatron updates with them. */
int mfs_update_norm(struct mfs_update *u, struct mfk_ctx *ctx, const struct mfs_update_step *step,
		    struct mfs_update_result *ret, struct mfs_error *err);
/* The update that `result` is of, unless it is skipped. It is submitted and not waited for, but for
 * what is offloaded. */
int mfs_update_apply(struct mfs_update *u, struct mfk_ctx *ctx, const struct mfs_update_step *step,
		     const struct mfs_update_result *result, struct mfs_error *err);

/* training/utils/common_utils.py: calc_params_l2_norm: of the main parameters, as they are now. */
int mfs_update_params_norm(struct mfs_update *u, struct mfk_ctx *ctx, double *ret,
			   struct mfs_error *err);
/* clip_grads.py: count_zeros_fp32: the gradients that are zero, before they are cleared. */
int mfs_update_zeros(struct mfs_update *u, struct mfk_ctx *ctx, double *ret, struct mfs_error *err);

#endif
