/*
 * numpy.sum of float64, whose order of additions decides the last bit of every blend weight
 * (numpy/_core/src/umath/loops_utils.h.src: pairwise_sum): fewer than 8 one after the other; up to 128 in
 * eight accumulators; more in two halves, the first a multiple of 8.
 */
#ifndef MFS_DATASET_GPT_NUMPY_SUM_H
#define MFS_DATASET_GPT_NUMPY_SUM_H

#include <stddef.h>

double mfs_numpy_sum(const double *v, size_t count);

#endif
