/* The table of the CPU backend. */
#include "kernels/ref/cpu.h"

#include "kernels/ref/ref_i.h"

static const struct mfk_ops ops = {
	.gemm = mfk_ref_gemm,
	.gemm_grouped = mfk_ref_gemm_grouped,
	.bias_backward = mfk_ref_bias_backward,
	.norm = mfk_ref_norm,
	.norm_backward = mfk_ref_norm_backward,
	.act = mfk_ref_act,
	.act_backward = mfk_ref_act_backward,
	.embedding = mfk_ref_embedding,
	.embedding_backward = mfk_ref_embedding_backward,
	.cross_entropy = mfk_ref_cross_entropy,
	.add = mfk_ref_add,
	.scale = mfk_ref_scale,
	.cast = mfk_ref_cast,
	.fill = mfk_ref_fill,
	.sum_squares = mfk_ref_sum_squares,
	.weighted_sum = mfk_ref_weighted_sum,
};

const struct mfk_backend mfk_cpu = {"cpu", &mfk_ref_device, &ops};
