/* What a test asks of the driver that stands in for CUDA's (fake_driver.c), by dlsym(). */
#ifndef MFS_TEST_GPU_FAKE_DRIVER_H
#define MFS_TEST_GPU_FAKE_DRIVER_H

#include <stddef.h>

struct fake_driver_counts {
	unsigned copies; /* that were asked for */
	unsigned pinned; /* ranges that are pinned now */
};

/* Makes memory of the host the device's, until it is taken back. */
void fake_driver_give(void *p, size_t size);
void fake_driver_take(void *p);
struct fake_driver_counts fake_driver_tell(void);

#endif
