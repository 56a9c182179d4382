/*
 * A matrix where a reader found it, before it is part of a tensor. Comparing two of them decides
 * whether a head that is declared tied to the embedding is equal to it.
 */
#ifndef MFS_CKPT_STORED_H
#define MFS_CKPT_STORED_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

struct mfs_stored {
	const char *name; /* for messages */
	uint32_t storage; /* of the checkpoint */
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[2], stride[2]; /* elements */
	uint64_t origin;	      /* elements from the storage's start */
};

#define MFS_SAME UINT64_MAX

/*
 * Compares bytes in windows of the mapped files, up to the first difference. *ret_row: the first
 * row that differs, or MFS_SAME. Two dtypes or shapes differ in row 0; so does anything that is no
 * matrix or that overlaps itself. -EIO, -ESTALE: the bytes cannot be read. Other errors: those of
 * mfs_ckpt_locate().
 */
int mfs_stored_compare(struct mfs_ckpt *ckpt, const struct mfs_stored *a,
		       const struct mfs_stored *b, uint64_t *ret_row, struct mfs_error *err);

#endif
