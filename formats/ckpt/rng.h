/*
 * Random states of a checkpoint's ranks: the list 'rng_state' (megatron/training/checkpointing.py:
 * get_rng_state). A legacy save has one in each (tp, pp, ep) rank's file. A torch_dist save has one
 * for each (tp, pp), the byte item rng_state/shard_{pp}.{tp}_{P}.{T}.
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

/*
 * Opens the random states of a rank of the checkpoint's own layout (mfs_ckpt_layout()). If ETP is
 * not TP, some expert ranks have none; then those of the first rank with the same tp and pp are
 * opened. -ENODATA: there are none. The checkpoint must be opened with MFS_CKPT_COMMON. Any thread.
 */
int mfs_rng_open(struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, uint32_t ep, struct mfs_rng *ret,
		 struct mfs_error *err);
/* The number of a rank's random states, below mfs_rng_count(), or MFS_RNG_NONE. Ranks of one number
 * share their states. */
#define MFS_RNG_NONE UINT32_MAX
uint32_t mfs_rng_count(const struct mfs_ckpt *ckpt);
uint32_t mfs_rng_find(const struct mfs_ckpt *ckpt, uint32_t tp, uint32_t pp, uint32_t ep);
void mfs_rng_release(struct mfs_rng *r);

/* True if every (tp, pp) rank has random states, judging by names alone. */
bool mfs_rng_there(const struct mfs_ckpt *ckpt);

#endif
