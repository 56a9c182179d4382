/* The list of checks. */
#include "tests/kernels/check_i.h"

#include <stddef.h>

const struct check_entry check_entries[] = {
	{"stamp", check_stamp},
	{"gemm", check_gemm},
	{"gemm_grouped", check_gemm_grouped},
	{"gemm_tall", check_gemm_tall},
	{"bias_backward", check_bias_backward},
	{"group_bias", check_group_bias},
	{"norm", check_norm},
	{"qkv", check_qkv},
	{"attention", check_attention},
	{"gate", check_gate},
	{"delta_inputs", check_delta_inputs},
	{"delta_rule", check_delta_rule},
	{"mla", check_mla},
	{"route", check_route},
	{"balance", check_balance},
	{"sinkhorn", check_sinkhorn},
	{"drop", check_drop},
	{"dispatch", check_dispatch},
	{"rows", check_rows},
	{"act", check_act},
	{"embedding", check_embedding},
	{"cross_entropy", check_cross_entropy},
	{"dropout", check_dropout},
	{"elementwise", check_elementwise},
	{"fill_normal", check_fill_normal},
	{"fill_uniform", check_fill_uniform},
	{"sums", check_sums},
	{"adamw", check_adamw},
	{"sgd", check_sgd},
	{"momentum", check_momentum},
	{"copy_rows", check_copy_rows},
	{NULL, NULL},
};
