/* The table of the CUDA backend, the plugin's one symbol. */
#include "kernels/cuda/cuda_i.h"

static const struct mfk_ops ops = {
	.gemm = mfk_cuda_gemm,
	.gemm_grouped = mfk_cuda_gemm_grouped,
	.bias_backward = mfk_cuda_bias_backward,
	.norm = mfk_cuda_norm,
	.norm_backward = mfk_cuda_norm_backward,
	.qkv = mfk_cuda_qkv,
	.qkv_backward = mfk_cuda_qkv_backward,
	.attention_scratch = mfk_cuda_attention_scratch,
	.attention = mfk_cuda_attention,
	.attention_backward = mfk_cuda_attention_backward,
	.mla = mfk_cuda_mla,
	.mla_backward = mfk_cuda_mla_backward,
	.route = mfk_cuda_route,
	.route_backward = mfk_cuda_route_backward,
	.dispatch = mfk_cuda_dispatch,
	.gather = mfk_cuda_gather,
	.combine = mfk_cuda_combine,
	.balance_bias = mfk_cuda_balance_bias,
	.act = mfk_cuda_act,
	.act_backward = mfk_cuda_act_backward,
	.embedding = mfk_cuda_embedding,
	.embedding_backward = mfk_cuda_embedding_backward,
	.cross_entropy = mfk_cuda_cross_entropy,
	.dropout = mfk_cuda_dropout,
	.dropout_backward = mfk_cuda_dropout_backward,
	.add = mfk_cuda_add,
	.scale = mfk_cuda_scale,
	.cast = mfk_cuda_cast,
	.fill_normal = mfk_cuda_fill_normal,
	.fill = mfk_cuda_fill,
	.sum_squares = mfk_cuda_sum_squares,
	.weighted_sum = mfk_cuda_weighted_sum,
	.adamw = mfk_cuda_adamw,
};

const struct mfk_backend mfk_cuda_backend = {
	.name = "cuda",
	.device = &mfk_cuda_device,
	.ops = &ops,
};
