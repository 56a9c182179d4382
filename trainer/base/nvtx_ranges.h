/*
 * Ranges of time with names (NVTX), in which a profiler shows the kernels that were submitted in
 * them. They are pushed with MCOREFS_TRACE=nvtx or --nvtx-ranges, for a tool that the environment
 * names (NVTX_INJECTION64_PATH; nsys sets it). A program that was built without CUDA's headers
 * pushes none, and says so.
 *
 * Ranges nest, thread by thread: a function ends what it has begun, on each of its ways out. A
 * name is made only if ranges are on; otherwise a range costs the tests of two bits.
 */
#ifndef MFT_TRAINER_BASE_NVTX_RANGES_H
#define MFT_TRAINER_BASE_NVTX_RANGES_H

#include <stdbool.h>

#include "formats/base/trace.h"

/* Before there are threads. wanted: switches them on if MCOREFS_TRACE has not. */
void mft_ranges_open(bool wanted);

void mft_range_push(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void mft_range_pop(void);

/* MFT_RANGE_BEGIN("layer %u", number) ... MFT_RANGE_END() */
#define MFT_RANGE_BEGIN(...)                                                                       \
	do {                                                                                       \
		if (MFS_TRACES(NVTX))                                                              \
			mft_range_push(__VA_ARGS__);                                               \
	} while (0)

#define MFT_RANGE_END()                                                                            \
	do {                                                                                       \
		if (MFS_TRACES(NVTX))                                                              \
			mft_range_pop();                                                           \
	} while (0)

#endif
