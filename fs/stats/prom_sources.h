/* What this process has read of its sources, and made of it (formats/base/tally.h). */
#ifndef MFS_FS_STATS_PROM_SOURCES_H
#define MFS_FS_STATS_PROM_SOURCES_H

#include "formats/base/buf.h"

void mfs_prom_sources(struct mfs_buf *out, const char *common);

#endif
