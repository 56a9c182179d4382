/* A thread of a load: takes chunks, has several of them on their way, and brings them home. */
#include <errno.h>
#include <stdlib.h>

#include "formats/load/box_load_i.h"

#define GATHER_BYTES  (1u << 20)
#define GATHER_IOVECS 512

struct worker {
	struct mfs_load *load;
	unsigned number; /* of the thread's part of the buffers */
	struct mfs_load_slot *slots;
	unsigned reading;
	uint64_t turn;		      /* of the next slot that leaves */
	struct mfs_io_engine *engine; /* NULL: nothing had to be read yet */
	struct mfs_cuda_stream *stream;
	struct mfs_gather gather;
	bool gathers; /* gather is there */
	struct mfs_error err;
};

static bool is_stopped(const struct worker *w)
{
	return atomic_load_explicit(&w->load->stop, memory_order_relaxed);
}

/* ---- slots ---- */

/* The slot's bytes are where they go. */
static void settle(struct worker *w, struct mfs_load_slot *slot)
{
	mfs_load_arrived(w->load, slot->chunk);
	slot->state = SLOT_FREE;
}

/* A slot whose bytes a GPU copies is free when the copy has ended. */
static int look_at(struct worker *w, struct mfs_load_slot *slot, bool wait)
{
	int rc;

	if (slot->state != SLOT_LEAVING)
		return 0;
	rc = mfs_cuda_come(w->stream, slot->number, wait, &w->err);
	if (!rc)
		settle(w, slot);
	return rc == -EAGAIN ? 0 : rc;
}

/* NULL: all slots are being read. Copies end in the order in which they began, so that the oldest
 * alone is asked for: each question is a call of the driver, which all threads share. */
static int free_slot(struct worker *w, struct mfs_load_slot **ret)
{
	struct mfs_load_slot *oldest = NULL;
	int rc;

	*ret = NULL;
	for (unsigned i = 0; i < w->load->slots; i++) {
		struct mfs_load_slot *slot = &w->slots[i];

		if (slot->state == SLOT_FREE) {
			*ret = slot;
			return 0;
		}
		if (slot->state == SLOT_LEAVING && (!oldest || slot->turn < oldest->turn))
			oldest = slot;
	}
	if (!oldest)
		return 0;
	rc = look_at(w, oldest, !w->reading);
	if (oldest->state == SLOT_FREE)
		*ret = oldest;
	return rc;
}

/* ---- one chunk ---- */

static int deliver(struct worker *w, struct mfs_load_slot *slot)
{
	int rc = w->stream
			 ? mfs_load_buffers_pin(&w->load->buffers, w->number, slot->number, &w->err)
			 : 0;

	if (!rc)
		rc = mfs_load_deliver(w->load, slot, w->stream, &w->err);
	mfs_load_source_done(&w->load->job.sources[slot->chunk->source]);
	if (rc)
		return rc;
	slot->state = SLOT_LEAVING;
	slot->turn = w->turn++;
	if (!w->stream)
		settle(w, slot);
	return 0;
}

static int gather(struct worker *w, struct mfs_load_slot *slot)
{
	int rc = 0;

	if (!w->gathers && mfs_gather_init(&w->gather, GATHER_BYTES, GATHER_IOVECS))
		return mfs_fail_nomem(&w->err);
	w->gathers = true;
	rc = mfs_load_gather(w->load, slot, &w->gather, &w->err);
	return rc ? rc : deliver(w, slot);
}

static int read_later(struct worker *w, struct mfs_load_slot *slot)
{
	int rc = 0;

	if (!w->engine)
		rc = mfs_io_engine_new(w->load->slots, &w->engine, &w->err);
	if (rc)
		return rc;
	if (mfs_io_engine_name(w->engine)[0] == 'i')
		atomic_store(&w->load->uses_uring, true);
	mfs_load_fetch_begin(w->load, slot);
	if (!slot->io.iov_count) { /* all of it is the tail that O_DIRECT cannot read */
		rc = mfs_load_fetch_end(w->load, slot, &w->err);
		return rc ? rc : deliver(w, slot);
	}
	rc = mfs_io_submit(w->engine, &slot->io);
	if (rc)
		return mfs_fail(&w->err, rc, "a read cannot be started: %s", mfs_errno_text(-rc));
	slot->state = SLOT_READING;
	w->reading++;
	return 0;
}

static int start(struct worker *w, struct mfs_load_slot *slot, const struct mfs_load_chunk *chunk)
{
	struct mfs_load *load = w->load;
	int rc = mfs_load_source_open(load, &load->job.sources[chunk->source], &w->err);

	if (rc)
		return rc;
	slot->chunk = chunk;
	if (mfs_load_is_gathered(load, chunk))
		return gather(w, slot);
	rc = mfs_load_fetch_cached(load, slot, &w->err);
	if (rc < 0)
		return rc;
	if (rc)
		return deliver(w, slot);
	if (!mfs_load_fetch_gds(load, slot))
		return read_later(w, slot);
	mfs_load_source_done(&load->job.sources[chunk->source]);
	settle(w, slot);
	return 0;
}

static int reap(struct worker *w)
{
	struct mfs_load_slot *slot = NULL;
	struct mfs_io *io;
	int rc = mfs_io_wait(w->engine, &io);

	if (rc == -EINTR)
		return 0;
	if (rc)
		return mfs_fail(&w->err, rc, "a read does not end: %s", mfs_errno_text(-rc));
	for (unsigned i = 0; i < w->load->slots; i++)
		if (&w->slots[i].io == io)
			slot = &w->slots[i];
	w->reading--;
	slot->state = SLOT_FREE;
	rc = mfs_load_fetch_end(w->load, slot, &w->err);
	return rc ? rc : deliver(w, slot);
}

/* ---- all ---- */

static const struct mfs_load_chunk *next_chunk(struct worker *w)
{
	const uint32_t i = atomic_fetch_add(&w->load->next, 1);

	return i < w->load->job.chunk_count ? &w->load->job.chunks[i] : NULL;
}

static int work(struct worker *w)
{
	const struct mfs_load_chunk *chunk = NULL;
	struct mfs_load_slot *slot;
	int rc = 0;

	while (!rc && !is_stopped(w)) {
		rc = free_slot(w, &slot);
		if (rc)
			break;
		if (slot && (chunk = next_chunk(w)))
			rc = start(w, slot, chunk);
		else if (w->reading)
			rc = reap(w);
		else
			break;
	}
	return rc;
}

/* Nothing may write to a buffer or a destination once the thread has ended. */
static int drain(struct worker *w, int rc)
{
	struct mfs_io *io;
	int more = 0;

	while (w->reading && (more = mfs_io_wait(w->engine, &io)) != -ENOENT)
		w->reading -= !more;
	for (unsigned i = 0; i < w->load->slots && w->stream; i++) {
		more = look_at(w, &w->slots[i], true);
		rc = rc ? rc : more;
	}
	return rc;
}

static int prepare(struct worker *w)
{
	struct mfs_load *load = w->load;
	uint8_t *memory = mfs_load_buffers_part(&load->buffers, w->number);

	w->slots = calloc(load->slots, sizeof(*w->slots));
	if (!w->slots)
		return mfs_fail_nomem(&w->err);
	for (unsigned i = 0; i < load->slots; i++) {
		w->slots[i].number = i;
		w->slots[i].memory = memory + i * load->slot_size;
	}
	return load->cuda ? mfs_cuda_stream_new(load->cuda, load->slots, &w->stream, &w->err) : 0;
}

void *mfs_load_work(void *arg)
{
	struct worker w = {.load = arg};
	int rc;

	w.number = atomic_fetch_add(&w.load->numbers, 1);
	rc = prepare(&w);

	if (!rc)
		rc = drain(&w, work(&w));
	mfs_io_engine_free(w.engine);
	mfs_cuda_stream_free(w.stream);
	if (w.gathers)
		mfs_gather_release(&w.gather);
	free(w.slots);
	mfs_load_ended(w.load, rc, &w.err);
	return NULL;
}
