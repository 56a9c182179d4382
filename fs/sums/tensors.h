/*
 * The tensors of a model as sums count them: global tensors by Megatron's names, in the order of
 * the names, without rows that only pad the vocabulary, norms as the model uses them.
 */
#ifndef MFS_FS_SUMS_TENSORS_H
#define MFS_FS_SUMS_TENSORS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/arena.h"
#include "formats/base/error.h"
#include "fs/sums/tensor_hash.h"
#include "fs/sums/sums.h"

struct mfs_ckpt;
struct mfs_iteration;
struct mfs_view_options;

struct mfs_tensors {
	struct mfs_ckpt *ckpt;	   /* borrowed */
	uint64_t vocabulary;	   /* true rows; 0: not known */
	struct mfs_sum *sums;	   /* sha256 is not set */
	struct mfs_hash_job *jobs; /* the same, in the same order */
	uint32_t count;
	struct mfs_arena arena; /* names */
};

/* Those of an iteration, which outlives them. optim: with the optimizer's. -ENODATA: it has none;
 * else as the iteration is opened. */
int mfs_tensors_list(struct mfs_iteration *it, const struct mfs_view_options *opt, bool optim,
		     struct mfs_tensors *ret, struct mfs_error *err);
void mfs_tensors_release(struct mfs_tensors *t);

#endif
