/*
 * The gateway: requests to replies. A protocol is a row that a folder below has, and a line in
 * protocols[] (gateway.c). S3 has an address of its own instead (fs/gateway/s3/s3.h).
 */
#ifndef MFS_FS_GATEWAY_GATEWAY_H
#define MFS_FS_GATEWAY_GATEWAY_H

#include "fs/gateway/call/call.h"

/* For struct mfs_http_config; arg is the gateway. */
void mfs_gateway_answer(void *arg, const struct mfs_request *q, struct mfs_reply *a);
void mfs_gateway_done(void *arg, const struct mfs_request *q, const struct mfs_reply *a,
		      uint64_t sent, bool whole);

#endif
