/* Cuts a range of a flattened tensor into boxes: a partial row, whole rows, a partial row. */
#ifndef MFS_OPTIM_READ_RANGE_BOXES_H
#define MFS_OPTIM_READ_RANGE_BOXES_H

#include <stdint.h>

#include "formats/base/tensor.h"

/* A box whose elements are consecutive in the flattened tensor. at: offset of its first element in
 * the range. */
typedef int (*mfs_emit_range_box)(const uint64_t *lo, const uint64_t *size, uint64_t at, void *arg);

/*
 * Cuts elements [first, first + count) of a row-major tensor into at most 2 * ndim - 1 boxes. The
 * range must lie in the tensor, and the product of shape must not overflow. Stops when emit returns
 * non-zero, and returns that value.
 */
int mfs_range_boxes(const uint64_t *shape, unsigned ndim, uint64_t first, uint64_t count,
		    mfs_emit_range_box emit, void *arg);

#endif
