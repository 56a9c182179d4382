/* The messages to a fetcher. Private to fetcher.c and fetcher_main.c. */
#ifndef MFS_FS_PREFETCH_FETCHER_I_H
#define MFS_FS_PREFETCH_FETCHER_I_H

#include <limits.h>
#include <stdint.h>

/* One message. The answer to an order with a len is an int: 0 or -errno. */
struct mfs_fetcher_order {
	uint64_t off, len; /* bytes; len 0 calls the order before it off */
	char path[PATH_MAX];
};

#endif
