/*
 * The common part of a Megatron state dict: arguments, iteration, scheduler. It is a copy of the
 * source's with what the view changes. For an HF directory it is made from config.json's arguments.
 *
 * megatron/training/checkpointing.py (load_checkpoint, check_checkpoint_args) reads it.
 */
#ifndef MFS_MEGATRON_WRITE_COMMON_H
#define MFS_MEGATRON_WRITE_COMMON_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/ckpt.h"
#include "formats/megatron/layout.h"
#include "formats/megatron/rank.h"
#include "formats/torch/pickle_write.h"

/* What the view's arguments say in place of the source's. */
struct mfs_common_options {
	const struct mfs_layout *layout; /* NULL: the source's own (torch_dist) */
	uint64_t vocab;			 /* padded rows of the embedding in the view */
	enum mfs_layer_spec spec;
	bool spec_given;    /* a person chose spec: it is written */
	bool has_optimizer; /* if not, no_save_optim is set, so that no run looks for one */
	bool has_rng;	    /* if not, no_save_rng is set */
	bool hybrid;	    /* a model of blocks is written as a HybridModel (form.h) */
	const char *format; /* ckpt_format: "torch", "torch_dist" */
};

/*
 * Writes pairs into a state dict that the caller has begun: 'args', 'checkpoint_version',
 * 'iteration', 'num_floating_point_operations_so_far', and with an optimizer 'opt_param_scheduler'.
 * number: the iteration; -1: release.
 */
int mfs_common_write(struct mfs_pickle_writer *w, const struct mfs_ckpt *ckpt,
		     const struct mfs_common_options *options, int64_t number,
		     struct mfs_error *err);

/* Data-parallel ranks that the arguments have at a layout: the source's, or more where experts need
 * them. */
uint32_t mfs_common_replicas(const struct mfs_ckpt *ckpt, const struct mfs_layout *p);

#endif
