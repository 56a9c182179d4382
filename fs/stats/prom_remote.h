/* What was counted of sources that are URLs, and of their cache (formats/remote/cache.h). */
#ifndef MFS_FS_STATS_PROM_REMOTE_H
#define MFS_FS_STATS_PROM_REMOTE_H

#include "formats/base/buf.h"

struct mfs_cache_stats;

void mfs_prom_remote(struct mfs_buf *out, const char *common, const struct mfs_cache_stats *n);

#endif
