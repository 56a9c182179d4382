#define _GNU_SOURCE
#include "fs/fuse/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#include "formats/plan/vfile.h"
#include "fs/cli/log.h"
#include "fs/prefetch/prefetch.h"
#include "fs/fuse/readahead.h"
#include "fs/source/readers.h"
#include "fs/fuse/remount.h"
#include "fs/fuse/mount_status.h"
#include "fs/tree/tree.h"
#include "fs/view/kind.h"

#define FOREVER	       (365 * 86400.0) /* seconds: what is shown does not change */
#define BRIEFLY	       1.0	       /* for entries of the root, and names of no layout */
#define MAX_BACKGROUND 64	  /* the read-ahead of a parallel loader must not fill the queue */
#define GATHER_MIN     (1u << 20) /* the kernel's usual largest request, bytes */
#define GATHER_IOVECS  (UIO_MAXIOV - 1) /* libfuse puts a header in front */

/* An open regular file. A reader may close it as soon as a read has replied, so a RELEASE can run
 * before the read has ended. So reads hold the handle too. */
struct handle {
	struct mfs_tree *tree;
	struct mfs_node *node;
	struct mfs_open_file file;
	struct mfs_readahead readahead;
	struct mfs_prefetch_file *ahead; /* NULL: nothing is fetched ahead */
	atomic_uint users;
};

static _Thread_local int noted;

void mfs_fuse_note(int code)
{
	noted = code;
}

int mfs_fuse_noted(void)
{
	const int code = noted;

	noted = 0;
	return code;
}

int mfs_fuse_reply_err(fuse_req_t req, int code)
{
	noted = code;
	return fuse_reply_err(req, code);
}

struct mfs_front *mfs_fuse_front(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

static struct mfs_tree *tree_of(fuse_req_t req)
{
	return mfs_fuse_front(req)->tree;
}

struct mfs_node *mfs_fuse_node(fuse_req_t req, fuse_ino_t id)
{
	return mfs_tree_by_id(tree_of(req), id);
}

static void *from_handle(uint64_t fh)
{
	return (void *)(uintptr_t)fh;
}

/* A failure of a node is logged once for each kind of failure. */
#define ERRNO_COMPLAINTS 31 /* bits of failures; those of lacking views follow */
_Static_assert(ERRNO_COMPLAINTS + MFS_VIEW_KINDS <= 64, "there is a bit for each");

static unsigned long long complaint(int code)
{
	return 1ull << ((unsigned)-code % ERRNO_COMPLAINTS);
}

static bool has_complained(struct mfs_node *node, int code)
{
	return atomic_load(&node->complaints) & complaint(code);
}

static void complain_once(struct mfs_node *node, unsigned long long of, const char *reason)
{
	if (!(atomic_fetch_or(&node->complaints, of) & of))
		mfs_log(LOG_ERR, "%s%s: %s", mfs_log_mount(), node->path, reason);
}

void mfs_fuse_complain(struct mfs_node *node, int code, const char *reason)
{
	if (code == -ESTALE)
		mfs_tree_suspect(node);
	complain_once(node, complaint(code), reason);
}

/* Seconds that the kernel may keep a name. It asks for a view that no listing names each time:
 * there may be any number of these, and the kernel drops names that have expired first when it
 * needs memory. */
static double name_timeout(const struct mfs_node *node)
{
	if (node->unlisted)
		return 0;
	return node->moves ? BRIEFLY : FOREVER;
}

/* Fills in attributes, and returns the seconds that they may be kept. They may change for the root,
 * for a directory that takes files, and everywhere if other users have access by permissions. */
static double get_attr(fuse_req_t req, const struct mfs_node *node, struct stat *ret)
{
	const struct mfs_front *front = mfs_fuse_front(req);
	struct mfs_overlay *overlay = front->overlay;

	if (front->others)
		mfs_readers_look(node->readers);
	mfs_node_stat(node, ret);
	if (!overlay || !node->overlay)
		return front->others || node->changes ? BRIEFLY : FOREVER;
	mfs_overlay_dir_stat(overlay, node->overlay, node->readers, ret);
	return BRIEFLY;
}

static void fill_entry(fuse_req_t req, const struct mfs_node *node, struct fuse_entry_param *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->ino = node->id;
	ret->generation = node->generation;
	ret->attr_timeout = get_attr(req, node, &ret->attr);
	ret->entry_timeout = name_timeout(node);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	/* A libfuse older than 3.17 does not tell the kernel of PARALLEL_DIROPS (its pull request
	 * 861): there lookups in one directory wait for one another. */
	conn->want |= conn->capable &
		      (FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS |
		       FUSE_CAP_READDIRPLUS | FUSE_CAP_EXPORT_SUPPORT);
	/* The bytes of a node never change, so an open need not compare them. "latest" may change,
	 * so the kernel must ask for it. */
	conn->want &= ~(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_CACHE_SYMLINKS);
	conn->max_background = MAX_BACKGROUND;
	conn->congestion_threshold = MAX_BACKGROUND * 3 / 4;
}

void mfs_fuse_refresh(struct mfs_tree *tree)
{
	struct mfs_error err;
	int rc = mfs_tree_refresh(tree, &err);

	if (rc)
		mfs_fuse_complain(mfs_tree_root(tree), rc, err.msg);
}

static void refresh_dir(struct mfs_tree *tree, struct mfs_node *node)
{
	struct mfs_error err;
	int rc = node->changes ? mfs_tree_refresh_dir(tree, node, &err) : 0;

	if (rc)
		mfs_fuse_complain(node, rc, err.msg);
}

const struct mfs_dir *mfs_fuse_open_dir(fuse_req_t req, struct mfs_node *node)
{
	struct mfs_tree *tree = tree_of(req);
	const struct mfs_dir *dir;
	struct mfs_node *about;
	struct mfs_error err;
	int rc;

	refresh_dir(tree, node);
	rc = mfs_tree_open_dir(tree, node, &dir, &about, &err);
	if (!rc)
		return dir;
	mfs_fuse_complain(about, rc, err.msg);
	return NULL;
}

/* Except in the root, a name that is absent stays absent, and the kernel may keep that. In a
 * directory of layouts the kernel keeps it only briefly, since there may be any number of such
 * names. */
static void reply_no_entry(fuse_req_t req, const struct mfs_node *dir)
{
	struct fuse_entry_param none = {.entry_timeout = dir->layouts ? BRIEFLY : FOREVER};

	mfs_fuse_note(ENOENT);
	if (dir->moves)
		mfs_fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &none);
}

/* Logs once for each view that an iteration or a dataset lacks. */
static void complain_lacking(struct mfs_node *node, const char *name)
{
	unsigned number = 0;
	const char *why = mfs_tree_why_not(node, name, &number);
	char text[sizeof((struct mfs_error){0}.msg) + 32];

	if (!why)
		return;
	snprintf(text, sizeof(text), "there is no %s: %s", name, why);
	complain_once(node, 1ull << (ERRNO_COMPLAINTS + number), text);
}

static void reply_entry(fuse_req_t req, struct mfs_node *node)
{
	struct mfs_tree *tree = tree_of(req);
	struct fuse_entry_param entry;

	fill_entry(req, node, &entry);
	if (fuse_reply_entry(req, &entry))
		mfs_tree_forget(tree, node, 1);
}

/* An id that somebody has kept in a handle: an NFS server, open_by_handle_at(2). The kernel has
 * forgotten it, or a mount before this one had it, or nobody. */
static void look_up_id(fuse_req_t req, fuse_ino_t id)
{
	struct mfs_tree *tree = tree_of(req);
	struct mfs_node *node;
	struct mfs_error err;
	int rc;

	mfs_fuse_refresh(tree);
	rc = mfs_tree_find_id(tree, id, &node, &err);
	if (!rc) {
		reply_entry(req, node);
		return;
	}
	if (rc != -ESTALE)
		mfs_fuse_complain(mfs_tree_root(tree), rc, err.msg);
	mfs_fuse_reply_err(req, rc == -ESTALE ? ESTALE : EIO);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct mfs_node *node = mfs_fuse_node(req, parent), *found, *about;
	struct mfs_tree *tree = tree_of(req);
	struct mfs_error err;
	int rc;

	if (!strcmp(name, ".")) {
		look_up_id(req, parent);
		return;
	}
	if (!strcmp(name, "..")) {
		reply_entry(req, mfs_tree_parent(tree, node));
		return;
	}
	refresh_dir(tree, node);
	rc = mfs_tree_lookup(tree, node, name, &found, &about, &err);
	if (rc == -ENOENT) {
		complain_lacking(node, name);
		reply_no_entry(req, node);
		return;
	}
	if (rc) {
		mfs_fuse_complain(about, rc, err.msg);
		mfs_fuse_reply_err(req, EIO);
		return;
	}
	reply_entry(req, found);
}

void mfs_fuse_forget(fuse_req_t req, fuse_ino_t id, uint64_t times)
{
	struct mfs_node *node = mfs_fuse_node(req, id);

	if (node)
		mfs_tree_forget(tree_of(req), node, times);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t times)
{
	mfs_fuse_forget(req, ino, times);
	fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		mfs_fuse_forget(req, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mfs_node *node = mfs_fuse_node(req, ino);
	struct stat st;
	double seconds = get_attr(req, node, &st);

	(void)fi;
	fuse_reply_attr(req, &st, seconds);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	fuse_reply_readlink(req, mfs_fuse_node(req, ino)->target);
}

/* The handle is the listing of this moment: new entries do not shift offsets. */
static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mfs_node *node = mfs_fuse_node(req, ino);
	const struct mfs_dir *dir = mfs_fuse_open_dir(req, node);

	if (!dir) {
		mfs_fuse_reply_err(req, EIO);
		return;
	}
	fi->fh = (uintptr_t)dir;
	fi->cache_readdir = fi->keep_cache = !node->changes;
	if (fuse_reply_open(req, fi))
		mfs_tree_close_dir(tree_of(req), node, dir);
}

/* That it was closed may be heard of after that it was forgotten; it is known until now. */
static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	mfs_tree_close_dir(tree_of(req), mfs_fuse_node(req, ino), from_handle(fi->fh));
	mfs_fuse_reply_err(req, 0);
}

struct listing {
	fuse_req_t req;
	struct mfs_node *node;
	char *buf;
	size_t used, size;
	off_t end; /* offset after the last entry */
	bool plus;
};

/* Adds entry i, with the offset i + 1 of the next entry. False: there is no room left. */
static bool add_entry(struct listing *l, const char *name, const struct fuse_entry_param *entry,
		      off_t i)
{
	size_t room = l->size - l->used, len;

	if (l->plus)
		len = fuse_add_direntry_plus(l->req, l->buf + l->used, room, name, entry, i + 1);
	else
		len = fuse_add_direntry(l->req, l->buf + l->used, room, name, &entry->attr, i + 1);
	if (len > room)
		return false;
	l->used += len;
	l->end = i + 1;
	return true;
}

/* Listing "." and ".." is no lookup of them. Nor is it of an entry of the root: the listing may be
 * older than what the kernel knows by now, and latest would go back. */
static bool is_looked_up(const struct mfs_node *node, const char *name)
{
	return name == node->name && !node->moves;
}

static bool add_node(struct listing *l, struct mfs_node *node, const char *name, off_t i)
{
	struct fuse_entry_param entry;
	bool added;

	fill_entry(l->req, node, &entry);
	if (!is_looked_up(node, name))
		entry.ino = 0;
	added = add_entry(l, name, &entry, i);
	if (added && l->plus && entry.ino)
		mfs_tree_know(tree_of(l->req), node);
	return added;
}

/* Listing is no lookup of written files either: there may be many, and few are used. */
static bool add_written(struct listing *l, const struct mfs_overlay_entry *e, off_t i)
{
	struct fuse_entry_param entry = {.attr = {.st_ino = e->ino, .st_mode = S_IFREG}};

	return add_entry(l, e->name, &entry, i);
}

static void fill_listing(struct listing *l, off_t off, const struct mfs_dir *dir,
			 const struct mfs_overlay_names *more)
{
	const off_t end = 2 + (off_t)dir->count, end_more = end + (more ? more->count : 0);
	bool room = true;

	if (off == 0)
		room = add_node(l, l->node, ".", off++);
	if (off == 1 && room)
		room = add_node(l, (struct mfs_node *)l->node->parent, "..", off++);
	for (; room && off >= 2 && off < end; off++) {
		struct mfs_node *node = dir->entries[off - 2];

		room = add_node(l, node, node->name, off);
	}
	for (; room && off >= end && off < end_more; off++)
		room = add_written(l, &more->entries[off - end], off);
}

/* The reply has failed, so the kernel does not know these nodes. */
static void forget_listed(struct listing *l, off_t off, const struct mfs_dir *dir)
{
	for (; l->plus && off < l->end; off++)
		if (off >= 2 && off < 2 + (off_t)dir->count && !dir->entries[off - 2]->moves)
			mfs_tree_forget(tree_of(l->req), dir->entries[off - 2], 1);
}

void mfs_fuse_reply_listing(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			    const struct mfs_dir *dir, const struct mfs_overlay_names *more,
			    bool plus)
{
	struct listing l = {
		.req = req, .node = mfs_fuse_node(req, ino), .size = size, .plus = plus};

	l.buf = malloc(size);
	if (!l.buf) {
		mfs_fuse_reply_err(req, ENOMEM);
		return;
	}
	fill_listing(&l, off, dir, more);
	if (fuse_reply_buf(req, l.buf, l.used))
		forget_listed(&l, off, dir);
	free(l.buf);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		       struct fuse_file_info *fi)
{
	mfs_fuse_reply_listing(req, ino, size, off, from_handle(fi->fh), NULL, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
			   struct fuse_file_info *fi)
{
	mfs_fuse_reply_listing(req, ino, size, off, from_handle(fi->fh), NULL, true);
}

static struct handle *hold(struct fuse_file_info *fi)
{
	struct handle *h = from_handle(fi->fh);

	atomic_fetch_add_explicit(&h->users, 1, memory_order_relaxed);
	return h;
}

static void drop(struct handle *h)
{
	if (atomic_fetch_sub_explicit(&h->users, 1, memory_order_acq_rel) != 1)
		return;
	if (h->ahead)
		mfs_prefetch_close(h->ahead);
	mfs_tree_close(&h->file);
	mfs_tree_forget(h->tree, h->node, 1);
	free(h);
}

/* The error for the reader: ESTALE if a source has changed, ENOMEM, else EIO. */
static int reader_errno(int rc)
{
	return rc == -ESTALE || rc == -ENOMEM ? -rc : EIO;
}

static void close_file(struct mfs_front *front, struct handle *h)
{
	atomic_fetch_sub_explicit(&front->open_files, 1, memory_order_relaxed);
	drop(h);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct mfs_front *front = mfs_fuse_front(req); /* req must not be used after the reply */
	struct mfs_node *about;
	struct mfs_error err;
	struct handle *h;
	int rc;

	if ((fi->flags & O_ACCMODE) != O_RDONLY) {
		mfs_fuse_reply_err(req, EROFS);
		return;
	}
	h = calloc(1, sizeof(*h));
	if (!h) {
		mfs_fuse_reply_err(req, ENOMEM);
		return;
	}
	h->node = mfs_fuse_node(req, ino);
	atomic_init(&h->users, 1);
	rc = mfs_tree_open(h->node, &h->file, &about, &err);
	if (rc) {
		mfs_fuse_complain(about, rc, err.msg);
		free(h);
		mfs_fuse_reply_err(req, reader_errno(rc));
		return;
	}
	h->tree = tree_of(req);
	mfs_tree_know(h->tree, h->node);
	fi->fh = (uintptr_t)h;
	fi->keep_cache = 1;
	/* fi->direct_io stays off with O_DIRECT: the kernel then sends the requests of a read at
	 * once, and with it one after the other (linux/fs/fuse/file.c: fuse_direct_IO is
	 * asynchronous, fuse_direct_read_iter is not). */
	atomic_fetch_add_explicit(&front->open_files, 1, memory_order_relaxed);
	if (front->prefetch && !(fi->flags & O_DIRECT))
		h->ahead = mfs_prefetch_open(front->prefetch, h->node->path, h->node->size);
	fi->noflush = !h->ahead;
	if (fuse_reply_open(req, fi) == -ENOENT)
		close_file(front, h); /* the open was interrupted, so no RELEASE will come */
}

static void reply_flush(void *req)
{
	mfs_fuse_reply_err(req, 0);
}

/* close(2) returns when no fetcher has the file open, so that the mount is not busy after it. */
static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct handle *h = hold(fi);

	(void)ino;
	if (h->ahead)
		mfs_prefetch_flush(h->ahead, reply_flush, req);
	else
		reply_flush(req);
	drop(h);
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	close_file(mfs_fuse_front(req), from_handle(fi->fh));
	mfs_fuse_reply_err(req, 0);
}

/* A thread's gather. The first read of the thread makes it. libfuse starts and ends threads at any
 * time. */
struct thread_gather {
	struct mfs_gather gather;
	size_t room;
};

static void free_gather(void *arg)
{
	struct thread_gather *t = arg;

	mfs_gather_release(&t->gather);
	free(t);
}

int mfs_front_init(struct mfs_front *front, struct mfs_error *err)
{
	int rc = -pthread_key_create(&front->gathers, free_gather);

	return rc ? mfs_fail(err, rc, "no memory of its own for each thread: %s", strerror(-rc))
		  : 0;
}

/* Other threads free their gathers when they end. This thread goes on, so it frees its own here. */
void mfs_front_release(struct mfs_front *front)
{
	struct thread_gather *own = pthread_getspecific(front->gathers);

	if (own)
		free_gather(own);
	pthread_key_delete(front->gathers);
}

static struct mfs_gather *thread_gather(const struct mfs_front *front, size_t bytes)
{
	struct thread_gather *t = pthread_getspecific(front->gathers);

	if (t && t->room >= bytes) {
		mfs_gather_reset(&t->gather);
		return &t->gather;
	}
	if (t)
		free_gather(t);
	pthread_setspecific(front->gathers, NULL);
	t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->room = bytes > GATHER_MIN ? bytes : GATHER_MIN;
	if (mfs_gather_init(&t->gather, t->room, GATHER_IOVECS) ||
	    pthread_setspecific(front->gathers, t)) {
		free_gather(t);
		return NULL;
	}
	return &t->gather;
}

/* Gathers again with a single iovec. This copies all bytes, and the copy that fails names its
 * source. */
static void complain_unreadable(const struct handle *h, uint64_t off, size_t size)
{
	struct mfs_error err;
	struct mfs_gather copy;
	int rc;

	if (has_complained(h->node, -EIO) || mfs_gather_init(&copy, size, 1))
		return;
	rc = mfs_vfile_gather(h->file.data, off, size, &copy, &err);
	mfs_fuse_complain(h->node, rc ? rc : -EIO, rc ? err.msg : "a source could not be read");
	mfs_gather_release(&copy);
}

static void read_file(fuse_req_t req, struct handle *h, uint64_t off, size_t size,
		      struct mfs_gather *g)
{
	struct mfs_front *front = mfs_fuse_front(req); /* req must not be used after the reply */
	struct mfs_vfile *data = h->file.data;
	struct mfs_error err;
	int rc;

	if (h->ahead)
		mfs_prefetch_read(h->ahead, off, size);
	mfs_readahead_demand(&h->readahead, data, off, size);
	rc = mfs_vfile_gather(data, off, size, g, &err);
	if (rc) {
		if (h->ahead)
			mfs_prefetch_failed(h->ahead);
		mfs_fuse_complain(h->node, rc, err.msg);
		mfs_fuse_reply_err(req, reader_errno(rc));
		return;
	}
	/* The kernel copies from the mapped sources. At a page that cannot be read it ends the
	 * request with EIO itself, and returns EFAULT here. So no other reply must follow. */
	rc = fuse_reply_iov(req, g->iov, (int)g->count);
	if (rc == -EFAULT)
		complain_unreadable(h, off, size);
	if (rc) {
		mfs_fuse_note(EIO);
		return;
	}
	mfs_stats_add(front->stats, MFS_READ_SIZE, g->bytes);
	mfs_vfile_served(data, g->bytes);
	mfs_readahead_next(&h->readahead, data, off, g->bytes);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct mfs_gather *g = thread_gather(mfs_fuse_front(req), size);
	struct handle *h;

	(void)ino;
	if (!g) {
		mfs_fuse_reply_err(req, ENOMEM);
		return;
	}
	h = hold(fi);
	read_file(req, h, (uint64_t)off, size, g);
	/* What it holds of a cache (io/present.h) is given back now: this thread may not read for a
	 * long time. */
	mfs_gather_reset(g);
	drop(h);
}

void mfs_fuse_statfs(const struct mfs_tree *tree, const struct statvfs *below, struct statvfs *ret)
{
	struct statvfs st = {.f_bsize = GATHER_MIN, .f_frsize = 4096, .f_namemax = 255};
	uint64_t bytes, files;

	mfs_tree_totals(tree, &bytes, &files);
	st.f_bfree = st.f_bavail = below->f_bavail * below->f_frsize / st.f_frsize;
	st.f_blocks = (bytes + st.f_frsize - 1) / st.f_frsize + st.f_bfree;
	st.f_ffree = below->f_ffree;
	st.f_favail = below->f_favail;
	st.f_files = files + st.f_ffree;
	*ret = st;
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct statvfs st, below = {0};

	(void)ino;
	mfs_tree_source_statvfs(tree_of(req), &below); /* after a failure nothing is free */
	mfs_fuse_statfs(tree_of(req), &below, &st);
	fuse_reply_statfs(req, &st);
}

static void reply_status(fuse_req_t req)
{
	struct mfs_front *front = mfs_fuse_front(req);
	const struct mfs_mount_status status = {
		.began = front->began,
		.reads = mfs_stats_count(front->stats, MFS_OP_READ),
		.bytes = mfs_stats_sum(front->stats, MFS_READ_SIZE),
		.errors = mfs_metrics_errors(front->stats),
		.open_files = atomic_load(&front->open_files),
		.pid = (uint32_t)getpid(),
	};

	fuse_reply_ioctl(req, 0, &status, sizeof(status));
}

/* Gives the settings of the mount, for a remount. Some are paths, so not every user may read
 * them. */
void mfs_fuse_op_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
		       struct fuse_file_info *fi, unsigned flags, const void *in, size_t in_len,
		       size_t out_len)
{
	uid_t uid = fuse_req_ctx(req)->uid;
	struct mfs_settings_page page;

	(void)arg, (void)fi, (void)flags;
	if (cmd == MFS_IOC_STATUS && ino == FUSE_ROOT_ID &&
	    out_len >= sizeof(struct mfs_mount_status)) {
		reply_status(req);
	} else if (cmd != MFS_IOC_SETTINGS || ino != FUSE_ROOT_ID || in_len < sizeof(page) ||
		   out_len < sizeof(page)) {
		mfs_fuse_reply_err(req, ENOTTY);
	} else if (uid && uid != geteuid()) {
		mfs_fuse_reply_err(req, EPERM);
	} else {
		memcpy(&page, in, sizeof(page));
		mfs_settings_page(&mfs_fuse_front(req)->settings, &page);
		fuse_reply_ioctl(req, 0, &page, sizeof(page));
	}
}

/* An empty list of extended attributes. Without this operation getfattr and rsync would
 * complain. */
void mfs_fuse_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	(void)ino;
	if (size)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_xattr(req, 0);
}

/* libfuse answers ENOSYS for the missing ones (access, getxattr); the kernel then returns ENOTSUP
 * and does not ask again. The kernel itself refuses writes on a read-only mount. */
const struct fuse_lowlevel_ops mfs_fuse_ops = {
	.init = op_init,
	.lookup = op_lookup,
	.forget = op_forget,
	.forget_multi = op_forget_multi,
	.getattr = op_getattr,
	.readlink = op_readlink,
	.opendir = op_opendir,
	.readdir = op_readdir,
	.readdirplus = op_readdirplus,
	.releasedir = op_releasedir,
	.open = op_open,
	.read = op_read,
	.flush = op_flush,
	.release = op_release,
	.statfs = op_statfs,
	.listxattr = mfs_fuse_op_listxattr,
	.ioctl = mfs_fuse_op_ioctl,
};
