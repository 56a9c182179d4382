/* What browsers, scripts and probes read. */
#ifndef MFS_FS_GATEWAY_WEB_WEB_H
#define MFS_FS_GATEWAY_WEB_WEB_H

#include "fs/gateway/call/call.h"

extern const struct mfs_protocol mfs_protocol_files;  /* /files/: plain files by range */
extern const struct mfs_protocol mfs_protocol_status; /* /, /healthz, /metrics */

#endif
