/* S3's protocol, for an address of its own: buckets' names are all that its paths begin with. */
#ifndef MFS_FS_GATEWAY_S3_S3_H
#define MFS_FS_GATEWAY_S3_S3_H

#include "fs/gateway/call/call.h"

extern const struct mfs_protocol mfs_protocol_s3;

#endif
