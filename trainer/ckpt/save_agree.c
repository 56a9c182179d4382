/*
 * A save of many processes is there when all have written their files: the first one commits then,
 * and when it has, all are told.
 *
 * The thread of a saver writes, and the run's thread alone talks to other processes. So a save in
 * flight is looked at in each iteration, by all processes alike: they gather how far each one is.
 * When the last has written, they gather what became of it, and let their threads go on: the first
 * one's commits the save, or removes it if anybody has failed. The others have nothing more to do.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "trainer/ckpt/save_i.h"
#include "trainer/parallel/watch.h"

/* How far a process is, gathered in each look. */
struct state {
	uint32_t stage;
	uint32_t failed; /* of the first process, done: the save has failed */
};

static bool is_first(const struct mft_saver *s)
{
	return !s->parallel->launch.rank;
}

/* ---- the saver's thread ---- */

/* The first rank that failed, for all that did. */
static int say_failure(const struct mft_saver *s, struct mfs_error *err)
{
	for (uint32_t i = 0; s->reports && i < s->parallel->launch.size; i++)
		if (s->reports[i].failed)
			return mfs_fail(err, -EIO, "rank %u on %s: %s", i, s->reports[i].host,
					s->reports[i].why);
	return s->judged ? 0 : mfs_fail(err, -ECANCELED, "the run has ended");
}

static bool is_over(const struct mft_saver *s)
{
	return s->judged || s->forgotten || s->quit;
}

int mft_save_await_others(struct mft_saver *s, int rc, char (*digests)[MFT_SAVE_DIGEST],
			  struct mfs_error *err)
{
	struct mft_save_report *own = &s->own;

	if (s->parallel->launch.size == 1)
		return rc;
	pthread_mutex_lock(&s->lock);
	*own = (struct mft_save_report){.failed = rc != 0, .stall_ns = s->stall_ns};
	if (rc)
		snprintf(own->why, sizeof(own->why), "%s", err->msg);
	else
		memcpy(own->digests, digests, sizeof(own->digests));
	if (gethostname(own->host, sizeof(own->host) - 1))
		snprintf(own->host, sizeof(own->host), "an unnamed host");
	s->released = true; /* all is copied, or nothing more is */
	s->stage = MFT_SAVE_WROTE;
	pthread_cond_broadcast(&s->changed);
	while (!is_over(s))
		pthread_cond_wait(&s->changed, &s->lock);
	rc = say_failure(s, err);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

/* ---- the run's thread ---- */

/* Each waits for its own thread as long as it has something to do that others wait for. That takes
 * as long as it takes; but who waits for another process is watched. */
static struct state look(struct mft_saver *s, bool wait)
{
	struct state state;

	mft_watch_rest(s->parallel->watch, true);
	pthread_mutex_lock(&s->lock);
	while (wait && (s->stage == MFT_SAVE_WRITES ||
			(s->judged && is_first(s) && s->stage != MFT_SAVE_DONE)))
		pthread_cond_wait(&s->changed, &s->lock);
	state = (struct state){s->stage, s->stage == MFT_SAVE_DONE && s->result.failed};
	pthread_mutex_unlock(&s->lock);
	mft_watch_rest(s->parallel->watch, false);
	return state;
}

static int gather(const struct mft_saver *s, const void *own, size_t bytes, void **ret,
		  struct mfs_error *err)
{
	int rc;

	*ret = calloc(s->parallel->launch.size, bytes);
	if (!*ret)
		return mfs_fail_nomem(err);
	rc = mft_parallel_gather(s->parallel, MFT_GROUP_WORLD, *ret, own, bytes, err);
	if (rc) {
		free(*ret);
		*ret = NULL;
	}
	return rc;
}

/* The threads continue with what all have reported. */
static void judge(struct mft_saver *s, struct mft_save_report *reports)
{
	pthread_mutex_lock(&s->lock);
	s->reports = reports;
	s->judged = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* Nobody waits for this process's thread any more, so it comes to its end. The first process has
 * the result; what others say is whether it failed. */
static void end(struct mft_saver *s, bool failed, struct mft_save_result *ret)
{
	pthread_mutex_lock(&s->lock);
	while (s->state == MFT_SAVER_BUSY)
		pthread_cond_wait(&s->changed, &s->lock);
	*ret = s->result;
	ret->failed = failed;
	for (uint32_t i = 0; s->reports && i < s->parallel->launch.size; i++)
		ret->stall_ns = mfs_max_u64(ret->stall_ns, s->reports[i].stall_ns);
	free(s->reports);
	s->reports = NULL;
	s->judged = s->forgotten = s->ended = false;
	pthread_mutex_unlock(&s->lock);
	s->in_flight = false;
}

/* Processes that cannot talk have no run any more: the save is forgotten, unless it is being
 * committed. */
static bool give_up(struct mft_saver *s, const struct mfs_error *err, struct mft_save_result *ret)
{
	pthread_mutex_lock(&s->lock);
	s->forgotten = true;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	end(s, true, ret);
	snprintf(ret->why, sizeof(ret->why), "%s", err->msg);
	return true;
}

static bool all_wrote(const struct mft_saver *s, const struct state *states)
{
	for (uint32_t i = 0; i < s->parallel->launch.size; i++)
		if (states[i].stage == MFT_SAVE_WRITES)
			return false;
	return true;
}

/* Gathers what all report of the files that they have written. */
static int hear(struct mft_saver *s, struct mfs_error *err)
{
	void *reports;
	int rc = gather(s, &s->own, sizeof(s->own), &reports, err);

	if (!rc)
		judge(s, reports);
	return rc;
}

bool mft_save_agree(struct mft_saver *s, bool wait, struct mft_save_result *ret)
{
	struct mfs_error err = {0};

	while (s->in_flight) {
		const struct state own = look(s, wait);
		void *all;
		bool wrote;
		int rc = gather(s, &own, sizeof(own), &all, &err);
		const struct state first = rc ? own : *(const struct state *)all;

		wrote = !rc && all_wrote(s, all);
		free(all);
		if (!rc && first.stage == MFT_SAVE_DONE) {
			end(s, first.failed, ret);
			return true;
		}
		if (!rc && wrote && !s->judged)
			rc = hear(s, &err);
		if (rc)
			return give_up(s, &err, ret);
		if (!wait)
			break;
	}
	return false;
}
