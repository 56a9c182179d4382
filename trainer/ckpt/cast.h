/* Element types of the host's memory: fp32, bf16, fp16 and fp64 into each other, through fp32,
 * to nearest even. */
#ifndef MFS_TRAINER_CKPT_CAST_H
#define MFS_TRAINER_CKPT_CAST_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/tensor.h"

bool mfs_can_cast(enum mfs_dtype from);
/* Both types are such, to_type not fp64. to and from do not overlap, and are aligned. */
void mfs_cast(enum mfs_dtype to_type, void *to, enum mfs_dtype from_type, const void *from,
	      uint64_t count);

#endif
