/* Maps of tensors. The driver makes them; its library is not linked, since there may be none. */
#include "kernels/cuda/base/hopper_map.h"

#include <errno.h>

#include "kernels/cuda/base/cuda_dtypes.h"

typedef __typeof__(&cuTensorMapEncodeTiled) encode_function;

static encode_function encoder(struct mfk_ctx *c)
{
	static encode_function found;
	enum cudaDriverEntryPointQueryResult result;
	void *p = NULL;

	if (__atomic_load_n(&found, __ATOMIC_RELAXED))
		return found;
	if (!mfk_cuda_check(c,
			    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000,
							     cudaEnableDefault, &result),
			    "cuTensorMapEncodeTiled"))
		return NULL;
	if (!p)
		mfk_cuda_fail(c, -ENOSYS, "the driver has no cuTensorMapEncodeTiled");
	__atomic_store_n(&found, (encode_function)p, __ATOMIC_RELAXED);
	return p;
}

bool mfk_cuda_map(struct mfk_ctx *c, const struct mfk_cuda_matrix *m, CUtensorMap *ret)
{
	const cuuint64_t size = mfk_dtype_size(m->type);
	const cuuint64_t dims[] = {(cuuint64_t)m->cols, (cuuint64_t)m->rows, (cuuint64_t)m->planes};
	const cuuint64_t strides[] = {(cuuint64_t)m->ld * size, (cuuint64_t)m->stride * size};
	const cuuint32_t box[] = {(cuuint32_t)(128 / size), (cuuint32_t)m->box_rows, 1};
	const cuuint32_t steps[] = {1, 1, 1};
	encode_function encode = encoder(c);
	CUresult rc;

	if (!encode)
		return false;
	rc = encode(ret, mfk_cuda_dtype(m->type)->map, 3, (void *)m->p, dims, strides, box, steps,
		    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (rc)
		mfk_cuda_fail(c, -EIO, "cuTensorMapEncodeTiled: error %d", (int)rc);
	return !rc;
}
