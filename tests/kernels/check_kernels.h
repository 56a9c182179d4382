/*
 * Checks a backend's operations against their definitions in double precision: fresh random inputs,
 * odd sizes, outputs that hold NaNs before and have guards around them.
 *
 * The same file checks mfk_cpu in the unit tests and CUDA on a GPU: it knows nothing but kernels.h.
 */
#ifndef MFK_TESTS_CHECK_KERNELS_H
#define MFK_TESTS_CHECK_KERNELS_H

#include "kernels/kernels.h"

/* Runs all checks, or those of names that begin with `only` (NULL: all), three times with the same
 * inputs, with 1, 2 and 3 threads: all must give the same bits. Operations that the backend lacks
 * (NULL) are skipped. Says what is wrong on stderr, with the seed that leads there again
 * (MFK_SEED); returns the number of failures. */
int check_kernels(const struct mfk_backend *b, const char *only);

#endif
