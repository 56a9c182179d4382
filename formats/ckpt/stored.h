/*
 * A matrix where a reader found it, before it is a part of any tensor, and whether two of them hold
 * the same bytes: what decides whether a head is tied to the embedding or only said to be.
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
	uint64_t origin;	      /* elements from the storage's first */
};

#define MFS_SAME UINT64_MAX

/*
 * Compares byte for byte, in windows of the mapped files, up to the first difference. *ret_row: the
 * first row that differs, or MFS_SAME. Matrices of two dtypes or shapes differ in row 0, and so
 * does anything that is no matrix, or that overlaps itself. The errors are those of
 * mfs_ckpt_locate(); -EIO, -ESTALE: the bytes cannot be read.
 */
int mfs_stored_compare(struct mfs_ckpt *ckpt, const struct mfs_stored *a,
		       const struct mfs_stored *b, uint64_t *ret_row, struct mfs_error *err);

#endif
