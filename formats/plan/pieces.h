/*
 * Where the bytes of a rectangle of a virtual file lie, for those who read sources in the order of
 * their files (formats/load), and for those who ask (`mcorefs extents`).
 *
 * A rectangle is rows of bytes at equal distances. It is cut into pieces, which are rectangles
 * again, each of which is all of one kind and of one source file. Together they cover each byte of
 * the rectangle once.
 */
#ifndef MFS_PLAN_PIECES_H
#define MFS_PLAN_PIECES_H

#include <stdint.h>

#include "formats/base/error.h"

struct mfs_fileset;
struct mfs_plan;
struct mfs_vfile;

enum mfs_piece_kind {
	MFS_PIECE_SOURCE, /* bytes of a source file, as they are there */
	MFS_PIECE_ZEROS,
	MFS_PIECE_MEMORY,   /* bytes in memory */
	MFS_PIECE_COMPUTED, /* cast, merged, transposed, or computed: mfs_vfile_gather() alone gives
			       them */
};

struct mfs_rectangle {
	uint64_t at;	      /* offset of the first byte in the virtual file */
	uint64_t rows, width; /* bytes of a row */
	uint64_t step; /* bytes from a row to the next, at least width; any if there is one row */
};

struct mfs_piece {
	enum mfs_piece_kind kind;
	struct mfs_rectangle of;
	/* of MFS_PIECE_SOURCE; of MFS_PIECE_COMPUTED those that it is computed from, or NULL */
	struct mfs_fileset *files;
	/* of MFS_PIECE_SOURCE */
	uint32_t file;
	uint64_t off, row_step; /* of the first row; from a row to the next */
	/* of MFS_PIECE_MEMORY: the first byte of its only row */
	const uint8_t *bytes;
};

/* Stops the walk with what it returns, unless that is 0. */
typedef int mfs_piece_visit(void *arg, const struct mfs_piece *piece);

/* All pieces of a rectangle, which lies in the file. -EINVAL, with the tensor's name, and other
 * errors of mfs_plan_new(); what visit has returned. */
int mfs_vfile_pieces(struct mfs_vfile *f, const struct mfs_rectangle *r, mfs_piece_visit *visit,
		     void *arg, struct mfs_error *err);

/* Like mfs_vfile_pieces(), for a target, whose first byte is at `base` of the virtual file. */
int mfs_plan_pieces(const struct mfs_plan *plan, uint64_t base, const struct mfs_rectangle *r,
		    mfs_piece_visit *visit, void *arg);

#endif
