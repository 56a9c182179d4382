#include "fs/pack/text/ring.h"

#include <stdlib.h>
#include <time.h>

#define WAIT_SECONDS 1
#define BUDGET	     (256u << 20)
#define KEPT	     (4u << 20) /* a buffer's capacity, at most */

int mfs_text_ring_init(struct mfs_text_ring *r, unsigned count, struct mfs_error *err)
{
	pthread_condattr_t clock;

	*r = (struct mfs_text_ring){.count = count, .budget = BUDGET};
	r->batches = calloc(count, sizeof(*r->batches));
	if (!r->batches)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->can_fill, NULL);
	pthread_cond_init(&r->can_encode, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&r->can_write, &clock);
	pthread_condattr_destroy(&clock);
	return 0;
}

static void release_above(struct mfs_buf *b, size_t capacity)
{
	if (b->cap > capacity)
		mfs_buf_release(b);
}

/* Releases the buffers of a batch that are larger. */
static void release_batch(struct mfs_text_batch *b, size_t capacity)
{
	release_above(&b->text, capacity);
	for (int i = 0; i < MFS_PACK_KEYS; i++) {
		release_above(&b->keys[i].tokens, capacity);
		release_above(&b->keys[i].lengths, capacity);
		release_above(&b->keys[i].sequences, capacity);
	}
}

void mfs_text_ring_release(struct mfs_text_ring *r)
{
	if (!r->batches)
		return;
	for (uint64_t i = 0; i < r->count; i++)
		release_batch(&r->batches[i], 0);
	free(r->batches);
	pthread_cond_destroy(&r->can_fill);
	pthread_cond_destroy(&r->can_encode);
	pthread_cond_destroy(&r->can_write);
	pthread_mutex_destroy(&r->lock);
}

static struct mfs_text_batch *batch(struct mfs_text_ring *r, uint64_t number)
{
	return &r->batches[number % r->count];
}

/* ---- the filler ---- */

static bool is_full(const struct mfs_text_ring *r)
{
	return r->filled - r->written == r->count || r->bytes > r->budget;
}

struct mfs_text_batch *mfs_text_ring_to_fill(struct mfs_text_ring *r)
{
	struct mfs_text_batch *b = NULL;

	pthread_mutex_lock(&r->lock);
	while (!r->stopped && is_full(r))
		pthread_cond_wait(&r->can_fill, &r->lock);
	if (!r->stopped)
		b = batch(r, r->filled);
	pthread_mutex_unlock(&r->lock);
	return b;
}

void mfs_text_ring_filled(struct mfs_text_ring *r)
{
	pthread_mutex_lock(&r->lock);
	r->bytes += batch(r, r->filled)->text.len;
	r->filled++;
	pthread_cond_signal(&r->can_encode);
	pthread_mutex_unlock(&r->lock);
}

void mfs_text_ring_close(struct mfs_text_ring *r)
{
	pthread_mutex_lock(&r->lock);
	r->closed = true;
	pthread_cond_broadcast(&r->can_encode);
	pthread_cond_signal(&r->can_write);
	pthread_mutex_unlock(&r->lock);
}

/* ---- encoders ---- */

struct mfs_text_batch *mfs_text_ring_to_encode(struct mfs_text_ring *r)
{
	struct mfs_text_batch *b = NULL;

	pthread_mutex_lock(&r->lock);
	while (!r->stopped && !r->closed && r->taken == r->filled)
		pthread_cond_wait(&r->can_encode, &r->lock);
	if (!r->stopped && r->taken < r->filled)
		b = batch(r, r->taken++);
	pthread_mutex_unlock(&r->lock);
	return b;
}

void mfs_text_ring_encoded(struct mfs_text_ring *r, struct mfs_text_batch *b)
{
	pthread_mutex_lock(&r->lock);
	b->encoded = true;
	if (b == batch(r, r->written))
		pthread_cond_signal(&r->can_write);
	pthread_mutex_unlock(&r->lock);
}

/* ---- the writer ---- */

static bool wait_for_next(struct mfs_text_ring *r, bool *ret_end)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WAIT_SECONDS;
	while (!batch(r, r->written)->encoded) {
		*ret_end = r->closed && r->written == r->filled;
		if (*ret_end || pthread_cond_timedwait(&r->can_write, &r->lock, &until))
			return false;
	}
	return true;
}

struct mfs_text_batch *mfs_text_ring_to_write(struct mfs_text_ring *r, bool *ret_end)
{
	struct mfs_text_batch *b;

	*ret_end = false;
	pthread_mutex_lock(&r->lock);
	b = wait_for_next(r, ret_end) ? batch(r, r->written) : NULL;
	pthread_mutex_unlock(&r->lock);
	return b;
}

void mfs_text_ring_written(struct mfs_text_ring *r)
{
	struct mfs_text_batch *b = batch(r, r->written);
	const size_t len = b->text.len;

	release_batch(b, KEPT);
	pthread_mutex_lock(&r->lock);
	b->encoded = false;
	r->bytes -= len;
	r->written++;
	pthread_cond_signal(&r->can_fill);
	pthread_mutex_unlock(&r->lock);
}

void mfs_text_ring_stop(struct mfs_text_ring *r)
{
	pthread_mutex_lock(&r->lock);
	r->stopped = true;
	pthread_cond_broadcast(&r->can_fill);
	pthread_cond_broadcast(&r->can_encode);
	pthread_mutex_unlock(&r->lock);
}

bool mfs_text_ring_stopped(struct mfs_text_ring *r)
{
	bool stopped;

	pthread_mutex_lock(&r->lock);
	stopped = r->stopped;
	pthread_mutex_unlock(&r->lock);
	return stopped;
}
