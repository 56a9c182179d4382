/*
 * A matrix that is shown as float8_e4m3fn, and its scales: two targets that are made of one source.
 * A block's scale follows from the largest magnitude in it (numbers/fp8.h), so reading one byte of
 * either target needs all of a block first. The largest magnitudes are kept: 4 bytes for each block
 * that was touched, and for the others of its matrix.
 *
 * A matrix may also be made of parts of others, which have a scale each: what a worker has of
 * queries, keys and values. A part has the scale of the whole matrix that it was cut from.
 */
#ifndef MFS_CKPT_FP8_TARGET_H
#define MFS_CKPT_FP8_TARGET_H

#include <stdatomic.h>

#include "formats/ckpt/target.h"

/* What is known of a matrix' scales. */
struct mfs_fp8_scales {
	uint64_t rows, cols; /* of the matrix; of several the rows of all */
	uint64_t block_rows, block_cols;
	uint64_t grid_rows, grid_cols;
	/* Bits of a float32 each, row after row; 0: not known yet, as no scale is 0. NULL until a
	 * plan is made (mfs_fp8_scales_ready()). */
	_Atomic(_Atomic uint32_t *) bits;
};

/* Rows of a target that are cut from a matrix with one scale. */
struct mfs_fp8_part {
	uint64_t row;			    /* the first one */
	const struct mfs_fp8_target *scale; /* of the whole matrix */
};

/* A target's parts, in the order of their rows. */
struct mfs_fp8_parts {
	const struct mfs_fp8_part *at;
	uint32_t count;
};

struct mfs_fp8_target {
	struct mfs_target base;	     /* float8_e4m3fn; of the scales: float32 */
	const struct mfs_target *of; /* of float32, bfloat16 or float16 */
	struct mfs_fp8_scales *scales;
	struct mfs_fp8_parts parts; /* with scales of their own; then scales is NULL */
	const char *suffix;	    /* of the name */
};

/* Makes both targets of a matrix in blocks of block_rows and block_cols; 0: it is one block, and
 * its scale has no axes. `of` may also be several matrices along its first axis, whose rows are a
 * multiple of block_rows. suffix: follows the matrix' name in that of the scales. `of` must outlive
 * them, and scales must be zero-filled. -ENOTSUP: `of` is no such matrix. */
int mfs_fp8_targets_init(struct mfs_fp8_target *weight, struct mfs_fp8_target *scale,
			 struct mfs_fp8_scales *scales, const struct mfs_target *of,
			 uint64_t block_rows, uint64_t block_cols, const char *suffix,
			 struct mfs_error *err);

/* Makes both targets of parts, the scales of which are one axis, or two: [stacks, parts of each].
 * `of` has two axes, or is several matrices along its first one; parts, which fill it, and their
 * scales must outlive them. -ENOTSUP: as above. */
int mfs_fp8_part_targets_init(struct mfs_fp8_target *weight, struct mfs_fp8_target *scale,
			      const struct mfs_target *of, const struct mfs_fp8_parts *parts,
			      uint32_t stacks, const char *suffix, struct mfs_error *err);

/* Makes room for all scales. Any thread. -ENOMEM. */
int mfs_fp8_scales_ready(struct mfs_fp8_scales *scales, struct mfs_error *err);
void mfs_fp8_scales_release(struct mfs_fp8_scales *scales);

#endif
