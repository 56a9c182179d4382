/*
 * Box algebra: how the bytes of one target tensor are gathered from chunks of its source tensors.
 *
 * The target is seen as a matrix. All axes but the last are its rows; the last axis is its columns.
 * Each box of the target (ckpt/target.h) is intersected with each chunk (ckpt/ckpt.h). The result
 * is a block of the matrix, with a byte offset in a file and two byte strides. The rows are cut
 * into bands, so that every block of a band has all of the band's rows. A byte range is found by
 * one binary search over the bands.
 *
 *   band 0  | block | block | block | block |   a row-parallel weight has one band of TP blocks
 *   band 1  |             block             |   a column-parallel weight has one band a rank
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
	uint64_t col, width;		 /* elements of each row of the band */
	uint64_t src;			 /* byte offset in file of the band's first row at col */
	uint64_t row_stride, col_stride; /* bytes */
	uint32_t file;
};

struct mfs_plan_band {
	uint64_t row, rows;
	uint32_t first, count; /* blocks, ordered by column */
};

struct mfs_plan {
	struct mfs_fileset *files;
	uint64_t rows, cols;
	unsigned element;     /* bytes of an element of the sources */
	enum mfs_dtype dtype; /* of the sources */
	enum mfs_dtype shown; /* of the target; another one: elements are cast when they are read */
	enum mfs_op op;	      /* before the cast */
	struct mfs_plan_band *bands;
	uint32_t band_count;
	struct mfs_plan_block *blocks;
	uint32_t block_count;
};

/* Plans a target. Every chunk's storage is located, which may read a few bytes of each file.
 * -EINVAL, with the tensor's name: some element has no source, or more than one; the sources are of
 * several dtypes. -ENOTSUP: they are of one that cannot be cast to the target's. */
int mfs_plan_new(const struct mfs_target *t, struct mfs_plan **ret, struct mfs_error *err);
void mfs_plan_free(struct mfs_plan *plan);

/* Adds bytes [off, off+len) of the target to a gather. Errors: those of mfs_vfile_gather(). */
int mfs_plan_gather(const struct mfs_plan *plan, uint64_t off, uint64_t len, struct mfs_gather *g,
		    struct mfs_error *err);

/* Asks the kernel to read the sources of a byte range of the target ahead. Best effort. */
void mfs_plan_willneed(const struct mfs_plan *plan, uint64_t off, uint64_t len);

#endif
