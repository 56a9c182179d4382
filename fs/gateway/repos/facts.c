/* Facts that are noted, and what the source of a repository says without one. */
#define _GNU_SOURCE
#include "fs/gateway/repos/facts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "formats/base/clock.h"
#include "formats/base/uthash.h"
#include "formats/megatron/tracker.h"
#include "formats/remote/mirror.h"
#include "formats/run/losses.h"
#include "fs/gateway/repos/facts_i.h"
#include "fs/source/root.h"
#include "fs/view/views.h"

/* ---- notes ---- */

struct mfs_noted {
	char key[MFS_REPO_NAME + 1]; /* 'm' or 'd' in front of the name */
	struct mfs_facts facts;
	UT_hash_handle hh;
};

static void make_key(enum mfs_repo_kind kind, const char *name, char key[MFS_REPO_NAME + 1])
{
	snprintf(key, MFS_REPO_NAME + 1, "%c%s", kind == MFS_REPO_DATASET ? 'd' : 'm', name);
}

void mfs_facts_table_init(struct mfs_facts_table *t)
{
	pthread_mutex_init(&t->lock, NULL);
	t->first = NULL;
}

static void forget(struct mfs_facts_table *t)
{
	struct mfs_noted *n, *next;

	HASH_ITER(hh, t->first, n, next)
	{
		HASH_DEL(t->first, n);
		free(n);
	}
}

void mfs_facts_table_release(struct mfs_facts_table *t)
{
	forget(t);
	pthread_mutex_destroy(&t->lock);
}

bool mfs_repos_facts(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		     struct mfs_facts *ret)
{
	struct mfs_facts_table *t = &repos->facts;
	char key[MFS_REPO_NAME + 1];
	struct mfs_noted *n;

	make_key(kind, name, key);
	pthread_mutex_lock(&t->lock);
	HASH_FIND_STR(t->first, key, n);
	if (n)
		*ret = n->facts;
	pthread_mutex_unlock(&t->lock);
	return n;
}

/* Without memory nothing is noted, and it is learnt again. */
void mfs_facts_note(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name,
		    const struct mfs_facts *facts)
{
	struct mfs_facts_table *t = &repos->facts;
	char key[MFS_REPO_NAME + 1];
	struct mfs_noted *n;

	make_key(kind, name, key);
	pthread_mutex_lock(&t->lock);
	HASH_FIND_STR(t->first, key, n);
	if (!n && HASH_COUNT(t->first) >= MFS_FACTS_NOTED)
		forget(t);
	if (!n && (n = calloc(1, sizeof(*n)))) {
		memcpy(n->key, key, sizeof(key));
		HASH_ADD_STR(t->first, key, n);
		if (!n->hh.tbl) {
			free(n);
			n = NULL;
		}
	}
	if (n)
		n->facts = *facts;
	pthread_mutex_unlock(&t->lock);
}

/* ---- sources that are open ---- */

int mfs_facts_hold_open(struct mfs_repos *repos, const char *name, struct mfs_shared_root **ret)
{
	const struct mfs_repo_source *source;
	const char *dataset;
	char path[PATH_MAX];
	struct mfs_error err;
	int rc = mfs_repos_find(repos, MFS_REPO_MODEL, name, &source, path, sizeof(path), &dataset,
				&err);

	if (rc)
		return rc;
	*ret = mfs_roots_hold_open(repos->roots, path, source->options);
	return *ret ? 0 : -EAGAIN;
}

bool mfs_repos_is_open(struct mfs_repos *repos, enum mfs_repo_kind kind, const char *name)
{
	struct mfs_shared_root *shared;

	if (kind != MFS_REPO_MODEL || mfs_facts_hold_open(repos, name, &shared))
		return false;
	mfs_roots_drop(repos->roots, shared);
	return true;
}

int mfs_repos_each_saved(struct mfs_repos *repos, const char *name,
			 int (*each)(void *arg, const struct mfs_saved *s), void *arg)
{
	const struct mfs_root_snapshot *s;
	struct mfs_shared_root *shared;
	int rc = mfs_facts_hold_open(repos, name, &shared);

	if (rc)
		return rc;
	s = mfs_root_snapshot(shared->root);
	for (uint32_t i = s->count; i-- && !rc && mfs_root_has_iterations(shared->root);) {
		struct mfs_iteration *it = s->iterations[i];
		struct mfs_saved saved = {
			.name = mfs_iteration_name(it),
			.reason = mfs_iteration_reason(it),
			.mtime_ns = mfs_iteration_mtime(it),
			.is_latest = it == s->latest,
			.number = -1,
		};

		mfs_iteration_number_of_any(saved.name, &saved.number);
		rc = each(arg, &saved);
	}
	mfs_roots_drop(repos->roots, shared);
	return rc;
}

int mfs_repos_each_layout(struct mfs_repos *repos, const char *name,
			  const struct mfs_view_kind *kind,
			  void (*each)(void *arg, const char *spec), void *arg)
{
	const struct mfs_root_snapshot *s;
	struct mfs_shared_root *shared;
	const char *const *specs = NULL;
	struct mfs_error err;
	uint32_t count = 0;
	int rc = mfs_facts_hold_open(repos, name, &shared);

	if (rc)
		return rc;
	s = mfs_root_snapshot(shared->root);
	if (s->latest)
		rc = mfs_views_list(mfs_iteration_views(s->latest), kind, &specs, &count, &err);
	for (uint32_t i = 0; !rc && i < count && i < MFS_FACT_LAYOUTS; i++)
		each(arg, specs[i]);
	mfs_roots_drop(repos->roots, shared);
	return rc;
}

int mfs_repos_glance(struct mfs_repos *repos, const char *name, struct mfs_glance *ret)
{
	const struct mfs_repo_source *source;
	struct mfs_tracker tracker = {0};
	char path[PATH_MAX], file[PATH_MAX + sizeof(MFS_TRACKER_FILE) + 1];
	const char *dataset;
	struct mfs_error err;
	struct stat st;
	int rc = mfs_repos_find(repos, MFS_REPO_MODEL, name, &source, path, sizeof(path), &dataset,
				&err);

	*ret = (struct mfs_glance){0};
	if (rc || mfs_mirror_is_url(path))
		return rc;
	mfs_tracker_read(path, &tracker);
	if (tracker.kind == MFS_TRACKER_NUMBER)
		snprintf(ret->iteration, sizeof(ret->iteration), "iter_%07lld",
			 (long long)tracker.number);
	else if (tracker.kind == MFS_TRACKER_RELEASE)
		snprintf(ret->iteration, sizeof(ret->iteration), "release");
	snprintf(file, sizeof(file), "%s/%s", path, MFS_TRACKER_FILE);
	if (!lstat(*ret->iteration ? file : path, &st))
		ret->saved_ns = mfs_ns(st.st_mtim);
	return 0;
}

/* ---- the loss ---- */

#define LOSSES_AGAIN 10000000000ll /* ns between two looks at files that are being written */

static int copy_curve(const struct mfs_curve *from, struct mfs_curve *to)
{
	*to = *from;
	to->points = NULL;
	if (!from->count)
		return 0;
	to->points = malloc(from->count * sizeof(*to->points));
	if (!to->points)
		return -ENOMEM;
	memcpy(to->points, from->points, from->count * sizeof(*to->points));
	return 0;
}

/* Under the lock. */
static int look_at_losses(struct mfs_losses_noted *l, const char *dir)
{
	const int64_t now = mfs_now_ns();
	struct mfs_error note;
	uint64_t stamp;
	int rc;

	if (l->looked && now - l->looked < LOSSES_AGAIN)
		return 0;
	l->looked = now;
	stamp = mfs_losses_stamp(dir);
	if (stamp == l->stamp)
		return 0;
	mfs_curve_release(&l->curve);
	rc = mfs_losses_read(dir, &l->curve, &note);
	snprintf(l->note, sizeof(l->note), "%s", note.code ? note.msg : "");
	l->stamp = rc ? 0 : stamp;
	return rc;
}

int mfs_repos_losses(struct mfs_repos *repos, const char *name, struct mfs_curve *ret,
		     char note[MFS_FACT_REASON])
{
	struct mfs_losses_noted *l;
	struct mfs_shared_root *shared;
	char dir[PATH_MAX];
	int rc = mfs_facts_hold_open(repos, name, &shared);

	*note = '\0';
	*ret = (struct mfs_curve){0};
	if (rc)
		return rc;
	l = &((struct mfs_served *)shared->attached)->losses;
	if (mfs_mirror_is_url(mfs_root_source(shared->root)) ||
	    mfs_root_path(shared->root, dir, sizeof(dir)))
		rc = -EAGAIN;
	if (!rc) {
		pthread_mutex_lock(&l->lock);
		rc = look_at_losses(l, dir);
		if (!rc)
			rc = copy_curve(&l->curve, ret);
		snprintf(note, MFS_FACT_REASON, "%s", l->note);
		pthread_mutex_unlock(&l->lock);
	}
	mfs_roots_drop(repos->roots, shared);
	return rc;
}
