/*
 * Small loads: a few bytes are there sooner than a thread would be. They are read in the thread
 * that asks for them, one chunk after the other, by descriptors that the sources have open.
 */
#include <errno.h>
#include <stdlib.h>

#include "formats/base/bytes.h"
#include "formats/load/box_load_i.h"

#define SMALL_BYTES   (4ull << 20)
#define SMALL_BOXES   64
#define SMALL_CHUNKS  16
#define GATHER_BYTES  (64u << 10)
#define GATHER_IOVECS 64

/* Anyone who asks for threads, for buffers of a size or for O_DIRECT gets them. Bytes of another
 * machine may take long to come: nor are the boxes planned one after the other then. */
bool mfs_load_may_be_small(const struct mfs_load *load, const struct mfs_load_box *boxes,
			   size_t count)
{
	const struct mfs_load_options *o = &load->options;
	uint64_t bytes = 0;

	if (o->is_remote || o->device >= 0 || o->threads || o->memory ||
	    o->direct == MFS_LOAD_DIRECT_ALWAYS || count > SMALL_BOXES)
		return false;
	for (size_t i = 0; i < count; i++) {
		if (mfs_load_box_check(&boxes[i], NULL))
			return false;
		bytes += mfs_min_u64(mfs_load_box_bytes(&boxes[i]), SMALL_BYTES + 1);
	}
	return bytes <= SMALL_BYTES;
}

bool mfs_load_is_small(const struct mfs_load *load)
{
	const struct mfs_load_job *job = &load->job;
	uint64_t len = 0;

	if (job->chunk_count > SMALL_CHUNKS)
		return false;
	for (uint32_t i = 0; i < job->chunk_count; i++)
		if (!mfs_load_is_gathered(load, &job->chunks[i]))
			len += job->chunks[i].len;
	return len <= 2 * SMALL_BYTES;
}

/* What the largest chunk takes in a slot. */
static uint64_t room_of(const struct mfs_load *load)
{
	uint64_t room = 0;

	for (uint32_t i = 0; i < load->job.chunk_count; i++) {
		const struct mfs_load_chunk *c = &load->job.chunks[i];

		room = mfs_max_u64(room, mfs_load_is_gathered(load, c) ? c->bytes : c->len);
	}
	return room;
}

static int do_chunk(struct mfs_load *load, struct mfs_load_slot *slot, struct mfs_gather *g,
		    struct mfs_error *err)
{
	int rc;

	if (!mfs_load_is_gathered(load, slot->chunk))
		rc = mfs_load_fetch_now(load, slot, err);
	else if (g->scratch || !mfs_gather_init(g, GATHER_BYTES, GATHER_IOVECS))
		rc = mfs_load_gather(load, slot, g, err);
	else
		rc = mfs_fail_nomem(err);
	if (!rc)
		rc = mfs_load_deliver(load, slot, NULL, err);
	if (!rc)
		mfs_load_arrived(load, slot->chunk);
	return rc;
}

void mfs_load_run_here(struct mfs_load *load)
{
	struct mfs_load_slot slot = {.memory = malloc(room_of(load) + 1)};
	struct mfs_gather g = {0};
	struct mfs_error err = {0};
	int rc = slot.memory ? 0 : mfs_fail_nomem(&err);

	for (uint32_t i = 0; i < load->job.chunk_count && !rc; i++) {
		slot.chunk = &load->job.chunks[i];
		rc = do_chunk(load, &slot, &g, &err);
	}
	if (g.scratch)
		mfs_gather_release(&g);
	free(slot.memory);
	load->running = 1; /* until it has ended, as a thread does */
	mfs_load_ended(load, rc, &err);
}
