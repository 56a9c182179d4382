#include "fs/pack/text/ring.h"

#include <stdlib.h>
#include <time.h>

#define WAIT_SECONDS 1

int mfs_text_ring_init(struct mfs_text_ring *r, unsigned count, struct mfs_error *err)
{
	pthread_condattr_t clock;

	*r = (struct mfs_text_ring){.count = count};
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

static void release_batch(struct mfs_text_batch *b)
{
	mfs_buf_release(&b->text);
	for (int i = 0; i < MFS_PACK_KEYS; i++) {
		mfs_buf_release(&b->keys[i].tokens);
		mfs_buf_release(&b->keys[i].lengths);
		mfs_buf_release(&b->keys[i].sequences);
	}
}

void mfs_text_ring_release(struct mfs_text_ring *r)
{
	if (!r->batches)
		return;
	for (uint64_t i = 0; i < r->count; i++)
		release_batch(&r->batches[i]);
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

struct mfs_text_batch *mfs_text_ring_to_fill(struct mfs_text_ring *r)
{
	struct mfs_text_batch *b = NULL;

	pthread_mutex_lock(&r->lock);
	while (!r->stopped && r->filled - r->written == r->count)
		pthread_cond_wait(&r->can_fill, &r->lock);
	if (!r->stopped)
		b = batch(r, r->filled);
	pthread_mutex_unlock(&r->lock);
	return b;
}

void mfs_text_ring_filled(struct mfs_text_ring *r)
{
	pthread_mutex_lock(&r->lock);
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

static int wait_for_next(struct mfs_text_ring *r)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += WAIT_SECONDS;
	while (!batch(r, r->written)->encoded) {
		if (r->closed && r->written == r->filled)
			return -ENODATA;
		if (pthread_cond_timedwait(&r->can_write, &r->lock, &until))
			return -EAGAIN;
	}
	return 0;
}

int mfs_text_ring_to_write(struct mfs_text_ring *r, struct mfs_text_batch **ret)
{
	int rc;

	pthread_mutex_lock(&r->lock);
	rc = wait_for_next(r);
	*ret = rc ? NULL : batch(r, r->written);
	pthread_mutex_unlock(&r->lock);
	return rc;
}

void mfs_text_ring_written(struct mfs_text_ring *r)
{
	pthread_mutex_lock(&r->lock);
	batch(r, r->written)->encoded = false;
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
