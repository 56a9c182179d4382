#include "trainer/parallel/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/base/threads.h"

#define LOOK_NS	   INT64_C(200000000) /* between two looks */
#define STOPPED_NS (5 * LOOK_NS)      /* so long nobody waits for a look */
/* Others that wait for the same process have so long to say it, too, before they are ended. */
#define LAST_WORDS_S 1

struct mft_watch {
	struct mft_launch launch;
	int status;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake; /* CLOCK_MONOTONIC */
	bool ends;	     /* by lock */

	/* of the run's thread, which the watch reads */
	_Atomic uint64_t beats, iteration;
	_Atomic int64_t limit_ns;
	_Atomic(const char *) phase; /* NULL: an iteration */
	_Atomic(const char *) what;
	_Atomic(const char *) group;
	atomic_bool inside;
	atomic_int rests; /* how many, within one another */
};

/* ---- the watch's thread ---- */

static void say(struct mft_watch *w)
{
	const char *what = w->what, *group = w->group, *phase = w->phase;
	char who[MFT_LAUNCH_WHO], iteration[40];

	snprintf(iteration, sizeof(iteration), "iteration %llu", (unsigned long long)w->iteration);
	fprintf(stderr,
		"mcorefs-train: %s%s: no progress for %.0f s %s %s%s%s%s; it ends, and "
		"all others with it. The rank that says nothing, or another thing, is the one that "
		"hangs (--distributed-timeout-minutes)\n",
		mft_launch_who(&w->launch, who), phase ? phase : iteration,
		(double)w->limit_ns / 1e9, w->inside ? "in" : "after",
		what ? what : "what was before", group ? " of the group '" : "", group ? group : "",
		group ? "'" : "");
}

/* Waits for the next look. True: nobody is to look any more. */
static bool sleep_until_look(struct mft_watch *w)
{
	const int64_t at = mfs_now_ns() + LOOK_NS;
	const struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
	bool ends;

	pthread_mutex_lock(&w->lock);
	while (!w->ends && pthread_cond_timedwait(&w->wake, &w->lock, &until) != ETIMEDOUT)
		;
	ends = w->ends;
	pthread_mutex_unlock(&w->lock);
	return ends;
}

/* MPI is the run's thread's: it is not called here, and a launcher sees the exit. */
static void *look(void *arg)
{
	struct mft_watch *w = arg;
	uint64_t seen = w->beats;
	int64_t since = mfs_now_ns(), looked = since;

	while (!sleep_until_look(w)) {
		const int64_t now = mfs_now_ns();

		/* The process has been stopped, as mostly all others have: nobody hung then. */
		if (now - looked > STOPPED_NS)
			since += now - looked;
		looked = now;
		if (w->beats != seen || w->rests) {
			seen = w->beats;
			since = now;
		} else if (now - since >= w->limit_ns) {
			say(w);
			sleep(LAST_WORDS_S);
			_exit(w->status);
		}
	}
	return NULL;
}

/* ---- life ---- */

static int start(struct mft_watch *w)
{
	pthread_condattr_t attr;
	int rc;

	pthread_mutex_init(&w->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&w->wake, &attr);
	pthread_condattr_destroy(&attr);
	rc = mfs_thread_start(&w->thread, "watch", look, w);
	if (rc) {
		pthread_cond_destroy(&w->wake);
		pthread_mutex_destroy(&w->lock);
	}
	return rc;
}

int mft_watch_new(const struct mft_launch *launch, double seconds, int status,
		  struct mft_watch **ret, struct mfs_error *err)
{
	struct mft_watch *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return mfs_fail_nomem(err);
	w->launch = *launch;
	w->status = status;
	w->phase = "the start";
	mft_watch_limit(w, seconds);
	rc = start(w);
	if (rc) {
		free(w);
		return mfs_fail(err, rc, "no thread could be started to watch the run");
	}
	*ret = w;
	return 0;
}

void mft_watch_free(struct mft_watch *w)
{
	if (!w)
		return;
	pthread_mutex_lock(&w->lock);
	w->ends = true;
	pthread_cond_signal(&w->wake);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* ---- the run's thread ---- */

void mft_watch_limit(struct mft_watch *w, double seconds)
{
	if (w)
		w->limit_ns = (int64_t)(seconds * 1e9);
}

void mft_watch_iteration(struct mft_watch *w, uint64_t iteration)
{
	if (!w)
		return;
	w->iteration = iteration;
	w->phase = NULL;
}

void mft_watch_phase(struct mft_watch *w, const char *phase)
{
	if (w)
		w->phase = phase;
}

void mft_watch_begin(struct mft_watch *w, const char *what, const char *group)
{
	if (!w)
		return;
	w->what = what;
	w->group = group;
	w->inside = true;
	w->beats++;
}

void mft_watch_end(struct mft_watch *w)
{
	if (!w)
		return;
	w->inside = false;
	w->beats++;
}

void mft_watch_rest(struct mft_watch *w, bool begins)
{
	if (!w)
		return;
	w->rests += begins ? 1 : -1;
	w->beats++;
}
