/* Times as nanoseconds. */
#ifndef MFS_BASE_CLOCK_H
#define MFS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t mfs_ns(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* By the monotonic clock, which nobody sets. */
static inline int64_t mfs_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return mfs_ns(t);
}

#endif
