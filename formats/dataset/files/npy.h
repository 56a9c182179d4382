/* numpy's .npy files of version 1.0 in C order, header to the byte as numpy.save writes it
 * (numpy/lib/format.py). */
#ifndef MFS_DATASET_FILES_NPY_H
#define MFS_DATASET_FILES_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/source.h"
#include "formats/base/tensor.h"

#define MFS_NPY_HEADER_MAX 256 /* of the headers that are written here */

/* Writes the header of an array of at most 2 axes; returns its length, a multiple of 64. dtype is one of
 * numpy's own: integers, float16, float32, float64, bool. */
size_t mfs_npy_header(enum mfs_dtype dtype, const uint64_t *shape, unsigned ndim,
		      uint8_t ret[MFS_NPY_HEADER_MAX]);

struct mfs_npy {
	enum mfs_dtype dtype;
	unsigned ndim;
	uint64_t shape[MFS_MAX_DIMS];
	uint64_t data; /* offset of the first element */
};

/* -EINVAL: not a .npy, or its size is not its shape's; -ENOTSUP: big-endian, Fortran order, objects. */
int mfs_npy_open(const struct mfs_source *src, struct mfs_npy *ret, struct mfs_error *err);

#endif
