/* Mounts a tree and serves it. */
#ifndef MFS_FS_FUSE_SESSION_H
#define MFS_FS_FUSE_SESSION_H

#include "formats/base/error.h"
#include "fs/cli/options.h"

struct mfs_daemon;
struct mfs_overlay;
struct mfs_tree;

/*
 * Mounts at mountpoint (absolute) and serves until somebody unmounts it or a signal ends it; then
 * it unmounts. overlay takes what is written; NULL: the mount is read-only. mfs_daemon_ready() is
 * called when the mount answers. fsname is the device in /proc/mounts. 0: it was ended by unmount
 * or signal; -errno: it could not be mounted, or serving failed.
 */
int mfs_session_run(struct mfs_tree *tree, struct mfs_overlay *overlay,
		    const struct mfs_options *opt, const char *fsname, const char *mountpoint,
		    struct mfs_daemon *daemon, struct mfs_error *err);

/* "3.14.0" */
const char *mfs_session_library(void);

#endif
