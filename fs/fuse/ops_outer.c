/*
 * The outermost operations of a mount. They time what the others do (fs/fuse/metrics.h), and hand
 * what is asked of .mcorefs/ to control.c.
 */
#include <errno.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "fs/fuse/control.h"
#include "fs/fuse/ops.h"

/* What an operation needs after its reply, when req is gone. */
struct timing {
	struct mfs_stats *stats;
	enum mfs_metric op;
	int64_t began;
};

static struct timing begin(fuse_req_t req, enum mfs_metric op)
{
	mfs_fuse_noted(); /* of an operation that is not counted */
	mfs_metrics_begin(mfs_fuse_front(req)->stats);
	return (struct timing){mfs_fuse_front(req)->stats, op, mfs_now_ns()};
}

static void end(const struct timing *t)
{
	mfs_metrics_end(t->stats, t->op, mfs_fuse_noted(), (uint64_t)(mfs_now_ns() - t->began));
}

static const struct fuse_lowlevel_ops *inner(fuse_req_t req)
{
	return mfs_fuse_front(req)->ops;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct timing t = begin(req, MFS_OP_LOOKUP);

	if (!mfs_control_look_up(req, parent, name))
		inner(req)->lookup(req, parent, name);
	end(&t);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_GETATTR);
	const struct mfs_control *c = mfs_control_of(ino);
	struct stat st;

	if (c) {
		mfs_control_stat(req, c, &st);
		fuse_reply_attr(req, &st, MFS_CONTROL_SECONDS);
	} else {
		inner(req)->getattr(req, ino, fi);
	}
	end(&t);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	const struct timing t = begin(req, MFS_OP_READLINK);

	inner(req)->readlink(req, ino);
	end(&t);
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_OPENDIR);

	if (mfs_control_of(ino))
		fuse_reply_open(req, fi);
	else
		inner(req)->opendir(req, ino, fi);
	end(&t);
}

/* The control directory lists nothing either: who looks for files by a pattern finds none. */
static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_READDIR);

	if (mfs_control_of(ino))
		fuse_reply_buf(req, NULL, 0);
	else
		inner(req)->readdir(req, ino, size, off, fi);
	end(&t);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_READDIR);

	if (mfs_control_of(ino))
		fuse_reply_buf(req, NULL, 0);
	else
		inner(req)->readdirplus(req, ino, size, off, fi);
	end(&t);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (mfs_control_of(ino))
		mfs_fuse_reply_err(req, 0);
	else
		inner(req)->releasedir(req, ino, fi);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_OPEN);
	const struct mfs_control *c = mfs_control_of(ino);

	if (c)
		mfs_control_open(req, c, fi);
	else
		inner(req)->open(req, ino, fi);
	end(&t);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_READ);

	if (mfs_control_of(ino))
		mfs_control_read(req, size, off, fi);
	else
		inner(req)->read(req, ino, size, off, fi);
	end(&t);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_FLUSH);

	if (mfs_control_of(ino))
		mfs_fuse_reply_err(req, 0);
	else
		inner(req)->flush(req, ino, fi);
	end(&t);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct timing t = begin(req, MFS_OP_RELEASE);

	if (mfs_control_of(ino)) {
		mfs_control_release(fi);
		mfs_fuse_reply_err(req, 0);
	} else {
		inner(req)->release(req, ino, fi);
	}
	end(&t);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	const struct timing t = begin(req, MFS_OP_STATFS);

	inner(req)->statfs(req, ino);
	end(&t);
}

/* ---- writing: only an overlay has these, and nothing of the control directory is written ---- */

static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	if (mfs_control_of(ino))
		mfs_fuse_reply_err(req, mask & W_OK ? EROFS : 0);
	else
		inner(req)->access(req, ino, mask);
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	if (mfs_control_of(parent))
		mfs_fuse_reply_err(req, EROFS);
	else
		inner(req)->create(req, parent, name, mode, fi);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	if (mfs_control_of(parent))
		mfs_fuse_reply_err(req, EROFS);
	else
		inner(req)->unlink(req, parent, name);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	if (mfs_control_of(parent) || mfs_control_of(new_parent))
		mfs_fuse_reply_err(req, EROFS);
	else
		inner(req)->rename(req, parent, name, new_parent, new_name, flags);
}

/* The others are the inner ones: they look at no node, or take an id of the control directory for
 * one that cannot be written. */
void mfs_fuse_outer_ops(const struct fuse_lowlevel_ops *ops, struct fuse_lowlevel_ops *ret)
{
	*ret = *ops;
	ret->lookup = op_lookup;
	ret->getattr = op_getattr;
	ret->readlink = op_readlink;
	ret->opendir = op_opendir;
	ret->readdir = op_readdir;
	ret->readdirplus = op_readdirplus;
	ret->releasedir = op_releasedir;
	ret->open = op_open;
	ret->read = op_read;
	ret->flush = op_flush;
	ret->release = op_release;
	ret->statfs = op_statfs;
	ret->access = ops->access ? op_access : NULL;
	ret->create = ops->create ? op_create : NULL;
	ret->unlink = ops->unlink ? op_unlink : NULL;
	ret->rename = ops->rename ? op_rename : NULL;
}
