#include "trainer/rl/engine/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/base/threads.h"

struct batch {
	struct mft_request *requests;
	struct mft_response *responses;
	size_t count;
	bool done;
	int rc;
	struct mfs_error err;
};

struct mft_ahead {
	struct mft_engines *engines;
	struct mft_sampling how;
	pthread_t thread;
	bool has_thread;
	pthread_mutex_t lock; /* of all that follows */
	pthread_cond_t changed;
	struct batch list[MFT_AHEAD_MOST]; /* [first % MOST] is the oldest */
	size_t first, count;
	size_t next; /* that the thread takes */
	bool stop;
};

static struct batch *at(struct mft_ahead *a, size_t number)
{
	return &a->list[number % MFT_AHEAD_MOST];
}

static void release(struct batch *b)
{
	for (size_t i = 0; i < b->count && b->responses; i++)
		mft_response_release(&b->responses[i]);
	free(b->requests);
	free(b->responses);
	*b = (struct batch){0};
}

/* ---- the thread ---- */

static void run(struct mft_ahead *a, struct batch *b)
{
	b->rc = mft_engines_run(a->engines, b->requests, b->count, &a->how, b->responses, &b->err);
}

static void *work(void *arg)
{
	struct mft_ahead *a = arg;

	pthread_mutex_lock(&a->lock);
	while (!a->stop) {
		struct batch *b;

		if (a->next == a->first + a->count) {
			pthread_cond_wait(&a->changed, &a->lock);
			continue;
		}
		b = at(a, a->next);
		pthread_mutex_unlock(&a->lock);
		run(a, b);
		pthread_mutex_lock(&a->lock);
		b->done = true;
		a->next++;
		pthread_cond_broadcast(&a->changed);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

int mft_ahead_new(struct mft_engines *engines, const struct mft_sampling *how,
		  struct mft_ahead **ret, struct mfs_error *err)
{
	struct mft_ahead *a = calloc(1, sizeof(*a));
	int rc;

	if (!a)
		return mfs_fail_nomem(err);
	a->engines = engines;
	a->how = *how;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	rc = mfs_thread_start(&a->thread, "rollout", work, a);
	a->has_thread = !rc;
	if (rc) {
		mft_ahead_free(a);
		return mfs_fail(err, rc, "the thread of rollouts: %s", strerror(-rc));
	}
	*ret = a;
	return 0;
}

void mft_ahead_free(struct mft_ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	mft_engines_give_up(a->engines);
	if (a->has_thread)
		pthread_join(a->thread, NULL);
	for (size_t i = 0; i < MFT_AHEAD_MOST; i++)
		release(&a->list[i]);
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/* ---- the caller ---- */

int mft_ahead_submit(struct mft_ahead *a, const struct mft_request *requests, size_t count,
		     struct mfs_error *err)
{
	struct batch b = {.requests = calloc(count + 1, sizeof(*b.requests)),
			  .responses = calloc(count + 1, sizeof(*b.responses)),
			  .count = count};
	int rc = b.requests && b.responses ? 0 : mfs_fail_nomem(err);

	if (!rc)
		memcpy(b.requests, requests, count * sizeof(*requests));
	pthread_mutex_lock(&a->lock);
	if (!rc && a->count == MFT_AHEAD_MOST)
		rc = mfs_fail(err, -EBUSY, "%d batches of requests are under way", MFT_AHEAD_MOST);
	if (!rc)
		*at(a, a->first + a->count++) = b;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	if (rc)
		release(&b);
	return rc;
}

/* With the lock. False: stop() is true. */
static bool await_first(struct mft_ahead *a, bool (*stop)(void))
{
	while (!at(a, a->first)->done) {
		struct timespec end;

		if (stop())
			return false;
		clock_gettime(CLOCK_REALTIME, &end);
		end.tv_sec++;
		pthread_cond_timedwait(&a->changed, &a->lock, &end);
	}
	return true;
}

int mft_ahead_take(struct mft_ahead *a, struct mft_response *ret, size_t count, bool (*stop)(void),
		   struct mfs_error *err)
{
	struct batch b;
	int rc;

	pthread_mutex_lock(&a->lock);
	if (!a->count || at(a, a->first)->count != count) {
		pthread_mutex_unlock(&a->lock);
		return mfs_fail(err, -ENODATA, "no such batch of requests is under way");
	}
	if (!await_first(a, stop)) {
		pthread_mutex_unlock(&a->lock);
		return mfs_fail(err, -EINTR, "the wait for engines has ended");
	}
	b = *at(a, a->first);
	*at(a, a->first++) = (struct batch){0};
	a->count--;
	pthread_mutex_unlock(&a->lock);
	rc = b.rc;
	if (rc) {
		if (err)
			*err = b.err;
	} else {
		memcpy(ret, b.responses, count * sizeof(*ret));
		memset(b.responses, 0, count * sizeof(*ret));
	}
	release(&b);
	return rc;
}
