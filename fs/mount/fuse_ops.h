/* The FUSE operations; for fuse_session.c and fuse_overlay.c alone. */
#ifndef MFS_FS_MOUNT_FUSE_OPS_H
#define MFS_FS_MOUNT_FUSE_OPS_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <pthread.h>

#include "formats/base/buf.h"
#include "fs/mount/overlay.h"
#include "fs/mount/tree.h"

/* Session data of these operations. */
struct mfs_front {
	struct mfs_tree *tree;
	struct mfs_overlay *overlay;   /* NULL: nothing is written */
	struct mfs_buf settings;       /* fs/mount/remount.h */
	bool others;		       /* let in by permissions, which may change */
	atomic_uint open_files;	       /* of the tree */
	struct mfs_prefetch *prefetch; /* NULL: nothing is fetched ahead of readers */
	pthread_key_t gathers;	       /* one for each thread that reads */
};

/* What these operations keep in it; release: by the thread that served, or that started those which
 * did. */
int mfs_front_init(struct mfs_front *front, struct mfs_error *err);
void mfs_front_release(struct mfs_front *front);

/* Of a read-only mount: what writes does not get here. */
extern const struct fuse_lowlevel_ops mfs_fuse_ops;
/* With files of an overlay beside the tree's. */
extern const struct fuse_lowlevel_ops mfs_fuse_overlay_ops;

/* What both share. */

struct mfs_front *mfs_fuse_front(fuse_req_t req);
/* The node that an id of the tree is of. */
struct mfs_node *mfs_fuse_node(fuse_req_t req, fuse_ino_t id);
/* The kernel knows a node of the tree so many times less. */
void mfs_fuse_forget(fuse_req_t req, fuse_ino_t id, uint64_t times);
/* Looks at SOURCE, if that was not done just now; what was known stays shown if it cannot be looked
 * at. Any thread. */
void mfs_fuse_refresh(struct mfs_tree *tree);
/* Logs a sentence about a node once per kind of failure; -ESTALE has its source looked at. */
void mfs_fuse_complain(struct mfs_node *node, int code, const char *reason);
/* The entries of a directory; NULL: they cannot be had, and it has been said why. */
const struct mfs_dir *mfs_fuse_list(fuse_req_t req, struct mfs_node *node);
/* A listing from off on; more (which may be NULL) stands behind the entries of dir. */
void mfs_fuse_reply_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			    const struct mfs_dir *dir, const struct mfs_overlay_names *more,
			    bool plus);
void mfs_fuse_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		       struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_len,
		       size_t out_len);
void mfs_fuse_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
/* What the tree shows, as used, and what is free below: where SOURCE lies, or what readers
 * write. */
void mfs_fuse_statfs(const struct mfs_tree *tree, const struct statvfs *below, struct statvfs *ret);

#endif
