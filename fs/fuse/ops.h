/* The FUSE operations. Private to this folder. */
#ifndef MFS_FS_FUSE_OPS_H
#define MFS_FS_FUSE_OPS_H

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>
#include <pthread.h>

#include "formats/base/buf.h"
#include "fs/fuse/metrics.h"
#include "fs/overlay/overlay.h"
#include "fs/tree/tree.h"

/* Session data of these operations. */
struct mfs_front {
	struct mfs_tree *tree;
	struct mfs_overlay *overlay; /* NULL: nothing is written */
	struct mfs_buf settings;     /* fs/fuse/remount.h */
	bool others;		     /* other users have access by permissions, which may change */
	atomic_uint open_files;	     /* of the tree */
	int64_t began;		     /* seconds since 1970 */
	const struct fuse_lowlevel_ops *ops; /* below fs/fuse/ops_outer.c */
	struct mfs_stats *stats;	     /* fs/fuse/metrics.h */
	struct mfs_metrics_of metrics;
	struct mfs_prefetch *prefetch; /* NULL: nothing is fetched ahead of readers */
	pthread_key_t gathers;	       /* one for each thread that reads */
};

/* Makes and releases what the operations keep in it. The thread that served, or that started the
 * serving threads, releases it. */
int mfs_front_init(struct mfs_front *front, struct mfs_error *err);
void mfs_front_release(struct mfs_front *front);

/* For a read-only mount, which the kernel lets nobody write to. */
extern const struct fuse_lowlevel_ops mfs_fuse_ops;
/* For a mount with an overlay in addition to the tree. */
extern const struct fuse_lowlevel_ops mfs_fuse_overlay_ops;

/* Operations around a set of these, which is the front's ops: they time them, and serve
 * .mcorefs/. */
void mfs_fuse_outer_ops(const struct fuse_lowlevel_ops *ops, struct fuse_lowlevel_ops *ret);

/* Both sets of operations use these. */

/* fuse_reply_err(), with a note for the counters of what this thread has replied. */
int mfs_fuse_reply_err(fuse_req_t req, int code);
/* The same note, where a failure is told in another way. */
void mfs_fuse_note(int code);
/* What was noted since the last call; 0: nothing. */
int mfs_fuse_noted(void);

struct mfs_front *mfs_fuse_front(fuse_req_t req);
/* The node of an id of the tree. */
struct mfs_node *mfs_fuse_node(fuse_req_t req, fuse_ino_t id);
/* The kernel has forgotten times lookups of a node. */
void mfs_fuse_forget(fuse_req_t req, fuse_ino_t id, uint64_t times);
/* Looks at SOURCE unless that was done just now. If SOURCE cannot be read, the tree stays as it is.
 * Any thread. */
void mfs_fuse_refresh(struct mfs_tree *tree);
/* Logs a sentence about a node, once for each kind of failure. After -ESTALE its source is looked
 * at. */
void mfs_fuse_complain(struct mfs_node *node, int code, const char *reason);
/* The entries of a directory, until mfs_tree_close_dir(). NULL: it failed, and the reason is
 * logged. */
const struct mfs_dir *mfs_fuse_open_dir(fuse_req_t req, struct mfs_node *node);
/* Replies with a listing from off on. more may be NULL; its entries follow those of dir. */
void mfs_fuse_reply_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			    const struct mfs_dir *dir, const struct mfs_overlay_names *more,
			    bool plus);
void mfs_fuse_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		       struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_len,
		       size_t out_len);
void mfs_fuse_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
/* Used is what the tree shows. Free is what below has free: the file system of SOURCE, or of the
 * overlay. */
void mfs_fuse_statfs(const struct mfs_tree *tree, const struct statvfs *below, struct statvfs *ret);

#endif
