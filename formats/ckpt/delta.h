/*
 * What an adapter adds to the tensors of a checkpoint (LoRA, Hu et al. 2021, equation 3): a box of
 * a matrix W is read as W + scale * out * in. The two thin matrices are tensors of another
 * checkpoint, the adapter's, which the first one owns.
 *
 *            cols                       rank        cols
 *        +---------+                   +----+    +---------+
 *   rows |    W    | +  scale *   rows |out |  * |   in    | rank
 *        +---------+                   +----+    +---------+
 */
#ifndef MFS_CKPT_DELTA_H
#define MFS_CKPT_DELTA_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"

struct mfs_ckpt_delta {
	const struct mfs_global_tensor *of;	  /* W */
	const struct mfs_global_tensor *out, *in; /* of the adapter */
	uint64_t lo[2], size[2];		  /* the box of W */
	uint64_t first[2]; /* row of out and column of in that belong to the box's first element */
	float scale;
};

/* Notes a delta. out and in are matrices of one rank, and the box lies in W and in them; else
 * -EINVAL, with W's name. -ENOTSUP: nothing is added to elements of W's type. */
int mfs_ckpt_add_delta(struct mfs_ckpt *ckpt, const struct mfs_ckpt_delta *d,
		       struct mfs_error *err);

/* Takes the adapter over, after all of its deltas were added. ckpt must not have an adapter yet,
 * and no other thread may know ckpt. */
void mfs_ckpt_attach(struct mfs_ckpt *ckpt, struct mfs_ckpt *adapter);

/* The adapter that was added to a checkpoint. NULL: none was. */
struct mfs_ckpt *mfs_ckpt_adapter(const struct mfs_ckpt *ckpt);

/* The deltas of a tensor. */
const struct mfs_ckpt_delta *mfs_ckpt_deltas(const struct mfs_ckpt *ckpt,
					     const struct mfs_global_tensor *t,
					     uint32_t *ret_count);

#endif
