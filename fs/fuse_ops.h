/* The FUSE operations; for fuse_session.c alone. */
#ifndef MFS_FS_FUSE_OPS_H
#define MFS_FS_FUSE_OPS_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

/* Session data of these operations is the struct mfs_tree to show. */
extern const struct fuse_lowlevel_ops mfs_fuse_ops;

#endif
