/*
 * Box algebra: how the bytes of one target tensor are gathered from chunks of its source tensors.
 *
 * The target is seen as a matrix: rows (all axes but the last) by columns. Each of its boxes (from
 * a rule, ckpt/target.h) is intersected with each chunk (ckpt.h); the result is a block of the
 * matrix with a byte offset in a file and two byte strides. Blocks are cut into bands of rows
 * within which the same blocks lie side by side, so that a byte range is found by one binary search
 * and then walked.
 *
 *   band 0  | block | block | block | block |     a row-parallel weight: TP blocks in one band
 *   band 1  |             block             |     a column-parallel one: one band a rank
 */
#ifndef MFS_PLAN_PLAN_H
#define MFS_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/target.h"
#include "formats/io/fileset.h"
#include "formats/plan/vfile.h"

#define MFS_NO_FILE UINT32_MAX /* a block of zeros */

struct mfs_plan_block {
	uint64_t col, width;		 /* in the band's rows; elements */
	uint64_t src;			 /* bytes in file, of the band's first row at col */
	uint64_t row_stride, col_stride; /* bytes */
	uint32_t file;
};

struct mfs_plan_band {
	uint64_t row, rows;
	uint32_t first, count; /* blocks, by column */
};

struct mfs_plan {
	struct mfs_fileset *files;
	uint64_t rows, cols;
	unsigned element; /* bytes */
	enum mfs_dtype dtype;
	enum mfs_op op;
	struct mfs_plan_band *bands;
	uint32_t band_count;
	struct mfs_plan_block *blocks;
	uint32_t block_count;
};

/* Plans a target. Locates every chunk's storage, which may read a few bytes of each. -EINVAL names
 * the tensor if not every element comes from exactly one place. */
int mfs_plan_new(const struct mfs_target *t, struct mfs_plan **ret, struct mfs_error *err);
void mfs_plan_free(struct mfs_plan *plan);

/* Adds bytes [off, off+len) of the tensor to a gather. */
int mfs_plan_gather(const struct mfs_plan *plan, uint64_t off, uint64_t len, struct mfs_gather *g,
		    struct mfs_error *err);

/* Asks the kernel for the sources of a range. */
void mfs_plan_willneed(const struct mfs_plan *plan, uint64_t off, uint64_t len);

#endif
