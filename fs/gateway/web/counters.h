/* The gateway's counters, for who runs it. */
#ifndef MFS_FS_GATEWAY_WEB_COUNTERS_H
#define MFS_FS_GATEWAY_WEB_COUNTERS_H

#include "fs/gateway/call/call.h"

void mfs_page_add_counters(struct mfs_gateway *g, struct mfs_buf *b);

#endif
