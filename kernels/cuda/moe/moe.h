/* Operations of mixtures of experts (kernels/kernels.h): which experts, whose rows, biases. */
#ifndef MFK_CUDA_MOE_H
#define MFK_CUDA_MOE_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

void mfk_cuda_route(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_cuda_route_backward(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_cuda_route_balance(struct mfk_ctx *c, const struct mfk_route *a);
void mfk_cuda_sinkhorn(struct mfk_ctx *c, const struct mfk_sinkhorn *a);
void mfk_cuda_balance_sum(struct mfk_ctx *c, const struct mfk_balance *a);
void mfk_cuda_balance_weigh(struct mfk_ctx *c, const struct mfk_balance *a);
void mfk_cuda_drop(struct mfk_ctx *c, const struct mfk_drop *a);
void mfk_cuda_dispatch(struct mfk_ctx *c, const struct mfk_dispatch *a);
void mfk_cuda_gather(struct mfk_ctx *c, const struct mfk_rows *a);
void mfk_cuda_combine(struct mfk_ctx *c, const struct mfk_rows *a);
void mfk_cuda_group_bias(struct mfk_ctx *c, const struct mfk_group_bias *a);
void mfk_cuda_group_bias_backward(struct mfk_ctx *c, const struct mfk_group_bias *a);
void mfk_cuda_balance_bias(struct mfk_ctx *c, float *bias, int32_t *totals, int64_t experts,
			   float rate);

#ifdef __cplusplus
}
#endif

#endif
