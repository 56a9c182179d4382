/*
 * Box algebra: how the bytes of one target tensor are gathered from chunks of its source tensors.
 *
 * The target is seen as a matrix. All axes but the last are its rows; the last axis is its columns.
 * Each box of the target (ckpt/target.h) is intersected with each chunk (ckpt/ckpt.h). The result
 * is a block of the matrix, with a byte offset in a file and two byte strides. The rows are cut
 * into bands, so that every block of a band has all of the band's rows. A byte range is found by
 * one binary search over the bands.
 *
 * Where tensors alternate along the columns, these have lanes (ckpt/target.h). A block then is in
 * one lane, and its columns are counted in it.
 *
 *   band 0  | block | block | block | block |   a row-parallel weight has one band of TP blocks
 *   band 1  |             block             |   a column-parallel weight has one band a rank
 */
#ifndef MFS_PLAN_PLAN_H
#define MFS_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/ckpt/fp8_target.h"
#include "formats/ckpt/target.h"
#include "formats/io/fileset.h"
#include "formats/plan/vfile.h"

#define MFS_FILE_NONE	UINT32_MAX /* a block of zeros */
#define MFS_SCALES_NONE UINT32_MAX /* a block whose elements are what they are */

struct mfs_plan_reader;
struct mfs_plan_taker_ops;

struct mfs_plan_block {
	uint64_t col, width;		 /* elements of each row of the band */
	uint64_t src;			 /* byte offset in file of the band's first row at col */
	uint64_t row_stride, col_stride; /* bytes */
	uint32_t file;
	uint32_t scales; /* number of the scales in the plan's list, or MFS_SCALES_NONE */
	uint32_t lane;
};

/* Where a matrix of 8-bit floats and its scales lie. */
struct mfs_plan_scales {
	struct mfs_ckpt_scales of;
	uint64_t matrix; /* byte offset in the block's file */
	uint64_t at;	 /* and of the scales, in file */
	uint32_t file;
};

/* A thin matrix of an adapter in memory, as [rank, count]: out of it is transposed. */
struct mfs_plan_factor {
	const struct mfs_global_tensor *of;
	float *values;
	uint64_t count, rank;
};

/*
 * A rectangle of the target to which a product of two factors is added (ckpt/delta.h). The element
 * in its row i and column j belongs to column at[f] + i * row_step[f] + j * col_step[f] of factor
 * f.
 */
struct mfs_plan_delta {
	uint64_t row, rows, col, cols;
	uint32_t factor[2]; /* numbers in the plan's: out, in */
	uint64_t at[2], row_step[2], col_step[2];
	float scale;
};

struct mfs_plan_band {
	uint64_t row, rows;
	uint32_t first, count; /* blocks, ordered by lane and column */
	bool apart;	       /* its elements are copied one by one */
	bool contiguous;       /* its bytes follow one another in one file */
	/* How it is read (plan_read_i.h). */
	int (*gather)(struct mfs_plan_reader *r, const struct mfs_plan_band *band, uint64_t off,
		      uint64_t len);
};

struct mfs_plan {
	struct mfs_fileset *files;
	uint64_t rows, cols;  /* cols: of all lanes together */
	unsigned lanes;	      /* 1 or more */
	unsigned element;     /* bytes of an element of the sources */
	enum mfs_dtype dtype; /* of the sources */
	enum mfs_dtype shown; /* of the target; another one: elements are cast when they are read */
	enum mfs_op op;	      /* before the cast */
	/* of MFS_OP_QUANTISE and MFS_OP_SCALES: what is known (ckpt/fp8_target.h); rows and cols
	 * are the matrix' */
	struct mfs_fp8_scales *known;
	struct mfs_fp8_parts parts;	/* in the place of known: what has scales of its own */
	struct mfs_plan_scales *scales; /* of the sources */
	uint32_t scales_count;
	struct mfs_plan_factor *factors; /* of an adapter */
	uint32_t factor_count;
	struct mfs_plan_delta *deltas; /* ordered by row */
	uint32_t delta_count;
	const struct mfs_plan_taker_ops *taker; /* of elements that are read (plan_read_i.h) */
	struct mfs_plan_band *bands;
	uint32_t band_count;
	struct mfs_plan_block *blocks;
	uint32_t block_count;
};

/* Plans a target. Every chunk's storage is located, which may read a few bytes of each file; what
 * an adapter adds to it is read whole, and kept as float32. -EINVAL, with the tensor's name: some
 * element has no source, or more than one; the sources are of several dtypes. -ENOTSUP: they are of
 * one that cannot be cast to the target's. */
int mfs_plan_new(const struct mfs_target *t, struct mfs_plan **ret, struct mfs_error *err);
void mfs_plan_free(struct mfs_plan *plan);

/* Adds bytes [off, off+len) of the target to a gather. Errors: those of mfs_vfile_gather(). */
int mfs_plan_gather(const struct mfs_plan *plan, uint64_t off, uint64_t len, struct mfs_gather *g,
		    struct mfs_error *err);

/* Asks the kernel to read the sources of a byte range of the target ahead. Best effort. */
void mfs_plan_willneed(const struct mfs_plan *plan, uint64_t off, uint64_t len);

#endif
