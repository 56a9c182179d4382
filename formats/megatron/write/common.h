/*
 * The part of a Megatron state dict that is neither model nor optimizer: arguments, iteration,
 * scheduler, random states. Copied from the source's own, where it has one, with what the view
 * changes; made from config.json's arguments where the source is an HF directory.
 *
 * Who reads it: megatron/training/checkpointing.py: load_checkpoint, check_checkpoint_args.
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

/* What the view's arguments say, instead of the source's. */
struct mfs_common_options {
	const struct mfs_layout *layout; /* NULL: the source's own (torch_dist) */
	uint64_t vocab;			 /* padded rows of the embedding in the view */
	enum mfs_layer_spec spec;
	bool spec_said;	    /* by a person: the arguments follow */
	bool has_optimizer; /* else no_save_optim, so that no run asks for it */
	bool has_rng;	    /* else no_save_rng */
	const char *format; /* "torch", "torch_dist": ckpt_format */
};

/*
 * Writes pairs of the state dict whose dict has been begun: 'args', 'checkpoint_version',
 * 'iteration', 'num_floating_point_operations_so_far', and, with the optimizer,
 * 'opt_param_scheduler'. number: the iteration; -1: release.
 */
int mfs_common_write(struct mfs_pickle_writer *w, const struct mfs_ckpt *ckpt,
		     const struct mfs_common_options *options, int64_t number,
		     struct mfs_error *err);

#endif
