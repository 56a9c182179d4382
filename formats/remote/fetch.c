/*
 * Jobs and the threads that do them: one connection each. Jobs that somebody waits for come before
 * those that are only likely to be needed, which are dropped when there are too many.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "formats/base/trace.h"
#include "formats/remote/cache_i.h"

/* Jobs that nobody waits for: 512 MiB. */
#define AHEAD_MOST 64
/* A server that sends fewer bytes than these before each failure gets no further. */
#define PROGRESS 65536

/* ---- jobs, under the lock ---- */

struct mfs_job *mfs_fetch_job(const struct mfs_object *o, uint32_t block)
{
	return o->jobs[block];
}

void mfs_fetch_unref(struct mfs_job *job)
{
	if (--job->refs)
		return;
	pthread_cond_destroy(&job->news);
	free(job);
}

static void append(struct mfs_queue *q, struct mfs_job *job)
{
	job->next_queued = NULL;
	if (q->last)
		q->last->next_queued = job;
	else
		q->first = job;
	q->last = job;
}

static struct mfs_job *take_first(struct mfs_queue *q)
{
	struct mfs_job *job = q->first;

	if (!job)
		return NULL;
	q->first = job->next_queued;
	if (!q->first)
		q->last = NULL;
	return job;
}

/* False: it is not in the queue. */
static bool take_out(struct mfs_queue *q, const struct mfs_job *job)
{
	struct mfs_job *before = NULL;

	for (struct mfs_job *j = q->first; j; before = j, j = j->next_queued) {
		if (j != job)
			continue;
		*(before ? &before->next_queued : &q->first) = j->next_queued;
		if (q->last == j)
			q->last = before;
		return true;
	}
	return false;
}

/* What a thread needs to do jobs. */
struct worker {
	struct mfs_cache *c;
	struct mfs_curl *h;
	uint8_t *room; /* of one block */
};

static void free_worker(struct worker *w)
{
	mfs_curl_free(w->h);
	free(w->room);
	free(w);
}

static struct worker *new_worker(struct mfs_cache *c)
{
	struct worker *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->c = c;
	w->room = malloc(MFS_BLOCK_BYTES);
	if (w->room && !mfs_curl_new(&c->http, &w->h, NULL))
		return w;
	free_worker(w);
	return NULL;
}

static void *work(void *arg);

/* A thread has its memory before it begins, so that each one that there is can do jobs. Those that
 * there are do the jobs of one that cannot begin. */
static int start_thread(struct mfs_cache *c)
{
	struct worker *w;
	int rc;

	if (c->queued < c->idle || c->thread_count >= c->connections)
		return 0;
	w = new_worker(c);
	rc = w ? mfs_thread_start(&c->threads[c->thread_count], "fetch", work, w) : -ENOMEM;
	if (!rc)
		c->thread_count++;
	else if (w)
		free_worker(w);
	return c->thread_count ? 0 : rc;
}

static int add_job(struct mfs_object *o, uint32_t first, uint32_t count, bool wanted)
{
	struct mfs_cache *c = o->cache;
	struct mfs_job *job;
	int rc = start_thread(c);

	if (rc)
		return rc;
	job = calloc(1, sizeof(*job));
	if (!job)
		return -ENOMEM;
	*job = (struct mfs_job){.object = o,
				.first = first,
				.count = count,
				.next = first,
				.wanted = wanted,
				.refs = 1};
	pthread_cond_init(&job->news, NULL);
	for (uint32_t i = 0; i < count; i++)
		o->jobs[first + i] = job;
	append(wanted ? &c->wanted : &c->ahead, job);
	c->ahead_count += !wanted;
	c->queued++;
	pthread_cond_signal(&c->work);
	return 0;
}

/* Somebody waits for it by now. */
static void want(struct mfs_cache *c, struct mfs_job *job)
{
	if (job->wanted)
		return;
	job->wanted = true;
	if (!take_out(&c->ahead, job))
		return; /* it is being done */
	c->ahead_count--;
	append(&c->wanted, job);
}

int mfs_fetch_start(struct mfs_object *o, uint32_t first, uint32_t last, bool wanted)
{
	struct mfs_cache *c = o->cache;
	uint32_t b = first;
	int rc = 0;

	while (b <= last && !rc && !c->ending && (wanted || c->ahead_count < AHEAD_MOST)) {
		struct mfs_job *job = mfs_fetch_job(o, b);
		uint32_t n = 1;

		if (job && wanted)
			want(c, job);
		if (!job && !mfs_block_is_there(o, b)) {
			while (n < MFS_REQUEST_BLOCKS && b + n <= last &&
			       !mfs_block_is_there(o, b + n) && !mfs_fetch_job(o, b + n))
				n++;
			rc = add_job(o, b, n, wanted);
		}
		b += n;
	}
	return rc;
}

static struct mfs_job *take_job(struct mfs_cache *c)
{
	struct mfs_job *job = take_first(&c->wanted);

	if (!job) {
		job = take_first(&c->ahead);
		c->ahead_count -= job != NULL;
	}
	c->queued -= job != NULL;
	return job;
}

static void end_job(struct mfs_job *job)
{
	for (uint32_t i = 0; i < job->count; i++)
		job->object->jobs[job->first + i] = NULL;
	job->done = true;
	pthread_cond_broadcast(&job->news);
	mfs_fetch_unref(job);
}

/* ---- one job ---- */

struct transfer {
	struct mfs_object *o;
	struct mfs_job *job;
	int fd;
	uint8_t *room;	/* of one block */
	uint32_t have;	/* bytes in it, of the job's next block */
	uint32_t last;	/* block */
	uint64_t began; /* where the call got further for the last time */
};

static uint64_t at(uint32_t block)
{
	return (uint64_t)block * MFS_BLOCK_BYTES;
}

/* The answer must be the range that was asked for, of the version that was listed. */
static int check_answer(void *arg, const struct mfs_headers *h, struct mfs_error *err)
{
	struct transfer *t = arg;
	const struct mfs_object *o = t->o;
	const uint64_t first = at(t->job->next) + t->have;
	const uint64_t last = mfs_min_u64(at(t->last + 1), o->size) - 1;

	if ((*o->etag && strcmp(mfs_etag_opaque(h->etag), mfs_etag_opaque(o->etag))) ||
	    (!*o->etag && strcmp(h->last_modified, o->last_modified)) ||
	    (h->has_range && h->total != o->size))
		return mfs_fail(err, -ESTALE, "%s: changed on the server since it was listed",
				o->url);
	if (h->encoded)
		return mfs_fail(err, -EIO,
				"%s: the server sends encoded bytes, which were not "
				"asked for",
				o->url);
	if (h->status == 200 && !t->job->next && last == o->size - 1 &&
	    (!h->has_length || h->length == o->size)) {
		t->have = 0;
		return 0;
	}
	if (h->status != 206)
		return mfs_fail(err, -EIO, "%s: the server does not serve ranges (it answers %u)",
				o->url, h->status);
	if (!h->has_range || h->first != first || h->last != last)
		return mfs_fail(err, -EIO,
				"%s: asked for bytes %llu to %llu, the server sends others", o->url,
				(unsigned long long)first, (unsigned long long)last);
	return 0;
}

/* A whole block has come. */
static int keep(struct transfer *t, struct mfs_error *err)
{
	struct mfs_object *o = t->o;
	struct mfs_cache *c = o->cache;
	const uint32_t block = t->job->next;
	uint64_t written = 0;

	if (!mfs_block_is_there(o, block)) { /* another process may have been faster */
		ssize_t n;

		int rc = mfs_evict_settle(o, block);

		if (rc)
			return mfs_fail(err, -EIO,
					"%s: another process takes a block out of the cache: %s",
					c->dir, strerror(-rc));
		n = pwrite(t->fd, t->room, t->have, (off_t)at(block));
		if (n != (ssize_t)t->have)
			return mfs_fail(err, -EIO, "%s: cannot write to the cache: %s", c->dir,
					strerror(n < 0 ? errno : ENOSPC));
		atomic_store(&o->blocks.sums[block], mfs_block_sum(t->room, t->have, block));
		atomic_store(&o->met[block], 1);
		atomic_store(&o->blocks.states[block], MFS_BLOCK_PRESENT);
		atomic_fetch_add(&c->fetched, t->have);
		written = t->have;
	}
	t->have = 0;
	pthread_mutex_lock(&c->lock);
	t->job->next++;
	pthread_cond_broadcast(&t->job->news);
	pthread_mutex_unlock(&c->lock);
	if (written)
		mfs_evict_look(c, written);
	return 0;
}

static int take_bytes(void *arg, const uint8_t *bytes, size_t len, struct mfs_error *err)
{
	struct transfer *t = arg;
	int rc = 0;

	while (len && !rc) {
		size_t n, need;

		if (t->job->next > t->last)
			return mfs_fail(err, -EIO, "%s: the server sends more than was asked for",
					t->o->url);
		need = mfs_block_bytes(t->o, t->job->next);
		n = mfs_min_u64(len, need - t->have);
		memcpy(t->room + t->have, bytes, n);
		t->have += n;
		bytes += n;
		len -= n;
		if (t->have == need)
			rc = keep(t, err);
	}
	return rc;
}

/* The bytes that have come are kept: on a bad line a whole block may never come in one piece. */
static bool go_on(void *arg, struct mfs_curl_request *r)
{
	struct transfer *t = arg;

	r->first = at(t->job->next) + t->have;
	if (r->first < t->began + PROGRESS)
		return false;
	t->began = r->first;
	return true;
}

static int transfer(struct mfs_curl *h, struct transfer *t, struct mfs_error *err)
{
	const struct mfs_object *o = t->o;
	const bool strong = mfs_etag_is_strong(o->etag);
	struct mfs_curl_request r = {
		.url = o->url,
		.has_range = true,
		.first = at(t->job->first),
		.last = mfs_min_u64(at(t->last + 1), o->size) - 1,
		.if_match = strong ? o->etag : NULL,
		.if_unmodified = !*o->etag ? o->last_modified : NULL,
		.begin = check_answer,
		.bytes = take_bytes,
		.again = go_on,
		.arg = t,
	};
	int rc = mfs_curl_do(h, &r, NULL, err);

	MFS_TRACE(REMOTE, "%s: bytes %llu to %llu: %s", o->url, (unsigned long long)r.first,
		  (unsigned long long)r.last, rc ? strerror(-rc) : "they came");
	/* The server sent all bytes that it announced, and yet fewer than it should have
	 * announced. */
	if (!rc && t->job->next <= t->last)
		rc = mfs_fail(err, -EIO, "%s: the server sends too few bytes", o->url);
	return rc;
}

static int do_job(struct mfs_cache *c, struct mfs_curl *h, struct mfs_job *job, uint8_t *room,
		  struct mfs_error *err)
{
	struct mfs_object *o = job->object;
	struct transfer t = {.o = o,
			     .job = job,
			     .room = room,
			     .last = job->first + job->count - 1,
			     .began = at(job->first)};
	uint32_t pin;
	int rc;

	/* What is being written must not be taken out meanwhile. */
	if (mfs_pins_add(&c->pins, o->number, job->first, t.last, &pin))
		return mfs_fail(err, -EIO, "%s: too many ranges are read at once", o->url);
	t.fd = mfs_object_open(o);
	if (t.fd < 0) {
		rc = mfs_fail(err, -EIO, "%s: cannot open its file in the cache: %s", o->url,
			      strerror(-t.fd));
	} else {
		atomic_fetch_add(&c->requests, 1);
		rc = transfer(h, &t, err);
		close(t.fd);
	}
	mfs_pins_remove(&c->pins, pin);
	if (rc && !atomic_load(&c->stop))
		atomic_fetch_add(&c->failed, 1);
	if ((rc == -ESTALE || rc == -ENOENT) && !atomic_exchange(&o->stale, true))
		atomic_fetch_add(&c->stale, 1);
	return rc == -ENOENT ? mfs_fail(err, -ESTALE, "%s: deleted from the server", o->url) : rc;
}

static void work_on(struct mfs_cache *c, struct mfs_curl *h, uint8_t *room)
{
	struct mfs_error err;

	while (!c->ending) {
		struct mfs_job *job = take_job(c);
		int rc;

		if (!job) {
			c->idle++;
			pthread_cond_wait(&c->work, &c->lock);
			c->idle--;
			continue;
		}
		pthread_mutex_unlock(&c->lock);
		err.code = 0;
		rc = do_job(c, h, job, room, &err);
		pthread_mutex_lock(&c->lock);
		if (rc)
			job->err = err;
		job->err.code = rc;
		end_job(job);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->c->lock);
	work_on(w->c, w->h, w->room);
	pthread_mutex_unlock(&w->c->lock);
	free_worker(w);
	return NULL;
}

void mfs_fetch_end(struct mfs_cache *c)
{
	struct mfs_job *job;

	pthread_mutex_lock(&c->lock);
	c->ending = true;
	atomic_store(&c->stop, true);
	pthread_cond_broadcast(&c->work);
	pthread_mutex_unlock(&c->lock);
	for (unsigned i = 0; i < c->thread_count; i++)
		pthread_join(c->threads[i], NULL);
	pthread_mutex_lock(&c->lock);
	while ((job = take_job(c)))
		end_job(job);
	pthread_mutex_unlock(&c->lock);
}

void mfs_fetch_rest(struct mfs_cache *c)
{
	mfs_fetch_end(c);
	pthread_mutex_lock(&c->lock);
	c->thread_count = 0;
	c->ending = false;
	atomic_store(&c->stop, false);
	pthread_mutex_unlock(&c->lock);
}
