#define _GNU_SOURCE
#include "fs/http/deadlines.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "formats/base/clock.h"
#include "formats/base/threads.h"

#define SECOND 1000000000ll

static void look(struct mfs_deadlines *d)
{
	const int64_t now = mfs_now_ns();

	for (struct mfs_connection *c = d->first; c; c = c->next)
		if (atomic_load_explicit(&c->due, memory_order_relaxed) < now)
			shutdown(c->fd, SHUT_RDWR);
}

static void *attend(void *arg)
{
	struct mfs_deadlines *d = arg;
	struct timespec t;

	pthread_mutex_lock(&d->lock);
	while (!d->ending) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		t.tv_sec++;
		if (pthread_cond_timedwait(&d->wake, &d->lock, &t) == ETIMEDOUT)
			look(d);
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

int mfs_deadlines_start(struct mfs_deadlines *d)
{
	pthread_condattr_t attr;

	*d = (struct mfs_deadlines){0};
	pthread_mutex_init(&d->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&d->wake, &attr);
	pthread_condattr_destroy(&attr);
	return mfs_thread_start(&d->thread, "deadlines", attend, d);
}

void mfs_deadlines_stop(struct mfs_deadlines *d)
{
	pthread_mutex_lock(&d->lock);
	d->ending = true;
	pthread_cond_signal(&d->wake);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	pthread_cond_destroy(&d->wake);
	pthread_mutex_destroy(&d->lock);
}

/* The one that has waited longest for its client; its due is the earliest. NULL: none waits. */
static struct mfs_connection *longest_waiting(const struct mfs_deadlines *d, bool spare)
{
	struct mfs_connection *longest = NULL;

	for (struct mfs_connection *c = d->first; c; c = c->next) {
		if (c->closing || atomic_load(&c->answering) || atomic_load(&c->spare) != spare)
			continue;
		if (!longest || atomic_load(&c->due) < atomic_load(&longest->due))
			longest = c;
	}
	return longest;
}

/* A request that comes at this moment is lost with its connection, as any may be that is kept. */
static bool close_one(struct mfs_deadlines *d, bool spare)
{
	struct mfs_connection *c = longest_waiting(d, spare);

	if (!c)
		return false;
	c->closing = true;
	d->closing++;
	shutdown(c->fd, SHUT_RDWR);
	return true;
}

unsigned mfs_deadlines_add(struct mfs_deadlines *d, struct mfs_connection *c, int fd, unsigned most)
{
	unsigned closing;

	c->fd = fd;
	pthread_mutex_lock(&d->lock);
	if (d->count - d->closing >= most && !close_one(d, false))
		atomic_store(&c->spare, true);
	if (d->count - d->closing >= most + MFS_CONNECTIONS_SPARE)
		close_one(d, true);
	c->next = d->first;
	c->at = &d->first;
	if (c->next)
		c->next->at = &c->next;
	d->first = c;
	d->count++;
	closing = d->closing;
	pthread_mutex_unlock(&d->lock);
	return closing;
}

void mfs_deadlines_remove(struct mfs_deadlines *d, struct mfs_connection *c)
{
	pthread_mutex_lock(&d->lock);
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	d->count--;
	d->closing -= c->closing;
	pthread_mutex_unlock(&d->lock);
}

bool mfs_deadlines_answers(struct mfs_deadlines *d, struct mfs_connection *c, unsigned most)
{
	atomic_store(&c->answering, true);
	if (!atomic_load(&c->spare)) /* the usual case takes no lock */
		return false;
	pthread_mutex_lock(&d->lock);
	if (d->count - d->closing <= most)
		atomic_store(&c->spare, false); /* others have gone */
	pthread_mutex_unlock(&d->lock);
	return atomic_load(&c->spare);
}

void mfs_connection_due(struct mfs_connection *c, unsigned seconds)
{
	atomic_store_explicit(&c->due, seconds ? mfs_now_ns() + seconds * SECOND : INT64_MAX,
			      memory_order_relaxed);
}
