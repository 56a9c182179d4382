/*
 * One rank's part of a checkpoint that was saved at any layout: what a training process needs in
 * its memory before it begins.
 *
 * Model tensors are those of the rank's state dict (megatron/rank.h), whole. Of optimizer states
 * (fp32 parameter, exp_avg, exp_avg_sq) a data-parallel rank has what lies in its slices of the
 * flat buffers. Each bucket, with its padding, is cut into dp equal slices, and a slice may begin
 * or end inside a parameter (megatron/core/optimizer/distrib_optimizer.py: _build_model_gbuf_range
 * and _build_model_gbuf_param_range_map). With dp 1 the states are whole.
 *
 * The source files are read once, one after the other, each from its beginning to its end. Reading
 * tensor by tensor would be thousands of seeks, for example for rank 5 of 8 of a checkpoint of one
 * rank.
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
	 * context-parallel), and among those that share its experts if these have an optimizer of
	 * their own. A size of 0 means 1. */
	uint32_t dp_rank, dp;
	uint32_t expert_dp_rank, expert_dp;
};

/* Elements [first, first+count) of a tensor, row-major. The caller provides memory of bytes
 * bytes. */
struct mfs_part_tensor {
	struct mfs_rank_tensor tensor; /* dtype and shape are in tensor.base */
	enum mfs_state state;
	uint64_t first, count; /* elements; sliced optimizer states have fewer than all */
	uint64_t bytes;
	/* For optimizer states: if the rank keeps the slices of a buffer's buckets
	 * (mfs_optim.buffers) one after the other, these begin at element in_slices. */
	uint32_t buffer;
	uint64_t in_slices;
};

struct mfs_rank_part {
	struct mfs_ckpt *ckpt;
	struct mfs_rank_list *list;
	struct mfs_optim *optim;	 /* NULL without optimizer */
	struct mfs_part_tensor *tensors; /* the model's; then the states of each parameter */
	uint32_t count;
	uint64_t bytes; /* of all of them */
};

/* The checkpoint must outlive the part. No tensor data is read. -EINVAL: the layout is not
 * possible, or has no such rank; -ENODATA: a tensor is missing; errors of mfs_rank_list_new() and
 * mfs_optim_new(). */
int mfs_rank_part_open(struct mfs_ckpt *ckpt, const struct mfs_rank_part_options *options,
		       struct mfs_rank_part **ret, struct mfs_error *err);
void mfs_rank_part_free(struct mfs_rank_part *part);

/*
 * Reads tensors[i] into destinations[i], which has bytes bytes of any alignment; NULL: not wanted.
 * threads 0: one for each processor. This needs 64 bytes of memory for each block of the plans, in
 * addition to the destinations. After a failure the destinations hold anything, and the message
 * names a tensor and its file. -ESTALE, -EIO, -EINVAL (a tensor of a source is not what its index
 * says), -ENOMEM.
 */
int mfs_rank_part_read(const struct mfs_rank_part *part, void *const *destinations,
		       unsigned threads, struct mfs_error *err);

#endif
