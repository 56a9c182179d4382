/* Which attention runs, for logs and tests. */
#ifndef MFK_CUDA_ATTENTION_H
#define MFK_CUDA_ATTENTION_H

#include "kernels/cuda/cuda_i.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "hopper", "cudnn", "flash", "simple" or "none". why, of MFK_WHY bytes: why those before it were
 * not taken. */
const char *mfk_cuda_attention_choice(const struct mfk_device *d, const struct mfk_attention *a,
				      bool backward, char *why);

#ifdef __cplusplus
}
#endif

#endif
