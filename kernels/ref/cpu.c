/* The table of the CPU backend. */
#include "kernels/ref/cpu.h"

#include "kernels/ref/ref_i.h"

static const struct mfk_ops ops = {
	.gemm = mfk_ref_gemm,
	.gemm_grouped = mfk_ref_gemm_grouped,
	.gemm_grouped_wants_host = mfk_ref_gemm_grouped_wants_host,
	.bias_backward = mfk_ref_bias_backward,
	.norm = mfk_ref_norm,
	.norm_backward = mfk_ref_norm_backward,
	.qkv = mfk_ref_qkv,
	.qkv_backward = mfk_ref_qkv_backward,
	.attention_scratch = mfk_ref_attention_scratch,
	.attention = mfk_ref_attention,
	.attention_backward = mfk_ref_attention_backward,
	.attention_join = mfk_ref_attention_join,
	.mla = mfk_ref_mla,
	.mla_backward = mfk_ref_mla_backward,
	.route = mfk_ref_route,
	.route_backward = mfk_ref_route_backward,
	.route_balance = mfk_ref_route_balance,
	.drop = mfk_ref_drop,
	.dispatch = mfk_ref_dispatch,
	.gather = mfk_ref_gather,
	.combine = mfk_ref_combine,
	.balance_bias = mfk_ref_balance_bias,
	.act = mfk_ref_act,
	.act_backward = mfk_ref_act_backward,
	.embedding = mfk_ref_embedding,
	.embedding_backward = mfk_ref_embedding_backward,
	.cross_entropy = mfk_ref_cross_entropy,
	.cross_entropy_part = mfk_ref_cross_entropy_part,
	.cross_entropy_join = mfk_ref_cross_entropy_join,
	.dropout = mfk_ref_dropout,
	.dropout_backward = mfk_ref_dropout_backward,
	.add = mfk_ref_add,
	.scale = mfk_ref_scale,
	.cast = mfk_ref_cast,
	.fill_normal = mfk_ref_fill_normal,
	.fill = mfk_ref_fill,
	.sum_squares = mfk_ref_sum_squares,
	.count_zeros = mfk_ref_count_zeros,
	.weighted_sum = mfk_ref_weighted_sum,
	.adamw = mfk_ref_adamw,
};

const struct mfk_backend mfk_cpu = {"cpu", &mfk_ref_device, &ops, &mfk_ref_comm};
