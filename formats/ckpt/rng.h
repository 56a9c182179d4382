/*
 * Random states of a checkpoint's ranks: the list 'rng_state' (megatron/training/checkpointing.py:
 * get_rng_state), in each (tp, pp, ep) rank's legacy file, or one for each (tp, pp) as the byte
 * item rng_state/shard_{pp}.{tp}_{P}.{T} of a torch_dist checkpoint.
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

/* Of a rank of the checkpoint's own layout (mfs_ckpt_layout()); where that expert rank has none of
 * its own (not all do with ETP other than TP), of the first with the same tp and pp. -ENODATA: none
 * saved one. The checkpoint must have been opened with MFS_CKPT_COMMON. Any thread. */
int mfs_rng_open(struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, uint32_t ep, struct mfs_rng *ret,
		 struct mfs_error *err);
/* Which one that is, of mfs_rng_count() or MFS_RNG_NONE: the same number, the same states. */
#define MFS_RNG_NONE UINT32_MAX
uint32_t mfs_rng_count(const struct mfs_ckpt *ckpt);
uint32_t mfs_rng_find(const struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, uint32_t ep);
void mfs_rng_release(struct mfs_rng *r);

/* True if every (tp, pp) rank's can be had, going by their names alone. */
bool mfs_rng_there(const struct mfs_ckpt *ckpt);

#endif
