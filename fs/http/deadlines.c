#define _GNU_SOURCE
#include "fs/http/deadlines.h"

#include <errno.h>
#include <sys/socket.h>
#include <time.h>

#include "formats/base/clock.h"

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
	return -pthread_create(&d->thread, NULL, attend, d);
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

void mfs_deadlines_add(struct mfs_deadlines *d, struct mfs_connection *c, int fd)
{
	c->fd = fd;
	pthread_mutex_lock(&d->lock);
	c->next = d->first;
	c->at = &d->first;
	if (c->next)
		c->next->at = &c->next;
	d->first = c;
	d->count++;
	pthread_mutex_unlock(&d->lock);
}

void mfs_deadlines_remove(struct mfs_deadlines *d, struct mfs_connection *c)
{
	pthread_mutex_lock(&d->lock);
	*c->at = c->next;
	if (c->next)
		c->next->at = c->at;
	d->count--;
	pthread_mutex_unlock(&d->lock);
}

void mfs_connection_due(struct mfs_connection *c, unsigned seconds)
{
	atomic_store_explicit(&c->due, seconds ? mfs_now_ns() + seconds * SECOND : INT64_MAX,
			      memory_order_relaxed);
}
