/*
 * An array of zarr version 2: a directory with `.zarray`, JSON that says what the array is, and a
 * file for each chunk of a regular grid, named by its place in the grid ("2.0.1").
 *
 * Sources: the zarr v2 specification; megatron/core/dist_checkpointing/strategies/zarr.py (core
 * 0.5 to 0.15), which writes chunks uncompressed, in row-major order and with no fill value.
 */
#ifndef MFS_CKPT_READ_ZARRAY_H
#define MFS_CKPT_READ_ZARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"

struct mfs_zarray {
	enum mfs_dtype dtype;
	uint8_t ndim;
	uint64_t shape[MFS_MAX_DIMS];
	/* Elements that the file of a chunk has along each axis. At the end of an axis that they do
	 * not divide, the last chunk's file has as many, too, of which the array has fewer. */
	uint64_t chunk[MFS_MAX_DIMS];
	uint64_t chunks;      /* of the whole grid */
	uint64_t chunk_bytes; /* of each file */
};

/* name: the file's, for messages. -EINVAL: it is no .zarray; -ENOTSUP: compressed, filtered,
 * column-major or nested chunks, or an element type that tensors do not have. */
int mfs_zarray_parse(const void *text, size_t len, const char *name, struct mfs_zarray *ret,
		     struct mfs_error *err);

/* The box of the array that a chunk's file holds, [ndim] elements each. False: this is no name of a
 * chunk of the grid. */
bool mfs_zarray_chunk(const struct mfs_zarray *a, const char *name, uint64_t *ret_lo,
		      uint64_t *ret_size);

#endif
