#include "fs/gateway/repos/warm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "formats/base/threads.h"
#include "fs/cli/log.h"
#include "fs/gateway/repos/repos_i.h"

struct mfs_warmer {
	pthread_t thread;
	pthread_mutex_t lock; /* of the fields below */
	pthread_cond_t changed;
	struct mfs_repos *next; /* with a share; NULL: none */
	bool ending, ended;
};

/* Whether what is being opened is still wanted. */
static bool is_wanted(struct mfs_warmer *w)
{
	bool wanted;

	pthread_mutex_lock(&w->lock);
	wanted = !w->ending && !w->next;
	pthread_mutex_unlock(&w->lock);
	return wanted;
}

static void open_repo(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *org,
		      const char *part)
{
	char name[MFS_REPO_NAME];
	struct mfs_facts facts;
	enum mfs_absent_kind what;
	struct mfs_error err;

	if ((size_t)snprintf(name, sizeof(name), "%s/%s", org, part) >= sizeof(name))
		return;
	if (mfs_repos_learn(repos, kind, name, 0, &facts, &what, &err))
		mfs_log(LOG_WARNING, "%s: %s", name, err.msg);
}

static void open_source(struct mfs_warmer *w, struct mfs_repos *repos,
			const struct mfs_repo_source *s)
{
	if (s->has_model)
		open_repo(repos, MFS_REPO_MODEL, s->org, s->name);
	for (uint32_t i = 0; i < s->dataset_count && is_wanted(w); i++)
		open_repo(repos, MFS_REPO_DATASET, s->org, s->datasets[i]);
}

/* One more than stay open would close the first. */
static void open_all(struct mfs_warmer *w, struct mfs_repos *repos)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < repos->source_count && is_wanted(w); i++) {
		if (!repos->sources[i].name)
			continue;
		if (count++ == repos->open)
			return;
		open_source(w, repos, &repos->sources[i]);
	}
}

/* Waits for more to open. NULL: the thread is to end. */
static struct mfs_repos *take(struct mfs_warmer *w)
{
	struct mfs_repos *repos;

	pthread_mutex_lock(&w->lock);
	while (!w->next && !w->ending)
		pthread_cond_wait(&w->changed, &w->lock);
	repos = w->ending ? NULL : w->next;
	if (repos)
		w->next = NULL;
	pthread_mutex_unlock(&w->lock);
	return repos;
}

static void *run(void *arg)
{
	struct mfs_warmer *w = arg;
	struct mfs_repos *repos;

	while ((repos = take(w))) {
		open_all(w, repos);
		mfs_repos_free(repos);
	}
	pthread_mutex_lock(&w->lock);
	w->ended = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

static void warmer_free(struct mfs_warmer *w)
{
	mfs_repos_free(w->next);
	pthread_cond_destroy(&w->changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

int mfs_warmer_start(struct mfs_warmer **ret, struct mfs_error *err)
{
	struct mfs_warmer *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->changed, NULL);
	rc = mfs_thread_start(&w->thread, "warm", run, w);
	if (rc) {
		warmer_free(w);
		return mfs_fail(err, rc, "no thread: %s", strerror(-rc));
	}
	*ret = w;
	return 0;
}

void mfs_warmer_give(struct mfs_warmer *w, struct mfs_repos *repos)
{
	struct mfs_repos *before;

	mfs_repos_share(repos);
	pthread_mutex_lock(&w->lock);
	before = w->next;
	w->next = repos;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	mfs_repos_free(before);
}

bool mfs_warmer_end(struct mfs_warmer *w, unsigned seconds)
{
	struct timespec until;
	bool ended;

	if (!w)
		return true;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += seconds;
	pthread_mutex_lock(&w->lock);
	w->ending = true;
	pthread_cond_broadcast(&w->changed);
	while (!w->ended && !pthread_cond_timedwait(&w->changed, &w->lock, &until))
		;
	ended = w->ended;
	pthread_mutex_unlock(&w->lock);
	if (!ended)
		return false;
	pthread_join(w->thread, NULL);
	warmer_free(w);
	return true;
}
