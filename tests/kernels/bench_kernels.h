/* How fast a backend's operations are, compared with a copy and a product measured in the same
 * run. */
#ifndef MFK_TESTS_BENCH_KERNELS_H
#define MFK_TESTS_BENCH_KERNELS_H

#include "kernels/kernels.h"

/* Prints a line for each operation, at most so many seconds long. Returns the number of operations
 * that failed. Sizes are those of a training step of a Llama-3-8B layer on 8192 tokens. */
int bench_kernels(const struct mfk_backend *b, double seconds, const char *only);

#endif
