#define _GNU_SOURCE
#include "fs/prefetch/prefetch.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/threads.h"
#include "fs/prefetch/fetcher.h"
#include "fs/cli/log.h"
#include "fs/prefetch/window.h"
#include "fs/prefetch/stream.h"

#define STALE_MS    1000 /* a stream without requests for this long makes room for another */
#define PATIENCE_MS 1000 /* to wait for a fetcher that does not close a file */

#define PROCESSORS_EACH 8 /* of a fetcher */
#define FETCHERS_MOST	2 /* measured: more gain nothing */

#define FILES_MOST (MFS_PREFETCH_FETCHERS * MFS_PREFETCH_STREAMS)

struct mfs_prefetch_file {
	struct mfs_prefetch *prefetch;
	char *path;
	uint64_t size;

	pthread_mutex_t lock; /* taken before the lock of all files */
	struct mfs_stream stream;
	_Atomic uint64_t reached; /* stream.last, for threads without this lock */

	/* Under the lock of all files. */
	struct mfs_prefetch_window window;
	int64_t moved_ms; /* when the window was last moved */
	unsigned users;	  /* 1 while it is open, and 1 for each fetcher with an order of it */
	bool useless;
};

struct worker {
	struct mfs_fetcher fetcher;
	bool alive;
	struct mfs_prefetch_file *file; /* of its order; NULL: idle */
};

/* A call that waits until no fetcher has a file open. */
struct waiting {
	struct waiting *next;
	struct mfs_prefetch_file *file;
	int64_t until_ms;
	void (*done)(void *arg);
	void *arg;
};

enum state { ASLEEP, AWAKE, ENDED };

struct mfs_prefetch {
	const char *mountpoint;
	unsigned count; /* workers */
	int wake;	/* an eventfd that wakes the attendant */

	pthread_mutex_t lock;
	enum state state;
	dev_t dev; /* 0: the mount does not answer yet */
	pthread_t attendant;
	bool has_attendant;
	struct worker workers[MFS_PREFETCH_FETCHERS];
	struct mfs_prefetch_file *files[FILES_MOST]; /* the streams that are followed */
	unsigned turn;				     /* the stream that is served next */
	struct waiting *waiting;
	bool telling; /* the attendant is in a done() */
	pthread_cond_t told;
	struct mfs_prefetch_counts counts;
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- which range is next, and for which worker; under the lock of all files ---- */

static unsigned files_most(const struct mfs_prefetch *p)
{
	return p->count * MFS_PREFETCH_STREAMS;
}

static void free_file(struct mfs_prefetch_file *f)
{
	pthread_mutex_destroy(&f->lock);
	free(f->path);
	free(f);
}

static void drop_file(struct mfs_prefetch_file *f)
{
	if (!--f->users)
		free_file(f);
}

static void forget(struct mfs_prefetch *p, struct mfs_prefetch_file *f)
{
	f->window = (struct mfs_prefetch_window){0};
	for (unsigned i = 0; i < files_most(p); i++)
		if (p->files[i] == f)
			p->files[i] = NULL;
}

/* False: enough other streams are followed. */
static bool follow(struct mfs_prefetch *p, struct mfs_prefetch_file *f)
{
	const int64_t now = now_ms();
	unsigned room = FILES_MOST;

	f->moved_ms = now;
	for (unsigned i = 0; i < files_most(p); i++) {
		if (p->files[i] == f)
			return true;
		if (!p->files[i] || p->files[i]->moved_ms + STALE_MS < now)
			room = i;
	}
	if (room == FILES_MOST)
		return false;
	if (p->files[room])
		forget(p, p->files[room]);
	p->files[room] = f;
	p->counts.streams++;
	return true;
}

static struct mfs_prefetch_file *next_piece(struct mfs_prefetch *p, uint64_t *off, uint64_t *len)
{
	const unsigned n = files_most(p);

	for (unsigned i = 0; i < n; i++) {
		struct mfs_prefetch_file *f = p->files[p->turn++ % n];

		if (f && mfs_prefetch_take(&f->window,
					   atomic_load_explicit(&f->reached, memory_order_relaxed),
					   off, len))
			return f;
	}
	return NULL;
}

/* A worker that takes no order has ended or will end; the attendant will see it. */
static bool give_work(struct mfs_prefetch *p, struct worker *w)
{
	uint64_t off = 0, len = 0;
	struct mfs_prefetch_file *f = next_piece(p, &off, &len);

	if (!f)
		return false;
	if (mfs_fetcher_send(&w->fetcher, f->path, off, len)) {
		w->alive = false;
		mfs_fetcher_hang_up(&w->fetcher);
		return true;
	}
	w->file = f;
	f->users++;
	p->counts.pieces++;
	p->counts.bytes += len;
	return true;
}

static void give_all_work(struct mfs_prefetch *p)
{
	bool more = p->state == AWAKE;

	for (unsigned i = 0; i < p->count && more; i++)
		if (p->workers[i].alive && !p->workers[i].file)
			more = give_work(p, &p->workers[i]);
}

static bool is_worked_at(const struct mfs_prefetch *p, const struct mfs_prefetch_file *f)
{
	for (unsigned i = 0; i < p->count; i++)
		if (p->workers[i].file == f)
			return true;
	return false;
}

static void end_work(struct worker *w, int result)
{
	struct mfs_prefetch_file *f = w->file;

	if (!f)
		return;
	w->file = NULL;
	if (result) {
		f->useless = true;
		forget(f->prefetch, f);
	}
	drop_file(f);
}

/* ---- the attendant: the thread that starts fetchers, and waits until all have ended ---- */

/* Removes and returns the calls that need not wait, or have waited long enough. */
static struct waiting *take_released(struct mfs_prefetch *p, int64_t now)
{
	struct waiting **at = &p->waiting, *released = NULL, *w;

	while ((w = *at)) {
		if (w->until_ms > now && is_worked_at(p, w->file)) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		w->next = released;
		released = w;
		drop_file(w->file);
	}
	return released;
}

static void release(struct waiting *w)
{
	while (w) {
		struct waiting *next = w->next;

		w->done(w->arg);
		free(w);
		w = next;
	}
}

/* The caller holds the lock of all files; it is released during the calls. */
static void tell(struct mfs_prefetch *p, struct waiting *released)
{
	p->telling = true;
	pthread_mutex_unlock(&p->lock);
	release(released);
	pthread_mutex_lock(&p->lock);
	p->telling = false;
	pthread_cond_signal(&p->told);
}

static void start_workers(struct mfs_prefetch *p)
{
	for (unsigned i = 0; i < p->count; i++) {
		struct mfs_fetcher f;
		int rc = mfs_fetcher_start(p->mountpoint, p->dev, &f);

		if (rc) {
			mfs_log(LOG_WARNING, "%s: prefetch: no process can be started: %s",
				p->mountpoint, strerror(-rc));
			return;
		}
		pthread_mutex_lock(&p->lock);
		p->workers[i].fetcher = f;
		p->workers[i].alive = true;
		p->counts.fetchers++;
		give_all_work(p);
		pthread_mutex_unlock(&p->lock);
	}
}

static void bury(struct mfs_prefetch *p, struct worker *w)
{
	if (p->state != ENDED)
		mfs_log(LOG_WARNING,
			"%s: prefetch: process %d has ended; files are read without it",
			p->mountpoint, (int)w->fetcher.pid);
	w->alive = false;
	end_work(w, 0);
	mfs_fetcher_stop(&w->fetcher);
}

static void hear(struct mfs_prefetch *p, struct worker *w)
{
	int result, rc;

	if (w->fetcher.fd < 0) { /* buried */
		if (mfs_fetcher_reap(&w->fetcher, false))
			w->fetcher.pid = 0;
		return;
	}
	do {
		rc = mfs_fetcher_result(&w->fetcher, &result);
		if (!rc)
			end_work(w, result);
	} while (!rc);
	if (rc != -EAGAIN && rc != -EINTR)
		bury(p, w);
}

/* Waits for messages. impatient: for a limited time, since a call waits, or a fetcher is to be
 * reaped. */
static void wait_for_news(struct mfs_prefetch *p, bool impatient)
{
	struct pollfd fds[1 + MFS_PREFETCH_FETCHERS] = {{.fd = p->wake, .events = POLLIN}};
	uint64_t times;

	for (unsigned i = 0; i < p->count; i++) {
		const struct mfs_fetcher *f = &p->workers[i].fetcher;

		fds[1 + i] = (struct pollfd){.fd = f->pid ? f->fd : -1, .events = POLLIN};
		impatient |= f->pid && f->fd < 0;
	}
	poll(fds, 1 + p->count, impatient ? PATIENCE_MS : -1);
	if (fds[0].revents && read(p->wake, &times, sizeof(times)) < 0)
		return; /* reading empties it */
}

static void *attend(void *arg)
{
	struct mfs_prefetch *p = arg;
	struct waiting *released;
	bool somebody_waits;

	start_workers(p);
	pthread_mutex_lock(&p->lock);
	while (p->state == AWAKE) {
		for (unsigned i = 0; i < p->count; i++)
			if (p->workers[i].fetcher.pid)
				hear(p, &p->workers[i]);
		released = take_released(p, now_ms());
		give_all_work(p);
		somebody_waits = p->waiting != NULL;
		if (released)
			tell(p, released);
		pthread_mutex_unlock(&p->lock);
		wait_for_news(p, somebody_waits);
		pthread_mutex_lock(&p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* Signals must go to the main thread. */
static void start_attendant(struct mfs_prefetch *p)
{
	if (p->state != ASLEEP)
		return;
	p->has_attendant = !mfs_thread_start(&p->attendant, "prefetch", attend, p);
	p->state = p->has_attendant ? AWAKE : ENDED;
}

static void wake(struct mfs_prefetch *p)
{
	const uint64_t once = 1;

	if (write(p->wake, &once, sizeof(once)) < 0)
		return; /* it is full, so the attendant will wake anyway */
}

/* ---- an open file ---- */

struct mfs_prefetch_file *mfs_prefetch_open(struct mfs_prefetch *p, const char *path, uint64_t size)
{
	struct mfs_prefetch_file *f;

	if (size < MFS_PREFETCH_MIN || strlen(path) >= PATH_MAX)
		return NULL;
	f = calloc(1, sizeof(*f));
	if (!f)
		return NULL;
	f->path = strdup(path);
	if (!f->path) {
		free(f);
		return NULL;
	}
	pthread_mutex_init(&f->lock, NULL);
	f->prefetch = p;
	f->size = size;
	f->users = 1;
	return f;
}

static void ask(struct mfs_prefetch *p, struct mfs_prefetch_file *f)
{
	if (!p->dev || p->state == ENDED || f->useless || !follow(p, f))
		return;
	mfs_prefetch_extend(&f->window, f->stream.last, f->size);
	start_attendant(p);
	give_all_work(p);
}

void mfs_prefetch_read(struct mfs_prefetch_file *f, uint64_t off, uint64_t len)
{
	struct mfs_prefetch *p = f->prefetch;
	enum mfs_stream_event event;

	pthread_mutex_lock(&f->lock);
	event = mfs_stream_observe(&f->stream, off, len);
	atomic_store_explicit(&f->reached, f->stream.last, memory_order_relaxed);
	if (event != MFS_STREAM_QUIET) {
		pthread_mutex_lock(&p->lock);
		if (event == MFS_STREAM_GOES_ON)
			ask(p, f);
		else
			forget(p, f);
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_unlock(&f->lock);
}

void mfs_prefetch_failed(struct mfs_prefetch_file *f)
{
	pthread_mutex_lock(&f->prefetch->lock);
	f->useless = true;
	forget(f->prefetch, f);
	pthread_mutex_unlock(&f->prefetch->lock);
}

/* Under the lock of all files: calls off the orders of a file. */
static bool call_off(struct mfs_prefetch *p, struct mfs_prefetch_file *f)
{
	bool worked_at = false;

	forget(p, f);
	for (unsigned i = 0; i < p->count; i++) {
		if (p->workers[i].file != f)
			continue;
		mfs_fetcher_cancel(&p->workers[i].fetcher);
		worked_at = true;
	}
	return worked_at;
}

static bool wait_for_workers(struct mfs_prefetch *p, struct mfs_prefetch_file *f,
			     void (*done)(void *arg), void *arg)
{
	struct waiting *w = malloc(sizeof(*w));

	if (!w)
		return false;
	*w = (struct waiting){.next = p->waiting,
			      .file = f,
			      .until_ms = now_ms() + PATIENCE_MS,
			      .done = done,
			      .arg = arg};
	p->waiting = w;
	f->users++;
	wake(p);
	return true;
}

void mfs_prefetch_flush(struct mfs_prefetch_file *f, void (*done)(void *arg), void *arg)
{
	struct mfs_prefetch *p = f->prefetch;
	bool waits;

	pthread_mutex_lock(&f->lock);
	f->stream = (struct mfs_stream){0};
	pthread_mutex_lock(&p->lock);
	waits = call_off(p, f) && p->state == AWAKE && wait_for_workers(p, f, done, arg);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&f->lock);
	if (!waits)
		done(arg);
}

void mfs_prefetch_close(struct mfs_prefetch_file *f)
{
	struct mfs_prefetch *p = f->prefetch;

	pthread_mutex_lock(&p->lock);
	call_off(p, f);
	drop_file(f);
	pthread_mutex_unlock(&p->lock);
}

/* ---- all of it ---- */

unsigned mfs_prefetch_fetchers(unsigned processors)
{
	const unsigned n = processors / PROCESSORS_EACH;

	return n < FETCHERS_MOST ? n : FETCHERS_MOST;
}

struct mfs_prefetch *mfs_prefetch_new(unsigned fetchers, const char *mountpoint)
{
	struct mfs_prefetch *p = fetchers ? calloc(1, sizeof(*p)) : NULL;

	if (!p)
		return NULL;
	p->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (p->wake < 0) {
		free(p);
		return NULL;
	}
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->told, NULL);
	p->mountpoint = mountpoint;
	p->count = fetchers < MFS_PREFETCH_FETCHERS ? fetchers : MFS_PREFETCH_FETCHERS;
	return p;
}

void mfs_prefetch_ready(struct mfs_prefetch *p, dev_t dev)
{
	pthread_mutex_lock(&p->lock);
	p->dev = dev;
	pthread_mutex_unlock(&p->lock);
}

void mfs_prefetch_stop(struct mfs_prefetch *p)
{
	struct waiting *released;

	pthread_mutex_lock(&p->lock);
	p->state = ENDED;
	memset(p->files, 0, sizeof(p->files));
	released = take_released(p, INT64_MAX);
	/* The attendant's done() uses the session, which ends when this returns. */
	while (p->telling)
		pthread_cond_wait(&p->told, &p->lock);
	pthread_mutex_unlock(&p->lock);
	release(released);
	wake(p);
}

void mfs_prefetch_free(struct mfs_prefetch *p)
{
	if (!p)
		return;
	if (p->has_attendant)
		pthread_join(p->attendant, NULL);
	for (unsigned i = 0; i < p->count; i++) {
		struct worker *w = &p->workers[i];

		if (!w->fetcher.pid)
			continue;
		if (w->fetcher.fd >= 0)
			mfs_fetcher_stop(&w->fetcher);
		mfs_fetcher_reap(&w->fetcher, true);
		end_work(w, 0);
	}
	close(p->wake);
	pthread_cond_destroy(&p->told);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct mfs_prefetch_counts mfs_prefetch_counts(struct mfs_prefetch *p)
{
	struct mfs_prefetch_counts ret;

	pthread_mutex_lock(&p->lock);
	ret = p->counts;
	pthread_mutex_unlock(&p->lock);
	return ret;
}
