/*
 * The update of a step: gradient norm, clipping, AdamW or SGD over the flat buffers.
 *
 * Sources: megatron/core/optimizer/optimizer.py: MixedPrecisionOptimizer.step, FP32Optimizer.step;
 * clip_grads.py: get_grad_norm_fp32, clip_grad_by_total_norm_fp32.
 */
#ifndef MFT_TRAINER_OPTIM_UPDATE_H
#define MFT_TRAINER_OPTIM_UPDATE_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "kernels/kernels.h"
#include "trainer/config/config.h"
#include "trainer/params/memory.h"
#include "trainer/params/params.h"
#include "trainer/optim/schedule.h"
#include "trainer/parallel/parallel.h"

struct mft_update;

/* Plans a few doubles of device memory, and what is offloaded of the host's: with a backend that is
 * there then, in params. Borrows everything. */
int mft_update_new(const struct mft_train_config *config, struct mft_params *params,
		   struct mft_memory *memory, const struct mfk_backend *backend,
		   struct mfk_device *device, const struct mft_parallel *parallel,
		   struct mft_update **ret, struct mfs_error *err);
void mft_update_free(struct mft_update *u);

/* Called before elements [first, first+count) of weights, main parameters and moments change: by
 * operations of ctx, or by the host when these are done. */
typedef void mft_update_fence(void *arg, struct mfk_ctx *ctx, uint64_t first, uint64_t count);

struct mft_update_step {
	uint64_t number; /* of Adam, from 1: it corrects the moments' bias */
	double lr, decoupled_lr, mup_lr, weight_decay;
	/* What the gradients were multiplied by in excess: the loss scale, and with per-token loss
	 * the step's tokens. */
	double grad_divisor;
	mft_update_fence *fence; /* NULL: none */
	void *fence_arg;
};

struct mft_update_result {
	double grad_norm; /* before clipping */
	bool not_finite;  /* a gradient is NaN or infinite */
	bool skipped;	  /* nothing is changed */
};

/* The norm of the gradients; waits for the context. *ret says whether an update is to be skipped:
 * with a loss scale, gradients that are not finite skip it. Without, Megatron updates with them. */
int mft_update_norm(struct mft_update *u, struct mfk_ctx *ctx, const struct mft_update_step *step,
		    struct mft_update_result *ret, struct mfs_error *err);
/* The update that `result` is of, unless it is skipped. It is submitted and not waited for, but for
 * what is offloaded. */
int mft_update_apply(struct mft_update *u, struct mfk_ctx *ctx, const struct mft_update_step *step,
		     const struct mft_update_result *result, struct mfs_error *err);

/* training/utils/common_utils.py: calc_params_l2_norm: of the main parameters, as they are now. */
int mft_update_params_norm(struct mft_update *u, struct mfk_ctx *ctx, double *ret,
			   struct mfs_error *err);
/* clip_grads.py: count_zeros_fp32: the gradients that are zero, before they are cleared. */
int mft_update_zeros(struct mft_update *u, struct mfk_ctx *ctx, double *ret, struct mfs_error *err);

#endif
