/* What NVIDIA's libraries call the types of elements. For kernels: cuda_dtypes.cuh. */
#ifndef MFK_CUDA_DTYPES_H
#define MFK_CUDA_DTYPES_H

#include <cuda.h>
#include <library_types.h>

#include "kernels/dtypes.h"

struct mfk_cuda_dtype {
	cudaDataType_t blas;
	CUtensorMapDataType map; /* of maps of tensors */
	int nccl;		 /* ncclDataType_t (nccl.h) */
};

const struct mfk_cuda_dtype *mfk_cuda_dtype(enum mfk_dtype t);

#endif
