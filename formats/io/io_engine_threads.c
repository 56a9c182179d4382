/* Threads that make the system calls of requests: several are in flight without io_uring. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "formats/base/threads.h"
#include "formats/io/io_engine.h"

struct entry {
	struct mfs_io *w;
	ssize_t done;
};

/* Requests wait in a ring from `taken` to `tail`, and in another one when they are done. */
struct threads_state {
	pthread_mutex_t lock;
	pthread_cond_t work, finished;
	bool stop;
	unsigned depth, thread_count;
	uint64_t taken, tail, done_head, done_tail;
	struct entry *waiting, *done;
	pthread_t threads[MFS_THREADS_MAX];
};

static void *work(void *arg)
{
	struct threads_state *t = arg;

	pthread_mutex_lock(&t->lock);
	for (;;) {
		struct entry e;

		while (t->taken == t->tail && !t->stop)
			pthread_cond_wait(&t->work, &t->lock);
		if (t->taken == t->tail)
			break;
		e = t->waiting[t->taken++ % t->depth];
		pthread_mutex_unlock(&t->lock);
		e.done = mfs_io_call(e.w);
		pthread_mutex_lock(&t->lock);
		t->done[t->done_tail++ % t->depth] = e;
		pthread_cond_signal(&t->finished);
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static int threads_start(void *state, struct mfs_io *w)
{
	struct threads_state *t = state;

	pthread_mutex_lock(&t->lock);
	t->waiting[t->tail++ % t->depth] = (struct entry){.w = w};
	pthread_cond_signal(&t->work);
	pthread_mutex_unlock(&t->lock);
	return 0;
}

static int threads_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct threads_state *t = state;
	struct entry e;

	pthread_mutex_lock(&t->lock);
	while (t->done_head == t->done_tail)
		pthread_cond_wait(&t->finished, &t->lock);
	e = t->done[t->done_head++ % t->depth];
	pthread_mutex_unlock(&t->lock);
	*ret = e.w;
	*ret_done = e.done;
	return 0;
}

static void threads_free(void *state)
{
	struct threads_state *t = state;

	pthread_mutex_lock(&t->lock);
	t->stop = true;
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->lock);
	while (t->thread_count)
		pthread_join(t->threads[--t->thread_count], NULL);
	pthread_cond_destroy(&t->work);
	pthread_cond_destroy(&t->finished);
	pthread_mutex_destroy(&t->lock);
	free(t->waiting);
	free(t->done);
	free(t);
}

static void start_threads(struct threads_state *t, unsigned threads)
{
	while (t->thread_count < threads &&
	       !mfs_thread_start(&t->threads[t->thread_count], "read", work, t))
		t->thread_count++;
}

int mfs_io_threads(unsigned depth, unsigned threads, struct mfs_io_engine **ret,
		   struct mfs_error *err)
{
	static const struct mfs_io_engine_ops ops = {
		.name = "threads",
		.start = threads_start,
		.reap = threads_reap,
		.free = threads_free,
	};
	struct threads_state *t;

	if (!depth)
		return mfs_fail(err, -EINVAL, "an engine needs room for one request");
	t = calloc(1, sizeof(*t));
	if (!t)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->work, NULL);
	pthread_cond_init(&t->finished, NULL);
	t->depth = depth;
	t->waiting = calloc(depth, sizeof(*t->waiting));
	t->done = calloc(depth, sizeof(*t->done));
	if (t->waiting && t->done)
		start_threads(t, mfs_threads_count(threads, MFS_THREADS_MAX));
	if (!t->thread_count) {
		threads_free(t);
		return mfs_fail(err, -EAGAIN, "no thread can be started for reads and writes");
	}
	return mfs_io_engine_with(&ops, t, depth, ret, err);
}
