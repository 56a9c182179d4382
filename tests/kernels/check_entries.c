/* The list of checks. */
#include "tests/kernels/check_i.h"

#include <stddef.h>

const struct check_entry check_entries[] = {
	{"gemm", check_gemm},
	{"gemm_grouped", check_gemm_grouped},
	{"bias_backward", check_bias_backward},
	{"norm", check_norm},
	{"act", check_act},
	{"embedding", check_embedding},
	{"cross_entropy", check_cross_entropy},
	{"elementwise", check_elementwise},
	{"sums", check_sums},
	{NULL, NULL},
};
