#define _GNU_SOURCE
/*
 * From device memory to disk: fills of a ring of pinned buffers.
 *
 * One thread does it. Whenever a buffer is free, the copy of the next fill is submitted; when the
 * device has copied it, it is written, and a lane's thread adds it to the sum of its file. A buffer
 * is free again when both are done. Copies are submitted without waiting for the disk as long as
 * there are buffers: what is copied need not hold an update back.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "trainer/ckpt/save_i.h"

/* A file that is being written. */
struct open_file {
	int fd;	       /* -1: closed */
	uint64_t left; /* bytes that are not written yet */
	struct mfs_io sync;
};

struct writer {
	struct mft_saver *s;
	const struct mft_save_place *to;
	struct mfs_io_engine *engine;
	struct open_file *files;
	char (*digests)[MFT_SAVE_DIGEST];
	uint32_t next;	/* fill to be copied */
	uint32_t ready; /* first fill whose copy is not known to be done */
	uint32_t files_left;
	/* under the saver's lock */
	uint32_t slots_busy;
	bool failed; /* lanes end */
	struct mfs_error *err;
};

/* ---- sums ---- */

int mft_save_sum(const struct mft_save_system_ops *sys, const char *name, const void *bytes,
		 uint64_t length, char ret[MFT_SAVE_DIGEST], struct mfs_error *err)
{
	void *sum;
	int rc = sys->sum_new(sys->arg, &sum);

	if (!rc)
		rc = sys->sum_add(sys->arg, sum, bytes, length);
	if (!rc)
		rc = sys->sum_end(sys->arg, sum, ret);
	sys->sum_free(sys->arg, sum);
	return rc ? mfs_fail(err, rc, "the SHA-256 of '%s': %s", name, strerror(-rc)) : 0;
}

struct lane {
	struct writer *w;
	uint32_t number;
	pthread_t thread;
	bool started;
	void *sum;
	int rc;
	uint32_t file; /* whose sum it is, if rc is not 0 */
};

/* Under the lock. */
static void done_with(struct writer *w, struct mft_save_slot *slot)
{
	if (!slot->written || !slot->hashed)
		return;
	slot->next = w->s->ring.free;
	w->s->ring.free = slot;
	w->slots_busy--;
	pthread_cond_broadcast(&w->s->changed);
}

/* Waits until a fill is copied. NULL: the save has failed. */
static struct mft_save_slot *await_fill(struct writer *w, uint32_t fill)
{
	struct mft_save_slot *slot;

	pthread_mutex_lock(&w->s->lock);
	while (w->s->completed <= fill && !w->failed)
		pthread_cond_wait(&w->s->changed, &w->s->lock);
	slot = w->failed ? NULL : w->s->slot_of[fill];
	pthread_mutex_unlock(&w->s->lock);
	return slot;
}

static int sum_fill(struct lane *l, const struct mft_save_fill *f, const struct mft_save_slot *slot)
{
	const struct mft_save_system_ops *sys = &l->w->s->system;
	const int rc = sys->sum_add(sys->arg, l->sum, slot->host, f->length);

	if (rc || !f->last)
		return rc;
	return sys->sum_end(sys->arg, l->sum, l->w->digests[f->file]);
}

static void *run_lane(void *arg)
{
	struct lane *l = arg;
	const struct mft_save_plan *p = &l->w->s->plan;

	for (uint32_t i = 0; i < p->fill_count && !l->rc; i++) {
		struct mft_save_slot *slot;

		if (p->fills[i].file != l->number)
			continue;
		slot = await_fill(l->w, i);
		if (!slot)
			break;
		l->rc = sum_fill(l, &p->fills[i], slot);
		l->file = p->fills[i].file;
		pthread_mutex_lock(&l->w->s->lock);
		l->w->failed |= l->rc != 0;
		slot->hashed = true;
		done_with(l->w, slot);
		pthread_mutex_unlock(&l->w->s->lock);
	}
	return NULL;
}

static int start_lanes(struct writer *w, struct lane *lanes)
{
	const struct mft_save_system_ops *sys = &w->s->system;

	for (uint32_t i = 0; i < MFT_SAVE_LANES; i++) {
		int rc;

		lanes[i] = (struct lane){.w = w, .number = i};
		rc = sys->sum_new(sys->arg, &lanes[i].sum);
		if (rc)
			return mfs_fail(w->err, rc, "SHA-256: %s", strerror(-rc));
		rc = mfs_thread_start(&lanes[i].thread, "hash", run_lane, &lanes[i]);
		if (rc)
			return mfs_fail(w->err, rc, "cannot start a thread: %s", strerror(-rc));
		lanes[i].started = true;
	}
	return 0;
}

/* Lets lanes come to their end, or end now. rc: result of the writes. */
static int end_lanes(struct writer *w, struct lane *lanes, int rc)
{
	const struct mft_save_system_ops *sys = &w->s->system;

	pthread_mutex_lock(&w->s->lock);
	w->failed |= rc != 0;
	w->s->released |= w->failed;
	pthread_cond_broadcast(&w->s->changed);
	pthread_mutex_unlock(&w->s->lock);
	for (uint32_t i = 0; i < MFT_SAVE_LANES; i++) {
		const struct lane *l = &lanes[i];

		if (l->started)
			pthread_join(l->thread, NULL);
		if (lanes[i].sum)
			sys->sum_free(sys->arg, lanes[i].sum);
		if (l->rc) /* the writer ends as well then, for this reason */
			rc = mfs_fail(w->err, l->rc, "the SHA-256 of '%s': %s",
				      w->s->plan.files[l->file].name, strerror(-l->rc));
	}
	return rc;
}

/* ---- the ring ---- */

bool mft_save_ring_grow(struct mft_saver *s)
{
	struct mft_save_ring *r = &s->ring;
	struct mft_save_slot *slot = &r->slots[r->count];

	if (r->count == r->capacity)
		return false;
	slot->host = s->backend->device->host_alloc(s->device, MFT_SAVE_SLOT);
	if (slot->host && s->backend->device->event_new(s->device, &slot->copied)) {
		s->backend->device->host_free(s->device, slot->host, MFT_SAVE_SLOT);
		slot->host = NULL;
	}
	if (!slot->host) {
		r->capacity = r->count; /* so much there is */
		return false;
	}
	pthread_mutex_lock(&s->lock);
	r->count++;
	slot->next = r->free;
	r->free = slot;
	pthread_mutex_unlock(&s->lock);
	return true;
}

void mft_save_ring_release(struct mft_saver *s)
{
	for (uint32_t i = 0; i < s->ring.count; i++) {
		s->backend->device->event_free(s->ring.slots[i].copied);
		s->backend->device->host_free(s->device, s->ring.slots[i].host, MFT_SAVE_SLOT);
	}
	free(s->ring.slots);
}

static struct mft_save_slot *take_free(struct writer *w)
{
	struct mft_save_slot *slot;

	pthread_mutex_lock(&w->s->lock);
	slot = w->s->ring.free;
	if (slot) {
		w->s->ring.free = slot->next;
		w->slots_busy++;
	}
	pthread_mutex_unlock(&w->s->lock);
	return slot;
}

static struct mft_save_slot *take_slot(struct writer *w)
{
	struct mft_save_slot *slot = take_free(w);

	return slot || !mft_save_ring_grow(w->s) ? slot : take_free(w);
}

/* ---- copies ---- */

/* Bytes [from, from + n) of a span. What the host has of the state, is copied at once. */
static void copy_span(struct mft_saver *s, const struct mft_save_span *span, uint64_t from,
		      uint64_t n, unsigned char *to)
{
	const struct mft_flat flat = mft_params_flat(s->params, span->state, span->first);

	if (span->bytes)
		memcpy(to, span->bytes + from, n);
	else if (flat.on_host)
		memcpy(to, (const unsigned char *)flat.at + from, n);
	else
		s->backend->device->copy_out(s->ctx, to, (const unsigned char *)flat.at + from, n);
}

static void copy_fill(struct mft_saver *s, const struct mft_save_fill *f,
		      struct mft_save_slot *slot)
{
	const struct mft_save_file *file = &s->plan.files[f->file];
	const uint64_t end = f->at + f->length;

	for (uint32_t i = f->span; i < file->count && file->spans[i].at < end; i++) {
		const struct mft_save_span *span = &file->spans[i];
		const uint64_t from = mfs_max_u64(span->at, f->at);
		const uint64_t to = mfs_min_u64(span->at + span->length, end);

		copy_span(s, span, from - span->at, to - from, slot->host + (from - f->at));
	}
	memset(slot->host + f->length, 0, slot->length - f->length);
	s->backend->device->event_record(s->ctx, slot->copied);
}

static bool is_direct(int fd)
{
	const int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_DIRECT);
}

/* What a person is told of the way. */
static void note_direct(struct mft_saver *s, int fd)
{
	if (is_direct(fd) && !strstr(s->engine, "O_DIRECT"))
		strncat(s->engine, ", O_DIRECT", sizeof(s->engine) - strlen(s->engine) - 1);
}

static int open_file(struct writer *w, uint32_t number)
{
	const struct mft_save_file *f = &w->s->plan.files[number];
	const struct mft_save_system_ops *sys = &w->s->system;
	struct open_file *o = &w->files[number];
	int rc = sys->open(sys->arg, w->to->fd, f->name, &o->fd);

	if (rc) {
		o->fd = -1;
		return mfs_fail(w->err, rc, "cannot create '%s/%s': %s", w->to->path, f->name,
				strerror(-rc));
	}
	o->left = f->size;
	note_direct(w->s, o->fd);
	rc = sys->allocate(sys->arg, o->fd, f->size);
	return rc ? mfs_fail(w->err, rc, "no room for '%s/%s' of %llu bytes: %s", w->to->path,
			     f->name, (unsigned long long)f->size, strerror(-rc))
		  : 0;
}

/* So many copies are under way: what the run copies for itself, a loss, must not wait for all of a
 * save. */
#define COPIES_AHEAD 4

static void bound_copies(struct writer *w)
{
	char why[MFK_WHY];

	/* write_fill() waits for that copy, and reports why it failed. */
	if (w->next >= COPIES_AHEAD)
		w->s->backend->device->event_sync(w->s->slot_of[w->next - COPIES_AHEAD]->copied,
						  why);
}

/* Submits the copy of the next fill into a free slot. */
static void begin_fill(struct writer *w, struct mft_save_slot *slot)
{
	struct mft_saver *s = w->s;
	const struct mft_save_fill *f = &s->plan.fills[w->next];

	slot->fill = w->next;
	slot->length = mfs_round_up(f->length, MFT_SAVE_BLOCK);
	slot->written = slot->hashed = false;
	bound_copies(w);
	copy_fill(s, f, slot);
	pthread_mutex_lock(&s->lock);
	s->slot_of[w->next++] = slot;
	s->submitted = w->next;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* ---- writes ---- */

static int bad_write(const struct writer *w, uint32_t file, int rc)
{
	return mfs_fail(w->err, rc, "cannot write '%s/%s': %s", w->to->path,
			w->s->plan.files[file].name, strerror(-rc));
}

static int submit(struct writer *w, struct mfs_io *io, uint32_t file)
{
	int rc = mfs_io_submit(w->engine, io);

	return rc ? bad_write(w, file, rc) : 0;
}

/* A file is cut to its size when all blocks are written, and then synced. */
static int end_file(struct writer *w, uint32_t file)
{
	const struct mft_save_system_ops *sys = &w->s->system;
	struct open_file *o = &w->files[file];
	int rc = sys->truncate(sys->arg, o->fd, w->s->plan.files[file].size);

	if (rc)
		return bad_write(w, file, rc);
	o->sync = (struct mfs_io){.kind = MFS_IO_SYNC, .fd = o->fd};
	return 0;
}

/* A file system may take O_DIRECT and then refuse writes like these: the rest goes through the page
 * cache. direct: the file was O_DIRECT when the request was submitted; of several in flight the
 * first has changed it. */
static bool may_retry(const struct mfs_io *io, bool direct)
{
	const int flags = fcntl(io->fd, F_GETFL);

	return io->result == -EINVAL && direct && flags >= 0 &&
	       !fcntl(io->fd, F_SETFL, flags & ~O_DIRECT);
}

static int submit_fill(struct writer *w, struct mft_save_slot *slot)
{
	slot->direct = is_direct(slot->io.fd);
	return submit(w, &slot->io, w->s->plan.fills[slot->fill].file);
}

static int wrote(struct writer *w, struct mfs_io *io)
{
	struct mft_save_slot *slot =
		(struct mft_save_slot *)((char *)io - offsetof(struct mft_save_slot, io));
	const struct mft_save_fill *f = &w->s->plan.fills[slot->fill];

	if (may_retry(io, slot->direct))
		return submit_fill(w, slot);
	if (io->result)
		return bad_write(w, f->file, io->result);
	w->files[f->file].left -= f->length;
	pthread_mutex_lock(&w->s->lock);
	slot->written = true;
	done_with(w, slot);
	pthread_mutex_unlock(&w->s->lock);
	if (w->files[f->file].left)
		return 0;
	return end_file(w, f->file) ?: submit(w, &w->files[f->file].sync, f->file);
}

static int synced(struct writer *w, struct mfs_io *io)
{
	struct open_file *o = (struct open_file *)((char *)io - offsetof(struct open_file, sync));
	const struct mft_save_system_ops *sys = &w->s->system;
	const uint32_t file = (uint32_t)(o - w->files);
	int rc = io->result;

	if (rc)
		return bad_write(w, file, rc);
	rc = sys->close(sys->arg, o->fd);
	o->fd = -1;
	w->files_left--;
	return rc ? bad_write(w, file, rc) : 0;
}

/* A signal of the run's does not end a wait. */
static int await(struct mfs_io_engine *engine, struct mfs_io **ret)
{
	int rc;

	do
		rc = mfs_io_wait(engine, ret);
	while (rc == -EINTR);
	return rc;
}

/* Waits for one request that is in flight. */
static int reap(struct writer *w)
{
	struct mfs_io *io;
	int rc = await(w->engine, &io);

	if (rc)
		return mfs_fail(w->err, rc, "waiting for writes: %s", strerror(-rc));
	return io->kind == MFS_IO_SYNC ? synced(w, io) : wrote(w, io);
}

/* The oldest copy: waits for the device, and hands the buffer to the disk and to its lane. */
static int write_fill(struct writer *w)
{
	struct mft_saver *s = w->s;
	const struct mft_save_fill *f = &s->plan.fills[w->ready];
	struct mft_save_slot *slot = s->slot_of[w->ready];
	char why[MFK_WHY] = "";
	int rc = s->backend->device->event_sync(slot->copied, why);

	if (rc)
		return mfs_fail(w->err, rc, "copying from the device: %s", why);
	if (!f->at)
		rc = open_file(w, f->file);
	if (rc)
		return rc;
	slot->iov = (struct iovec){slot->host, slot->length};
	slot->io = (struct mfs_io){.kind = MFS_IO_WRITE,
				   .fd = w->files[f->file].fd,
				   .off = f->at,
				   .iov = &slot->iov,
				   .iov_count = 1};
	pthread_mutex_lock(&s->lock);
	s->completed = ++w->ready;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	while (!rc && mfs_io_in_flight(w->engine) >= MFT_SAVE_DEPTH)
		rc = reap(w);
	return rc ? rc : submit_fill(w, slot);
}

/* All buffers are written and wait for their lanes. -EIO: a lane has failed; end_lanes() says
 * why. */
static int await_lanes(struct writer *w)
{
	int rc;

	pthread_mutex_lock(&w->s->lock);
	while (!w->s->ring.free && w->slots_busy && !w->failed)
		pthread_cond_wait(&w->s->changed, &w->s->lock);
	rc = w->failed ? -EIO : 0;
	pthread_mutex_unlock(&w->s->lock);
	return rc;
}

static int write_all(struct writer *w)
{
	const uint32_t count = w->s->plan.fill_count;
	int rc = 0;

	while (!rc && w->files_left) {
		struct mft_save_slot *slot = w->next < count ? take_slot(w) : NULL;

		if (slot)
			begin_fill(w, slot);
		else if (w->ready < w->next)
			rc = write_fill(w);
		else if (mfs_io_in_flight(w->engine))
			rc = reap(w);
		else
			rc = await_lanes(w);
	}
	return rc;
}

/* ---- the whole ---- */

/* rc: what became of the writes so far. */
static int close_all(struct writer *w, int rc)
{
	const struct mft_save_system_ops *sys = &w->s->system;
	char why[MFK_WHY] = "";
	struct mfs_io *io;
	int copied;

	while (mfs_io_in_flight(w->engine) && !await(w->engine, &io))
		;
	for (uint32_t i = 0; i < w->s->plan.file_count; i++)
		if (w->files[i].fd >= 0)
			sys->close(sys->arg, w->files[i].fd);
	/* Copies that nobody waits for any more still write into their buffers. And a context that
	 * has failed copies nothing more, though its events come. */
	copied = w->s->backend->device->sync(w->s->ctx, why);
	return copied && !rc ? mfs_fail(w->err, copied, "copying from the device: %s", why) : rc;
}

/* After a save all buffers are free, whatever became of it. */
static void free_slots(struct mft_saver *s)
{
	pthread_mutex_lock(&s->lock);
	s->ring.free = NULL;
	for (uint32_t i = 0; i < s->ring.count; i++) {
		s->ring.slots[i].next = s->ring.free;
		s->ring.free = &s->ring.slots[i];
	}
	pthread_mutex_unlock(&s->lock);
}

int mft_save_write(struct mft_saver *s, const struct mft_save_place *to,
		   char (*digests)[MFT_SAVE_DIGEST], struct mfs_io_engine *engine,
		   struct mfs_error *err)
{
	const uint32_t files = s->plan.file_count;
	struct writer w = {.s = s,
			   .to = to,
			   .engine = engine,
			   .digests = digests,
			   .files_left = files,
			   .err = err};
	struct lane lanes[MFT_SAVE_LANES] = {0};
	int rc = 0;

	w.files = s->system.alloc(s->system.arg, (files + 1u) * sizeof(*w.files));
	if (!w.files)
		rc = mfs_fail_nomem(err);
	for (uint32_t i = 0; w.files && i < files; i++)
		w.files[i].fd = -1;
	if (!rc)
		rc = start_lanes(&w, lanes);
	if (!rc)
		rc = write_all(&w);
	rc = end_lanes(&w, lanes, rc);
	if (w.files)
		rc = close_all(&w, rc);
	free_slots(s);
	free(w.files);
	return rc;
}

/* One request, to its end. */
static int run_io(struct mfs_io_engine *engine, struct mfs_io *io)
{
	struct mfs_io *done;
	bool direct;
	int rc;

	do {
		direct = is_direct(io->fd);
		rc = mfs_io_submit(engine, io);
		if (!rc)
			rc = await(engine, &done);
	} while (!rc && may_retry(io, direct));
	return rc ? rc : io->result;
}

/* A new file, whose bytes come piece by piece through one buffer. */
struct stream {
	const struct mft_save_place *to;
	const char *name;
	uint64_t size;
	mft_save_read *read;
	void *arg;
	unsigned char *block;
	uint64_t room; /* of the block */
};

static int write_pieces(const struct stream *f, int fd, struct mfs_io_engine *engine,
			struct mfs_error *err)
{
	int rc = 0;

	for (uint64_t at = 0; at < f->size && !rc; at += f->room) {
		const uint64_t n = mfs_min_u64(f->room, f->size - at);
		struct iovec iov = {f->block, mfs_round_up(n, MFT_SAVE_BLOCK)};
		struct mfs_io io = {
			.kind = MFS_IO_WRITE, .fd = fd, .off = at, .iov = &iov, .iov_count = 1};

		rc = f->read(f->arg, at, f->block, n, err);
		if (rc)
			return rc;
		memset(f->block + n, 0, iov.iov_len - n);
		rc = run_io(engine, &io);
		if (rc)
			rc = mfs_fail(err, rc, "cannot write '%s/%s': %s", f->to->path, f->name,
				      strerror(-rc));
	}
	return rc;
}

static int end_stream(const struct mft_save_system_ops *sys, const struct stream *f, int fd,
		      struct mfs_io_engine *engine, struct mfs_error *err)
{
	struct mfs_io sync = {.kind = MFS_IO_SYNC, .fd = fd};
	int rc = sys->truncate(sys->arg, fd, f->size);

	if (!rc)
		rc = run_io(engine, &sync);
	return rc ? mfs_fail(err, rc, "cannot write '%s/%s': %s", f->to->path, f->name,
			     strerror(-rc))
		  : 0;
}

int mft_save_write_stream(struct mft_saver *s, const struct mft_save_place *to, const char *name,
			  uint64_t size, mft_save_read *read, void *arg,
			  struct mfs_io_engine *engine, struct mfs_error *err)
{
	const struct mft_save_system_ops *sys = &s->system;
	struct stream f = {.to = to, .name = name, .size = size, .read = read, .arg = arg};
	int rc, closed, fd;

	f.room = mfs_min_u64(mfs_round_up(size, MFT_SAVE_BLOCK), MFT_SAVE_SLOT);
	f.block = sys->alloc(sys->arg, f.room);
	if (!f.block)
		return mfs_fail_nomem(err);
	rc = sys->open(sys->arg, to->fd, name, &fd);
	if (rc) {
		free(f.block);
		return mfs_fail(err, rc, "cannot create '%s/%s': %s", to->path, name,
				strerror(-rc));
	}
	rc = write_pieces(&f, fd, engine, err);
	if (!rc)
		rc = end_stream(sys, &f, fd, engine, err);
	closed = sys->close(sys->arg, fd);
	free(f.block);
	if (closed && !rc)
		rc = mfs_fail(err, closed, "cannot write '%s/%s': %s", to->path, name,
			      strerror(-closed));
	return rc;
}

static int read_memory(void *arg, uint64_t at, void *to, uint64_t n, struct mfs_error *err)
{
	(void)err;
	memcpy(to, (const unsigned char *)arg + at, n);
	return 0;
}

int mft_save_write_small(struct mft_saver *s, const struct mft_save_place *to, const char *name,
			 const void *bytes, uint64_t length, struct mfs_io_engine *engine,
			 struct mfs_error *err)
{
	return mft_save_write_stream(s, to, name, length, read_memory, (void *)(uintptr_t)bytes,
				     engine, err);
}
