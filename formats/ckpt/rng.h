/*
 * Random states of a checkpoint's ranks: the list 'rng_state' that each (tp, pp) rank saved
 * (megatron/training/checkpointing.py: get_rng_state), in the rank's legacy file or as the byte item
 * rng_state/shard_{pp}.{tp}_{P}.{T} of a torch_dist checkpoint.
 */
#ifndef MFS_CKPT_RNG_H
#define MFS_CKPT_RNG_H

#include "formats/ckpt/ckpt.h"

struct mfs_rng {
	struct mfs_torch_file archive;
	mfs_value value; /* the list */
	uint32_t file;
	uint64_t base; /* of the archive in the file */
};

/* Of a rank of the checkpoint's own layout (mfs_ckpt_layout()). -ENODATA: it saved none. The checkpoint
 * must have been opened with MFS_CKPT_STATE. Any thread. */
int mfs_rng_open(struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, struct mfs_rng *ret,
		 struct mfs_error *err);
void mfs_rng_release(struct mfs_rng *r);

/* True if every rank's can be had, going by their names alone. */
bool mfs_rng_there(const struct mfs_ckpt *ckpt);

#endif
