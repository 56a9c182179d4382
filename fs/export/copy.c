#define _GNU_SOURCE
#include "fs/export/copy.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/io/beneath.h"
#include "formats/io/guard.h"
#include "formats/io/io_engine.h"

/* Written bytes of a file between two syncs. A crash may cost so many, and the disk starts after
 * so many. */
#define SYNC_BYTES (256ull << 20)

#define SERVED_BYTES (256ull << 20)

/* A file that is being written. */
struct stream {
	bool open;
	uint32_t file;
	int fd;
	uint64_t size, next; /* next: first byte without a request */
	uint64_t durable;    /* bytes that the last sync covered */
	unsigned in_flight;  /* writes */
	struct mfs_io sync;
	uint64_t syncing; /* bytes that the sync in flight covers; 0: none is */
};

struct slot {
	struct mfs_io write;
	struct mfs_gather gather;
	struct stream *stream; /* NULL: idle */
	uint64_t start, len;
};

struct pump {
	const struct mfs_copy *job;
	struct slot slots[MFS_COPY_WRITES];
	struct stream streams[MFS_COPY_FILES];
	unsigned turn;	    /* stream that is served next */
	uint32_t next_file; /* of the view, not yet opened */
	uint64_t served;    /* bytes since mapped pages were last let go */
	int rc;		    /* first failure; no new work is begun after it */
	struct mfs_error *err;
};

static const struct mfs_view_file *file_of(const struct pump *p, const struct stream *s)
{
	return &p->job->view->files[s->file];
}

static void fail_write(struct pump *p, const struct stream *s, const char *what, int code)
{
	if (!p->rc)
		p->rc = mfs_fail(p->err, code, "cannot %s '%s': %s", what, file_of(p, s)->name,
				 strerror(-code));
}

/* Space is claimed at once where the file system can, so that lack of it shows before hours of
 * work. Where it cannot, a write fails. A file system in memory would touch every page twice. */
static int claim_space(int fd, uint64_t size)
{
	struct statfs fs;

	if (ftruncate(fd, (off_t)size))
		return -errno;
	if (!size || (!fstatfs(fd, &fs) && fs.f_type == TMPFS_MAGIC))
		return 0;
	if (fallocate(fd, 0, 0, (off_t)size) && errno == ENOSPC)
		return -ENOSPC;
	return 0;
}

static void open_stream(struct pump *p, struct stream *s, uint32_t file)
{
	const struct mfs_view_file *f = &p->job->view->files[file];
	bool is_new;
	int rc;

	*s = (struct stream){.file = file, .size = mfs_vfile_size(f->data)};
	s->durable = s->next = p->job->durable[file];
	s->fd = mfs_beneath_continue(p->job->dirfd, f->name, O_WRONLY, p->job->mode, &is_new);
	if (s->fd < 0) {
		fail_write(p, s, "create", s->fd);
		return;
	}
	if (is_new)
		s->durable = s->next = p->job->durable[file] = 0;
	s->open = true;
	if (p->job->created)
		p->job->created(p->job->arg, s->fd);
	rc = claim_space(s->fd, s->size);
	if (rc)
		fail_write(p, s, "make room for", rc);
	mfs_vfile_willneed(f->data, s->next, MFS_COPY_BUFFERS);
}

/* Files that are whole already are passed over. An empty one has to be made all the same. */
static bool open_next(struct pump *p, struct stream *s)
{
	const struct mfs_view *view = p->job->view;

	while (p->next_file < view->count) {
		uint32_t file = p->next_file++;

		if (p->job->durable[file] &&
		    p->job->durable[file] == mfs_vfile_size(view->files[file].data))
			continue;
		open_stream(p, s, file);
		return s->open;
	}
	return false;
}

/* Mode and time are set before the last sync, which makes them durable with the bytes. */
static int set_attributes(const struct pump *p, const struct stream *s)
{
	const int64_t ns = p->job->view->mtime_ns;
	const struct timespec t = {ns / 1000000000, ns % 1000000000};
	const struct timespec times[2] = {t, t};

	return fchmod(s->fd, p->job->mode) || futimens(s->fd, times) ? -errno : 0;
}

/* The number of bytes from the start that are written without a gap. */
static uint64_t written_prefix(const struct pump *p, const struct stream *s)
{
	uint64_t prefix = s->next;

	for (unsigned i = 0; i < MFS_COPY_WRITES; i++)
		if (p->slots[i].stream == s)
			prefix = mfs_min_u64(prefix, p->slots[i].start);
	return prefix;
}

static void submit(struct pump *p, struct stream *s, struct mfs_io *w)
{
	int rc = mfs_io_submit(p->job->engine, w);

	if (rc)
		fail_write(p, s, "write", rc);
}

/* Starts a sync when enough has gathered, or at the end of the file. */
static void sync_stream(struct pump *p, struct stream *s)
{
	bool whole = s->next == s->size && !s->in_flight;
	uint64_t prefix;
	int rc;

	if (!s->open || s->syncing)
		return;
	prefix = written_prefix(p, s);
	if (!whole && prefix - s->durable < SYNC_BYTES)
		return;
	rc = whole ? set_attributes(p, s) : 0;
	if (rc) {
		fail_write(p, s, "set the time of", rc);
		return;
	}
	s->sync = (struct mfs_io){.kind = MFS_IO_SYNC, .fd = s->fd};
	submit(p, s, &s->sync);
	/* An empty file has nothing to count; 1 stands for "in flight". */
	if (!p->rc)
		s->syncing = prefix ? prefix : 1;
}

/* Maps the pages of a request. The kernel copies with faults disabled, and when it meets one it
 * starts the page over, zeroes included, which is twice the work. A page that is not there is
 * reported by the write. */
static void touch(void *arg)
{
	const struct mfs_gather *g = arg;
	const size_t page = 4096;

	for (unsigned i = 0; i < g->count; i++) {
		const volatile uint8_t *bytes = g->iov[i].iov_base;
		size_t len = g->iov[i].iov_len;

		for (size_t off = 0; off < len; off += page)
			(void)bytes[off];
		(void)bytes[len - 1];
	}
}

static void write_next(struct pump *p, struct stream *s, struct slot *slot)
{
	struct mfs_vfile *data = file_of(p, s)->data;
	size_t len = mfs_min_u64(MFS_COPY_REQUEST, s->size - s->next);
	int rc;

	mfs_gather_reset(&slot->gather);
	rc = mfs_vfile_gather(data, s->next, len, &slot->gather, p->err);
	if (!rc && slot->gather.bytes != len)
		rc = mfs_fail(p->err, -EIO, "'%s' ended early", file_of(p, s)->name);
	if (rc) {
		p->rc = rc;
		return;
	}
	mfs_guard_run(touch, &slot->gather);
	slot->write = (struct mfs_io){
		.fd = s->fd,
		.off = s->next,
		.iov = slot->gather.iov,
		.iov_count = slot->gather.count,
	};
	submit(p, s, &slot->write);
	if (p->rc)
		return;
	slot->stream = s;
	slot->start = s->next;
	slot->len = len;
	s->next += len;
	s->in_flight++;
	mfs_vfile_willneed(data, s->next + MFS_COPY_BUFFERS - MFS_COPY_REQUEST, MFS_COPY_REQUEST);
}

/* The next stream in turn that has bytes to write, opened if need be; NULL if there is none. */
static struct stream *next_stream(struct pump *p)
{
	for (unsigned i = 0; i < MFS_COPY_FILES && !p->rc; i++) {
		struct stream *s = &p->streams[p->turn++ % MFS_COPY_FILES];

		if (!s->open && !open_next(p, s))
			continue;
		if (!p->rc && s->next < s->size)
			return s;
	}
	return NULL;
}

static void feed(struct pump *p)
{
	for (unsigned i = 0; i < MFS_COPY_WRITES && !p->rc; i++) {
		struct slot *slot = &p->slots[i];
		struct stream *s = slot->stream ? NULL : next_stream(p);

		if (s)
			write_next(p, s, slot);
	}
	for (unsigned i = 0; i < MFS_COPY_FILES && !p->rc; i++)
		sync_stream(p, &p->streams[i]);
}

static void close_stream(struct pump *p, struct stream *s)
{
	s->open = false;
	if (close(s->fd))
		fail_write(p, s, "close", -errno);
}

static void sync_done(struct pump *p, struct stream *s)
{
	uint64_t covered = s->size ? s->syncing : 0;

	s->syncing = 0;
	if (s->sync.result) {
		/* A second fsync would succeed without the bytes that the first one has lost. */
		s->next = s->durable;
		fail_write(p, s, "make durable", s->sync.result);
		return;
	}
	s->durable = p->job->durable[s->file] = covered;
	/* A file is done when a sync came after its attributes were set. */
	if (covered == s->size)
		close_stream(p, s);
	if (!p->rc)
		p->rc = p->job->record(p->job->arg, p->err);
}

/* The kernel met a page of a source that is not there. Reading the same bytes says which page,
 * and why. */
static void explain_fault(struct pump *p, const struct slot *slot)
{
	const struct mfs_view_file *f = file_of(p, slot->stream);
	size_t len = 0;
	void *buf = malloc(slot->len);

	if (!p->rc && buf)
		p->rc = mfs_vfile_pread(f->data, slot->start, buf, slot->len, &len, p->err);
	if (!p->rc)
		p->rc = mfs_fail(p->err, -EIO, "the sources of '%s' could not be read", f->name);
	free(buf);
}

/* Mapped pages are let go in large lots: each time, the requests in flight lose theirs too. */
static void count_served(struct pump *p, struct mfs_vfile *data, uint64_t len)
{
	p->served += len;
	if (p->served < SERVED_BYTES)
		return;
	mfs_vfile_served(data, p->served);
	p->served = 0;
}

static void write_done(struct pump *p, struct slot *slot)
{
	struct stream *s = slot->stream;

	if (slot->write.result == -EFAULT) {
		explain_fault(p, slot);
	} else if (slot->write.result) {
		fail_write(p, s, "write", slot->write.result);
	} else {
		count_served(p, file_of(p, s)->data, slot->len);
		p->job->wrote(p->job->arg, file_of(p, s)->name, slot->len);
	}
	/* A failed write leaves a hole: nothing from there on may be called written. */
	if (slot->write.result)
		s->next = mfs_min_u64(s->next, slot->start);
	slot->stream = NULL;
	s->in_flight--;
}

static void settle(struct pump *p, struct mfs_io *w)
{
	for (unsigned i = 0; i < MFS_COPY_FILES; i++)
		if (w == &p->streams[i].sync)
			sync_done(p, &p->streams[i]);
	for (unsigned i = 0; i < MFS_COPY_WRITES; i++)
		if (w == &p->slots[i].write)
			write_done(p, &p->slots[i]);
}

static void run(struct pump *p)
{
	struct mfs_io *w = NULL;
	int rc;

	for (;;) {
		if (*p->job->stop && !p->rc)
			p->rc = mfs_fail(p->err, -EINTR, "interrupted");
		if (!p->rc)
			feed(p);
		rc = mfs_io_wait(p->job->engine, &w);
		if (rc == -ENOENT)
			return;
		if (!rc)
			settle(p, w);
		else if (rc != -EINTR)
			break;
	}
	if (!p->rc)
		p->rc = mfs_fail(p->err, rc, "cannot wait for writes: %s", strerror(-rc));
}

/* Keeps what was written before a stop or a failure. */
static void abandon(struct pump *p)
{
	for (unsigned i = 0; i < MFS_COPY_FILES; i++) {
		struct stream *s = &p->streams[i];

		if (!s->open)
			continue;
		if (!(s->next == s->size && set_attributes(p, s)) && !fsync(s->fd))
			p->job->durable[s->file] = s->next;
		close(s->fd);
	}
}

int mfs_copy_view(const struct mfs_copy *c, struct mfs_error *err)
{
	struct pump *p = calloc(1, sizeof(*p));
	int rc = 0;

	if (!p)
		return mfs_fail_nomem(err);
	p->job = c;
	p->err = err;
	for (unsigned i = 0; i < MFS_COPY_WRITES && !rc; i++)
		rc = mfs_gather_init(&p->slots[i].gather, MFS_COPY_REQUEST, IOV_MAX);
	if (rc) {
		rc = mfs_fail_nomem(err);
		goto done;
	}
	run(p);
	rc = p->rc;
	if (rc)
		abandon(p);
done:
	for (unsigned i = 0; i < MFS_COPY_WRITES; i++)
		mfs_gather_release(&p->slots[i].gather);
	free(p);
	return rc;
}
