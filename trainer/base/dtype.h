/* Element types of tensors in the kernels' words. */
#ifndef MFT_TRAINER_BASE_DTYPE_H
#define MFT_TRAINER_BASE_DTYPE_H

#include "formats/base/tensor.h"
#include "kernels/kernels.h"

/* type is one of these: no other is trained with. Where there is no tensor, so that none is asked
 * for, it is MFK_F32. */
static inline enum mfk_dtype mft_mfk_dtype(enum mfs_dtype type)
{
	static const enum mfk_dtype types[] = {
		[MFS_F32] = MFK_F32,
		[MFS_BF16] = MFK_BF16,
		[MFS_F16] = MFK_F16,
	};

	return types[type];
}

#endif
