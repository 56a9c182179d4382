/* Element types of tensors in the kernels' words. */
#ifndef MFT_TRAINER_BASE_DTYPE_H
#define MFT_TRAINER_BASE_DTYPE_H

#include "formats/base/tensor.h"
#include "kernels/kernels.h"

/* type is MFS_F32, MFS_BF16 or MFS_F16: no other is trained with. */
static inline enum mfk_dtype mft_mfk_dtype(enum mfs_dtype type)
{
	return type == MFS_BF16 ? MFK_BF16 : type == MFS_F16 ? MFK_F16 : MFK_F32;
}

#endif
