/*
 * The FUSE operations of a mount that takes files. They serve the files of the overlay, and pass
 * all others to the read-only operations of the tree.
 *
 * An id with its lowest bit set is of an overlay file, whose address it is but for that; all others
 * are of the tree (fs/tree/node_ids.h). The root's id is tested first. So the handle of an overlay
 * file lasts as long as the kernel knows the file; its generation tells the file from a later one
 * at that address. The form of a name alone says whether it belongs to the overlay.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fs/fuse/ops.h"

#define BRIEFLY 1.0 /* seconds: another mount may use DIR too */

static struct mfs_overlay *overlay_of(fuse_req_t req)
{
	return mfs_fuse_front(req)->overlay;
}

static fuse_ino_t id_of(const struct mfs_overlay_file *f)
{
	return (uintptr_t)f | 1;
}

/* NULL: the id is of the tree. */
static struct mfs_overlay_file *file_of(fuse_ino_t id)
{
	if (id == FUSE_ROOT_ID || !(id & 1))
		return NULL;
	return (struct mfs_overlay_file *)(uintptr_t)(id & ~(fuse_ino_t)1);
}

/* The overlay's path of the directory if it keeps files of that name; NULL: it does not. */
static const char *place(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	return mfs_overlay_takes(name) ? mfs_fuse_node(req, parent)->overlay : NULL;
}

/* Errors that the owner of the mount should know are logged too. */
static void reply_failure(fuse_req_t req, fuse_ino_t parent, int rc, const struct mfs_error *err)
{
	if (rc != -ENOENT && rc != -EEXIST && rc != -ENOSPC && rc != -EDQUOT)
		mfs_fuse_complain(mfs_fuse_node(req, parent), rc, err->msg);
	mfs_fuse_reply_err(req, -rc);
}

static int fill_entry(const struct mfs_overlay_file *f, struct fuse_entry_param *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->ino = id_of(f);
	ret->generation = mfs_overlay_file_generation(f);
	ret->attr_timeout = ret->entry_timeout = BRIEFLY;
	return mfs_overlay_file_stat(f, &ret->attr);
}

/* ---- names ---- */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const char *path;
	struct fuse_entry_param entry;
	struct mfs_overlay_file *f;
	struct mfs_error err;
	int rc;

	/* The kernel asks for a file by its id when it has forgotten it; the address is of nothing
	 * then. */
	if (file_of(parent)) {
		mfs_fuse_reply_err(req, ESTALE);
		return;
	}
	path = place(req, parent, name);
	if (!path) {
		mfs_fuse_ops.lookup(req, parent, name);
		return;
	}
	rc = mfs_overlay_lookup(overlay_of(req), path, name, &f, &err);
	if (rc) {
		reply_failure(req, parent, rc, &err);
		return;
	}
	mfs_overlay_file_guard(f, mfs_fuse_node(req, parent)->readers);
	rc = fill_entry(f, &entry);
	if (rc)
		mfs_fuse_reply_err(req, -rc);
	if (rc || fuse_reply_entry(req, &entry))
		mfs_overlay_forget(overlay_of(req), f, 1);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t times)
{
	struct mfs_overlay_file *f = file_of(ino);

	if (f)
		mfs_overlay_forget(overlay_of(req), f, times);
	else
		mfs_fuse_forget(req, ino, times);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++) {
		struct mfs_overlay_file *f = file_of(forgets[i].ino);

		if (f)
			mfs_overlay_forget(overlay_of(req), f, forgets[i].nlookup);
		else
			mfs_fuse_forget(req, forgets[i].ino, forgets[i].nlookup);
	}
	fuse_reply_none(req);
}

static void set_handle(struct fuse_file_info *fi, int fd)
{
	fi->fh = (uint64_t)fd;
	fi->noflush = (fi->flags & O_ACCMODE) == O_RDONLY;
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
		      struct fuse_file_info *fi)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct mfs_readers *readers = mfs_fuse_node(req, parent)->readers;
	struct mfs_overlay_new how = {fi->flags, mode, ctx->uid, ctx->gid, readers};
	const char *path = place(req, parent, name);
	struct fuse_entry_param entry;
	struct mfs_overlay_file *f;
	struct mfs_error err;
	int fd, rc;

	if (!path) {
		mfs_fuse_reply_err(req, EROFS);
		return;
	}
	rc = mfs_overlay_create(overlay_of(req), path, name, &how, &f, &fd, &err);
	if (rc) {
		reply_failure(req, parent, rc, &err);
		return;
	}
	set_handle(fi, fd);
	mfs_overlay_file_guard(f, readers);
	rc = fill_entry(f, &entry);
	if (rc)
		mfs_fuse_reply_err(req, -rc);
	if (rc || fuse_reply_create(req, &entry, fi)) {
		close(fd);
		mfs_overlay_forget(overlay_of(req), f, 1);
	}
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const char *path = place(req, parent, name);

	mfs_fuse_reply_err(req, path ? -mfs_overlay_unlink(overlay_of(req), path, name) : EROFS);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
		      const char *new_name, unsigned flags)
{
	const char *from = place(req, parent, name), *to = place(req, new_parent, new_name);
	int rc = -EROFS;

	if (from && to)
		rc = mfs_overlay_rename(overlay_of(req), from, name, to, new_name,
					mfs_fuse_node(req, new_parent)->readers, flags);
	mfs_fuse_reply_err(req, -rc);
}

/* ---- attributes ---- */

static void reply_attr(fuse_req_t req, const struct mfs_overlay_file *f)
{
	struct stat st;
	int rc = mfs_overlay_file_stat(f, &st);

	if (rc)
		mfs_fuse_reply_err(req, -rc);
	else
		fuse_reply_attr(req, &st, BRIEFLY);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mfs_overlay_file *f = file_of(ino);

	if (f)
		reply_attr(req, f);
	else
		mfs_fuse_ops.getattr(req, ino, fi);
}

static int set_size(const struct mfs_overlay_file *f, off_t size, struct fuse_file_info *fi)
{
	if (!fi)
		return mfs_overlay_file_truncate(f, size);
	return ftruncate((int)fi->fh, size) ? -errno : 0;
}

static struct timespec new_time(struct timespec time, int what, int now, int given)
{
	if (what & now)
		return (struct timespec){.tv_nsec = UTIME_NOW};
	return what & given ? time : (struct timespec){.tv_nsec = UTIME_OMIT};
}

static int set_times(const struct mfs_overlay_file *f, const struct stat *st, int what)
{
	const struct timespec times[2] = {
		new_time(st->st_atim, what, FUSE_SET_ATTR_ATIME_NOW, FUSE_SET_ATTR_ATIME),
		new_time(st->st_mtim, what, FUSE_SET_ATTR_MTIME_NOW, FUSE_SET_ATTR_MTIME),
	};

	return mfs_overlay_file_utimens(f, times);
}

static int set_attr(const struct mfs_overlay_file *f, const struct stat *st, int what,
		    struct fuse_file_info *fi)
{
	const int owner = FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID;
	const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME |
			  FUSE_SET_ATTR_MTIME_NOW;
	int rc = 0;

	if (what & owner)
		rc = mfs_overlay_file_chown(f, what & FUSE_SET_ATTR_UID ? st->st_uid : (uid_t)-1,
					    what & FUSE_SET_ATTR_GID ? st->st_gid : (gid_t)-1);
	if (!rc && what & FUSE_SET_ATTR_MODE)
		rc = mfs_overlay_file_chmod(f, st->st_mode);
	if (!rc && what & FUSE_SET_ATTR_SIZE)
		rc = set_size(f, st->st_size, fi);
	if (!rc && what & times)
		rc = set_times(f, st, what);
	return rc;
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *st, int what,
		       struct fuse_file_info *fi)
{
	struct mfs_overlay_file *f = file_of(ino);
	int rc = f ? set_attr(f, st, what, fi) : -EROFS;

	if (rc)
		mfs_fuse_reply_err(req, -rc);
	else
		reply_attr(req, f);
}

static bool is_place(fuse_req_t req, fuse_ino_t ino)
{
	return mfs_fuse_node(req, ino)->overlay != NULL;
}

/* The kernel asks this unless it answers itself (default_permissions). */
static void op_access(fuse_req_t req, fuse_ino_t ino, int mask)
{
	struct mfs_overlay_file *f = file_of(ino);
	int rc = 0;

	if (f)
		rc = mfs_overlay_file_access(f, mask);
	else if (mask & W_OK && !is_place(req, ino))
		rc = -EROFS;
	mfs_fuse_reply_err(req, -rc);
}

/* ---- open files ---- */

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mfs_overlay_file *f = file_of(ino);
	bool same;
	int fd, rc;

	if (!f && fi->flags & O_TRUNC) {
		mfs_fuse_reply_err(req, EROFS);
		return;
	}
	if (!f) {
		mfs_fuse_ops.open(req, ino, fi);
		return;
	}
	rc = mfs_overlay_file_open(overlay_of(req), f, fi->flags, &fd, &same);
	if (rc) {
		mfs_fuse_reply_err(req, -rc);
		return;
	}
	set_handle(fi, fd);
	fi->keep_cache = same;
	if (fuse_reply_open(req, fi))
		close(fd);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct fuse_bufvec bytes = FUSE_BUFVEC_INIT(size);

	if (!file_of(ino)) {
		mfs_fuse_ops.read(req, ino, size, off, fi);
		return;
	}
	bytes.buf[0].flags = FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK;
	bytes.buf[0].fd = (int)fi->fh;
	bytes.buf[0].pos = off;
	fuse_reply_data(req, &bytes, 0);
}

/* Only overlay files are opened for writing. */
static void op_write(fuse_req_t req, fuse_ino_t ino, const char *bytes, size_t size, off_t off,
		     struct fuse_file_info *fi)
{
	ssize_t n = pwrite((int)fi->fh, bytes, size, off);

	(void)ino;
	if (n < 0)
		mfs_fuse_reply_err(req, errno);
	else
		fuse_reply_write(req, (size_t)n);
}

/* A network file system may report a lack of room only when a file is closed. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	int copy;

	if (!file_of(ino)) {
		mfs_fuse_ops.flush(req, ino, fi);
		return;
	}
	copy = dup((int)fi->fh);
	mfs_fuse_reply_err(req, copy >= 0 && close(copy) ? errno : 0);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	int rc = 0;

	if (file_of(ino))
		rc = datasync ? fdatasync((int)fi->fh) : fsync((int)fi->fh);
	mfs_fuse_reply_err(req, rc ? errno : 0);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (!file_of(ino)) {
		mfs_fuse_ops.release(req, ino, fi);
		return;
	}
	close((int)fi->fh);
	mfs_fuse_reply_err(req, 0);
}

/* ---- directories ---- */

/* An open directory that takes files. New files show when it is read from the beginning again. */
struct open_dir {
	const struct mfs_dir *dir;
	struct mfs_overlay_names names;
};

static struct open_dir *dir_handle(const struct fuse_file_info *fi)
{
	return (struct open_dir *)(uintptr_t)fi->fh;
}

static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mfs_tree *tree = mfs_fuse_front(req)->tree;
	struct mfs_node *node = mfs_fuse_node(req, ino);
	struct open_dir *d;

	if (!is_place(req, ino)) {
		mfs_fuse_ops.opendir(req, ino, fi);
		return;
	}
	d = calloc(1, sizeof(*d));
	if (!d) {
		mfs_fuse_reply_err(req, ENOMEM);
		return;
	}
	d->dir = mfs_fuse_open_dir(req, node);
	fi->fh = (uintptr_t)d;
	if (!d->dir) {
		mfs_fuse_reply_err(req, EIO);
		free(d);
		return;
	}
	if (fuse_reply_open(req, fi)) {
		mfs_tree_close_dir(tree, node, d->dir);
		free(d);
	}
}

/* If DIR cannot be read, the tree's entries are still listed. */
static void read_again(fuse_req_t req, fuse_ino_t ino, struct open_dir *d)
{
	struct mfs_node *node = mfs_fuse_node(req, ino);
	struct mfs_error err;
	int rc;

	mfs_overlay_names_release(&d->names);
	rc = mfs_overlay_list(overlay_of(req), node->overlay, &d->names, &err);
	if (rc)
		mfs_fuse_complain(node, rc, err.msg);
}

static void reply_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			  struct fuse_file_info *fi, bool plus)
{
	struct open_dir *d = dir_handle(fi);

	if (off == 0)
		read_again(req, ino, d);
	mfs_fuse_reply_listing(req, ino, size, off, d->dir, &d->names, plus);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	if (is_place(req, ino))
		reply_listing(req, ino, size, off, fi, false);
	else
		mfs_fuse_ops.readdir(req, ino, size, off, fi);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	if (is_place(req, ino))
		reply_listing(req, ino, size, off, fi, true);
	else
		mfs_fuse_ops.readdirplus(req, ino, size, off, fi);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	if (is_place(req, ino)) {
		mfs_overlay_names_release(&dir_handle(fi)->names);
		free(dir_handle(fi));
	}
	mfs_fuse_ops.releasedir(req, ino, fi);
}

/* ---- the rest ---- */

/* Free is what the overlay's file system has free. */
static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st, below = {0};

	(void)ino;
	mfs_overlay_statvfs(overlay_of(req), &below);
	mfs_fuse_statfs(mfs_fuse_front(req)->tree, &below, &st);
	fuse_reply_statfs(req, &st);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t dev)
{
	(void)parent, (void)name, (void)mode, (void)dev;
	mfs_fuse_reply_err(req, EROFS);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	(void)parent, (void)name, (void)mode;
	mfs_fuse_reply_err(req, EROFS);
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent, (void)name;
	mfs_fuse_reply_err(req, EROFS);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	(void)target, (void)parent, (void)name;
	mfs_fuse_reply_err(req, EROFS);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	(void)ino, (void)parent, (void)name;
	mfs_fuse_reply_err(req, EROFS);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
			size_t size, int flags)
{
	(void)name, (void)value, (void)size, (void)flags;
	mfs_fuse_reply_err(req, file_of(ino) ? ENOTSUP : EROFS);
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	(void)name;
	mfs_fuse_reply_err(req, file_of(ino) ? ENOTSUP : EROFS);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	mfs_fuse_ops.init(userdata, conn);
	/* A reader must see what another mount writes into an overlay file. Attributes of the
	 * tree's files do not change, so the comparison costs nothing there. */
	conn->want |= conn->capable & FUSE_CAP_AUTO_INVAL_DATA;
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	mfs_fuse_ops.readlink(req, ino);
}

const struct fuse_lowlevel_ops mfs_fuse_overlay_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.setattr = op_setattr,
	.access = op_access,
	.readlink = op_readlink,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.create = op_create,
	.open = op_open,
	.read = op_read,
	.write = op_write,
	.flush = op_flush,
	.fsync = op_fsync,
	.release = op_release,
	.unlink = op_unlink,
	.rename = op_rename,
	.statfs = op_statfs,
	.mknod = op_mknod,
	.mkdir = op_mkdir,
	.rmdir = op_rmdir,
	.symlink = op_symlink,
	.link = op_link,
	.setxattr = op_setxattr,
	.removexattr = op_removexattr,
	.listxattr = mfs_fuse_op_listxattr,
	.ioctl = mfs_fuse_op_ioctl,
};
