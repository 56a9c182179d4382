/* Opens an iteration's directory in any of the formats that Megatron-core and those who build on it
 * save. */
#ifndef MFS_CKPT_READ_CKPT_OPEN_H
#define MFS_CKPT_READ_CKPT_OPEN_H

#include "formats/ckpt/ckpt.h"
#include "formats/ckpt/language_part.h"
#include "formats/ckpt/told.h"

/* NeMo 2 has torch_dist's files in this folder of its checkpoint (nemo/lightning/ckpt_utils.py). */
#define MFS_NEMO_WEIGHTS "weights"

/* what: MFS_CKPT_COMMON or 0. -ENODATA: something is missing, which the message names; -ENOTSUP:
 * the format is not supported; -EINVAL: it is damaged. */
int mfs_ckpt_open(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err);

/* Like mfs_ckpt_open(), where families' files say what the tensors of vision-language models are,
 * and told says what a save without arguments is; each may be NULL. what may have
 * MFS_CKPT_LANGUAGE. */
int mfs_ckpt_open_part(const char *dir, unsigned what, const struct mfs_ckpt_part_ops *parts,
		       const struct mfs_ckpt_told *told, struct mfs_ckpt **ret,
		       struct mfs_error *err);

/* For the optimizer's reader: a checkpoint whose format is known and of which nothing is read.
 * mfs_ckpt_end() ends it. */
int mfs_ckpt_begin(const char *dir, unsigned what, struct mfs_ckpt **ret, struct mfs_error *err);

#endif
