/*
 * .mcorefs/, a directory of the root that no listing names: info.json and stats.
 *
 * Ids of the tree are large (fs/tree/node_ids.h), so a few small even ones are left for it. Its
 * files are made when they are opened, and read past the page cache.
 */
#ifndef MFS_FS_FUSE_CONTROL_H
#define MFS_FS_FUSE_CONTROL_H

#include <stdbool.h>

#include "fs/fuse/ops.h"

#define MFS_CONTROL_SECONDS 1.0 /* attributes and names are kept by the kernel */

struct mfs_control;

/* The control directory or file that has this id. NULL: the id is that of something else. */
const struct mfs_control *mfs_control_of(fuse_ino_t id);
/* Anyone who may read the root may read these files. The size is 0, as in /proc: it is not known
 * before an open. */
void mfs_control_stat(fuse_req_t req, const struct mfs_control *c, struct stat *ret);

/* These reply. */

/* Replies if the name in parent is one of the control directory's. False: it is not, and no reply
 * was sent. */
bool mfs_control_look_up(fuse_req_t req, fuse_ino_t parent, const char *name);
void mfs_control_open(fuse_req_t req, const struct mfs_control *c, struct fuse_file_info *fi);
void mfs_control_read(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi);

/* Releases what belongs to an open file. It does not reply. */
void mfs_control_release(struct fuse_file_info *fi);

#endif
