/* numpy's .npy files of version 1.0 in C order. The header is what numpy.save writes, to the byte
 * (numpy/lib/format.py). */
#ifndef MFS_DATASET_FILES_NPY_H
#define MFS_DATASET_FILES_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/base/tensor.h"
#include "formats/plan/vfile.h"

#define MFS_NPY_HEADER_MAX 256

/* Writes the header of an array of at most 2 axes; returns its length, a multiple of 64. dtype is
 * one of numpy's own: integers, float16, float32, float64, bool. */
size_t mfs_npy_header(enum mfs_dtype dtype, const uint64_t *shape, unsigned ndim,
		      uint8_t ret[MFS_NPY_HEADER_MAX]);

/* Makes the file of an array: its header, then bytes that `object` computes (vfile.h). */
int mfs_npy_file(enum mfs_dtype dtype, const uint64_t *shape, unsigned ndim,
		 const struct mfs_computed_ops *ops, void *object, struct mfs_vfile **ret,
		 struct mfs_error *err);

#endif
