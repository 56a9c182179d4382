/* The tensors of two models in pairs, divided into shards, and written as one version of a
 * chain. */
#ifndef MFS_FS_DELTA_PAIRS_H
#define MFS_FS_DELTA_PAIRS_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/delta/delta_index.h"
#include "formats/delta/delta_write.h"
#include "fs/source/weight_files.h"

/* A tensor of both. */
struct mfs_delta_pair {
	const struct mfs_weight_files *sides[2];
	const struct mfs_weight_tensor *at[2];
};

struct mfs_delta_pairs {
	struct mfs_delta_pair *pairs;	  /* in the order of B's files */
	struct mfs_delta_tensor *tensors; /* the same */
	uint32_t count;
	uint32_t *shards; /* each one's first tensor, and then count */
	uint32_t shard_count;
};

/* -EINVAL: names, shapes or types differ. a and b outlive ret. */
int mfs_delta_pairs_init(const struct mfs_weight_files *a, const struct mfs_weight_files *b,
			 struct mfs_delta_pairs *ret, struct mfs_error *err);
void mfs_delta_pairs_release(struct mfs_delta_pairs *p);

/* Writes all shards, several at once. before: the version that this one changes, NULL: none that is
 * a delta; its tensors must be A's. Draws a progress bar if stderr is a terminal. -EINTR: a signal
 * has come (fs/cli/stop.h); -EINVAL: A is not the version before. */
int mfs_delta_pairs_write(struct mfs_delta_pairs *p, const struct mfs_delta *before,
			  struct mfs_delta_writer *w, struct mfs_error *err);

#endif
