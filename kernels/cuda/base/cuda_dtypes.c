#include "kernels/cuda/base/cuda_dtypes.h"

#include "kernels/cuda/base/nccl.h"

const struct mfk_cuda_dtype *mfk_cuda_dtype(enum mfk_dtype t)
{
	static const struct mfk_cuda_dtype rows[] = {
		[MFK_F32] = {CUDA_R_32F, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, MFK_NCCL_FLOAT32},
		[MFK_BF16] = {CUDA_R_16BF, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, MFK_NCCL_BFLOAT16},
		[MFK_F16] = {CUDA_R_16F, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, MFK_NCCL_FLOAT16},
		[MFK_E4M3] = {CUDA_R_8F_E4M3, CU_TENSOR_MAP_DATA_TYPE_UINT8, MFK_NCCL_INT8},
		[MFK_E5M2] = {CUDA_R_8F_E5M2, CU_TENSOR_MAP_DATA_TYPE_UINT8, MFK_NCCL_INT8},
	};

	_Static_assert(sizeof(rows) / sizeof(rows[0]) == MFK_DTYPE_COUNT, "a type without a row");
	return &rows[t];
}
