#include "fs/fuse/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/array.h"
#include "fs/fuse/ops.h"

enum { CONTROL = 4, INFO = 6, STATS = 8 }; /* ids */

struct mfs_control {
	fuse_ino_t id, parent;
	const char *name;
	mode_t type;
	void (*text)(const struct mfs_metrics_of *m, struct mfs_buf *out);
};

static const struct mfs_control controls[] = {
	{CONTROL, FUSE_ROOT_ID, ".mcorefs", S_IFDIR, NULL},
	{INFO, CONTROL, "info.json", S_IFREG, mfs_metrics_info},
	{STATS, CONTROL, "stats", S_IFREG, mfs_metrics_text},
};

const struct mfs_control *mfs_control_of(fuse_ino_t id)
{
	for (size_t i = 0; i < MFS_ARRAY_SIZE(controls); i++)
		if (controls[i].id == id)
			return &controls[i];
	return NULL;
}

void mfs_control_stat(fuse_req_t req, const struct mfs_control *c, struct stat *ret)
{
	mfs_node_stat(mfs_tree_root(mfs_fuse_front(req)->tree), ret);
	ret->st_ino = c->id;
	ret->st_mode = c->type | (ret->st_mode & (S_ISDIR(c->type) ? 0555 : 0444));
	ret->st_nlink = S_ISDIR(c->type) ? 2 : 1;
	ret->st_size = 0;
	ret->st_blocks = 0;
}

static void reply_control(fuse_req_t req, const struct mfs_control *c)
{
	struct fuse_entry_param entry = {.ino = c->id,
					 .generation = 1,
					 .attr_timeout = MFS_CONTROL_SECONDS,
					 .entry_timeout = MFS_CONTROL_SECONDS};

	mfs_control_stat(req, c, &entry.attr);
	fuse_reply_entry(req, &entry);
}

bool mfs_control_look_up(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	const struct mfs_control *in = mfs_control_of(parent);

	if (in && !strcmp(name, ".")) {
		reply_control(req, in);
		return true;
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(controls); i++) {
		if (controls[i].parent == parent && !strcmp(controls[i].name, name)) {
			reply_control(req, &controls[i]);
			return true;
		}
	}
	if (in && !strcmp(name, "..") && in->parent != FUSE_ROOT_ID)
		reply_control(req, mfs_control_of(in->parent));
	else if (in)
		mfs_fuse_reply_err(req, strcmp(name, "..") ? ENOENT : ESTALE);
	return in;
}

/* The text of an open file. As of other files, a RELEASE can run before the last read has ended. */
struct text {
	struct mfs_buf buf;
	atomic_uint users;
};

static struct text *text_of(const struct fuse_file_info *fi)
{
	return (struct text *)(uintptr_t)fi->fh;
}

static void drop_text(struct text *t)
{
	if (atomic_fetch_sub_explicit(&t->users, 1, memory_order_acq_rel) != 1)
		return;
	mfs_buf_release(&t->buf);
	free(t);
}

void mfs_control_open(fuse_req_t req, const struct mfs_control *c, struct fuse_file_info *fi)
{
	struct mfs_front *front = mfs_fuse_front(req);
	struct text *text;

	if (!c->text || (fi->flags & O_ACCMODE) != O_RDONLY) {
		mfs_fuse_reply_err(req, c->text ? EACCES : EISDIR);
		return;
	}
	text = calloc(1, sizeof(*text));
	if (!text) {
		mfs_fuse_reply_err(req, ENOMEM);
		return;
	}
	atomic_init(&text->users, 1);
	c->text(&front->metrics, &text->buf);
	if (text->buf.failed) {
		drop_text(text);
		mfs_fuse_reply_err(req, ENOMEM);
		return;
	}
	fi->fh = (uintptr_t)text;
	fi->direct_io = 1;
	if (fuse_reply_open(req, fi))
		drop_text(text);
}

void mfs_control_read(fuse_req_t req, size_t size, off_t off, struct fuse_file_info *fi)
{
	struct text *t = text_of(fi);
	const size_t len = t->buf.len, at = (uint64_t)off < len ? (size_t)off : len;

	atomic_fetch_add_explicit(&t->users, 1, memory_order_relaxed);
	fuse_reply_buf(req, t->buf.data + at, size < len - at ? size : len - at);
	drop_text(t);
}

void mfs_control_release(struct fuse_file_info *fi)
{
	drop_text(text_of(fi));
}
