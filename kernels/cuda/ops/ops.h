/* Operations by rows and by elements (kernels/kernels.h), in files of their names or families. */
#ifndef MFK_CUDA_OPS_H
#define MFK_CUDA_OPS_H

#include "kernels/cuda/base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

void mfk_cuda_bias_backward(struct mfk_ctx *c, enum mfk_dtype dtype, enum mfk_dtype grad, void *db,
			    const void *dy, int64_t rows, int64_t cols);
void mfk_cuda_norm(struct mfk_ctx *c, const struct mfk_norm *a);
void mfk_cuda_norm_backward(struct mfk_ctx *c, const struct mfk_norm_backward *a);
void mfk_cuda_qkv(struct mfk_ctx *c, const struct mfk_qkv *a);
void mfk_cuda_qkv_backward(struct mfk_ctx *c, const struct mfk_qkv *a);
void mfk_cuda_mla(struct mfk_ctx *c, const struct mfk_mla *a);
void mfk_cuda_mla_backward(struct mfk_ctx *c, const struct mfk_mla *a);
void mfk_cuda_act(struct mfk_ctx *c, const struct mfk_act *a);
void mfk_cuda_act_backward(struct mfk_ctx *c, const struct mfk_act *a);
void mfk_cuda_embedding(struct mfk_ctx *c, const struct mfk_embedding *a);
void mfk_cuda_embedding_backward(struct mfk_ctx *c, const struct mfk_embedding *a);
void mfk_cuda_cross_entropy(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_cuda_cross_entropy_part(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_cuda_cross_entropy_join(struct mfk_ctx *c, const struct mfk_cross_entropy *a);
void mfk_cuda_dropout(struct mfk_ctx *c, const struct mfk_dropout *a);
void mfk_cuda_dropout_backward(struct mfk_ctx *c, const struct mfk_dropout *a);
void mfk_cuda_add(struct mfk_ctx *c, enum mfk_dtype dtype, void *y, const void *a, const void *b,
		  int64_t count);
void mfk_cuda_scale(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, float by, int64_t count);
void mfk_cuda_cast(struct mfk_ctx *c, enum mfk_dtype to_type, void *to, enum mfk_dtype from_type,
		   const void *from, int64_t count);
void mfk_cuda_fill_normal(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count,
			  float mean, float std, uint64_t seed, uint64_t offset);
void mfk_cuda_fill(struct mfk_ctx *c, enum mfk_dtype dtype, void *x, int64_t count, float value);
void mfk_cuda_sum_squares(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			  double *sums);
void mfk_cuda_count_zeros(struct mfk_ctx *c, enum mfk_dtype dtype, const void *x, int64_t count,
			  double *zeros);
void mfk_cuda_weighted_sum(struct mfk_ctx *c, const float *x, const float *weight, int64_t count,
			   double *sum);
void mfk_cuda_adamw(struct mfk_ctx *c, const struct mfk_adamw *a);
void mfk_cuda_sgd(struct mfk_ctx *c, const struct mfk_sgd *a);
void mfk_cuda_momentum(struct mfk_ctx *c, const struct mfk_momentum *a);
void mfk_cuda_copy_rows(struct mfk_ctx *c, const struct mfk_copy_rows *a);

/* elementwise.cu: c = beta c + bias + product, which is fp32 [m, n], rounded once. product NULL: it
 * is 0, a product over 0 elements. */
void mfk_cuda_gemm_bias(struct mfk_ctx *c, const struct mfk_gemm *a, const float *product);

#ifdef __cplusplus
}
#endif

#endif
