/* A line for each reply. */
#ifndef MFS_FS_GATEWAY_ACCESS_LOG_H
#define MFS_FS_GATEWAY_ACCESS_LOG_H

#include "fs/gateway/call/call.h"

/* A line of the access log, for a reply that has ended. */
void mfs_access_log(const struct mfs_gateway *g, const struct mfs_request *q,
		    const struct mfs_reply *a, uint64_t sent, bool whole);

#endif
