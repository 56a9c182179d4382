/* S3's protocol, on an address of its own: buckets' names are all that its paths begin with. */
#ifndef MFS_FS_GATEWAY_S3_S3_H
#define MFS_FS_GATEWAY_S3_S3_H

#include "fs/http/message.h"

/* For struct mfs_http_config; arg is the gateway. */
void mfs_gateway_answer_s3(void *arg, const struct mfs_request *q, struct mfs_reply *a);

#endif
