/* Mounting a tree and serving it; libfuse stays behind this. */
#ifndef MFS_FS_MOUNT_FUSE_SESSION_H
#define MFS_FS_MOUNT_FUSE_SESSION_H

#include "formats/base/error.h"
#include "fs/cli/options.h"

struct mfs_daemon;
struct mfs_overlay;
struct mfs_tree;

/*
 * Mounts at mountpoint (absolute) and serves until it is unmounted or a signal asks for the end,
 * then unmounts. overlay takes what is written; NULL: the mount is read-only. The daemon is told
 * once the mount answers. fsname is what /proc/mounts shows as the device. 0: ended as asked;
 * -errno with the reason if it could not be mounted or broke.
 */
int mfs_session_run(struct mfs_tree *tree, struct mfs_overlay *overlay,
		    const struct mfs_options *opt, const char *fsname, const char *mountpoint,
		    struct mfs_daemon *daemon, struct mfs_error *err);

/* "3.14.0" */
const char *mfs_session_library(void);

#endif
