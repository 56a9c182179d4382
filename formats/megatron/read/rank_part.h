/*
 * One rank's part of a checkpoint, whatever the layout that it was saved at: what a training
 * process must have in its memory before it begins.
 *
 * Model tensors are those of the rank's state dict (megatron/rank.h), whole. Of the optimizer's
 * tensors (fp32 parameter, exp_avg, exp_avg_sq) a data-parallel rank has what lies in its slices of
 * the flat buffers: each bucket, its padding included, is cut into dp equal slices, which do not
 * respect the limits of parameters (megatron/core/optimizer/distrib_optimizer.py:
 * _build_model_gbuf_range and _build_model_gbuf_param_range_map). With dp 1 these are whole, too.
 *
 * Reading goes through the source files once, from their beginnings to their ends, file by file in
 * the order in which they were added: not tensor by tensor, which for rank 5 of 8 of a checkpoint
 * of one rank would be thousands of seeks.
 */
#ifndef MFS_MEGATRON_READ_RANK_PART_H
#define MFS_MEGATRON_READ_RANK_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/optim/buffers/rank_optim.h"

struct mfs_rank_part_options {
	struct mfs_layout layout; /* checked (mfs_layout_check) */
	struct mfs_rank rank;
	enum mfs_layer_spec spec;
	uint64_t vocab; /* true rows of the embedding; 0: not known (layout.h) */
	bool optimizer; /* the checkpoint was opened with mfs_optim_open() */
	const struct mfs_optim_rules *rules; /* of the process; NULL: of the run that saved */
	/* The rank among those that share its dense parameters (data-parallel times
	 * context-parallel ranks), and among those that share its experts, where they have an
	 * optimizer of their own. 0 of 0 is 0 of 1. */
	uint32_t dp_rank, dp;
	uint32_t expert_dp_rank, expert_dp;
};

/* Memory that the caller provides, of bytes bytes: elements [first, first+count) of a tensor,
 * row-major. */
struct mfs_part_tensor {
	struct mfs_rank_tensor
		tensor; /* name: mfs_rank_tensor_name(); dtype and shape: tensor.base */
	enum mfs_state state;
	uint64_t first, count; /* elements; all of them but for sliced optimizer states */
	uint64_t bytes;
	/* Of the optimizer's: the place in the rank's memory of a buffer (mfs_optim.buffers), if
	 * that holds the slices of the buffer's buckets one after the other; elements. */
	uint32_t buffer;
	uint64_t in_slices;
};

struct mfs_rank_part {
	struct mfs_ckpt *ckpt;
	struct mfs_rank_list *list;
	struct mfs_optim *optim; /* NULL without optimizer */
	struct mfs_part_tensor
		*tensors; /* the model's; then MAIN, EXP_AVG, EXP_AVG_SQ of each parameter */
	uint32_t count;
	uint64_t bytes; /* of all of them */
};

/* The checkpoint must outlive the part. Reads no tensor's data. -EINVAL: the layout is not
 * possible, or a rank that there is not; -ENODATA: a tensor is missing; as mfs_rank_list_new(),
 * mfs_optim_new(). */
int mfs_rank_part_open(struct mfs_ckpt *ckpt, const struct mfs_rank_part_options *options,
		       struct mfs_rank_part **ret, struct mfs_error *err);
void mfs_rank_part_free(struct mfs_rank_part *part);

/*
 * Reads tensors[i] into destinations[i] (bytes bytes, any alignment); NULL: not wanted. threads: 0
 * for as many as processors. Memory beyond destinations: 64 bytes for each piece that a source
 * tensor is stored in, and the plans while they are made. On failure destinations hold anything,
 * and the sentence names a tensor and its file. -ESTALE, -EIO, -EINVAL (a source's tensor is not
 * what its index said), -ENOMEM.
 */
int mfs_rank_part_read(const struct mfs_rank_part *part, void *const *destinations,
		       unsigned threads, struct mfs_error *err);

#endif
