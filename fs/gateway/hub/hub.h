/* huggingface.co's protocol: models and datasets. */
#ifndef MFS_FS_GATEWAY_HUB_HUB_H
#define MFS_FS_GATEWAY_HUB_HUB_H

#include "fs/gateway/call/call.h"

extern const struct mfs_protocol mfs_protocol_hub;

#endif
