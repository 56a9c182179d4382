/* Opens an iteration's directory, whichever of Megatron's formats it has. */
#ifndef MFS_CKPT_READ_OPEN_H
#define MFS_CKPT_READ_OPEN_H

#include "formats/ckpt/ckpt.h"

/* what: MFS_CKPT_COMMON or 0. -ENODATA: incomplete (what is missing); -ENOTSUP, -EINVAL. */
int mfs_ckpt_open(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err);

/* For readers of more than that: a checkpoint of which the format is known and nothing is read yet;
 * ended with mfs_ckpt_end(). */
int mfs_ckpt_begin(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err);

#endif
