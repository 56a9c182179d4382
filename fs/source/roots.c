#include "fs/source/roots.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/remote/cache.h"
#include "fs/source/root.h"

/* A root that is open, or being opened. */
struct entry {
	struct mfs_shared_root shared;
	char *path;
	struct entry *next;
	unsigned users;			/* this and the next fields: under the lock of all roots */
	uint64_t last_used;		/* a count of uses */
	bool stale;			/* its sources have changed: nobody else gets it */
	const struct mfs_root *counted; /* the root, when it is open */

	pthread_mutex_t opening;
};

struct mfs_roots {
	const struct mfs_attached_ops *attached;
	struct mfs_keeper *keeper;
	unsigned open_limit;

	pthread_mutex_t lock; /* of the fields below */
	struct entry *first;
	unsigned open_count, holds;
	uint64_t uses;
	bool remote;		       /* one was a URL */
	struct mfs_cache_stats closed; /* of those that were */
};

struct mfs_roots *mfs_roots_new(unsigned open, const struct mfs_attached_ops *attached,
				struct mfs_keeper *keeper)
{
	struct mfs_roots *roots = calloc(1, sizeof(*roots));

	if (!roots)
		return NULL;
	roots->open_limit = open ? open : MFS_ROOTS_OPEN;
	roots->attached = attached;
	roots->keeper = keeper;
	pthread_mutex_init(&roots->lock, NULL);
	return roots;
}

static void entry_free(const struct mfs_roots *roots, struct entry *e)
{
	mfs_root_free(e->shared.root);
	if (e->shared.attached)
		roots->attached->close(e->shared.attached);
	pthread_mutex_destroy(&e->opening);
	free(e->path);
	free(e);
}

void mfs_roots_free(struct mfs_roots *roots)
{
	if (!roots)
		return;
	while (roots->first) {
		struct entry *e = roots->first;

		roots->first = e->next;
		entry_free(roots, e);
	}
	pthread_mutex_destroy(&roots->lock);
	free(roots);
}

static struct entry *entry_new(const char *path, const struct mfs_view_options *options)
{
	struct entry *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->path = strdup(path);
	if (!e->path) {
		free(e);
		return NULL;
	}
	e->shared.options = options;
	pthread_mutex_init(&e->opening, NULL);
	return e;
}

/* ---- under the lock ---- */

static void add_stats(struct mfs_cache_stats *sum, const struct mfs_cache_stats *n)
{
	sum->fetched += n->fetched;
	sum->requests += n->requests;
	sum->failed += n->failed;
	sum->hits += n->hits;
	sum->misses += n->misses;
	sum->damaged += n->damaged;
	sum->evicted += n->evicted;
	sum->stale += n->stale;
	sum->bytes = n->bytes > sum->bytes ? n->bytes : sum->bytes; /* most share one cache */
}

static void take_off(struct mfs_roots *roots, struct entry *e)
{
	struct entry **at = &roots->first;
	struct mfs_cache_stats n;

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	roots->open_count--;
	if (e->counted && mfs_root_remote(e->counted, &n))
		add_stats(&roots->closed, &n);
	roots->closed.bytes = 0;
}

/* Takes the one without users that was used longest ago off the list, if there are too many. NULL:
 * there is none to close. */
static struct entry *take_idle(struct mfs_roots *roots)
{
	struct entry *oldest = NULL;

	if (roots->open_count <= roots->open_limit)
		return NULL;
	for (struct entry *e = roots->first; e; e = e->next)
		if (!e->users && (!oldest || e->last_used < oldest->last_used))
			oldest = e;
	if (oldest)
		take_off(roots, oldest);
	return oldest;
}

static struct entry *find(const struct mfs_roots *roots, const char *path,
			  const struct mfs_view_options *options)
{
	struct entry *e = roots->first;

	while (e && (e->stale || e->shared.options != options || strcmp(e->path, path)))
		e = e->next;
	return e;
}

static struct entry *find_or_add(struct mfs_roots *roots, const char *path,
				 const struct mfs_view_options *options)
{
	struct entry *e = find(roots, path, options);

	if (!e) {
		e = entry_new(path, options);
		if (!e)
			return NULL;
		e->next = roots->first;
		roots->first = e;
		roots->open_count++;
	}
	e->users++;
	e->last_used = ++roots->uses;
	roots->holds++;
	return e;
}

static void count_in(struct mfs_roots *roots, struct entry *e)
{
	struct mfs_cache_stats n;

	pthread_mutex_lock(&roots->lock);
	e->counted = e->shared.root;
	roots->remote |= mfs_root_remote(e->counted, &n);
	pthread_mutex_unlock(&roots->lock);
}

/* ---- holding ---- */

static int open_entry(const struct mfs_roots *roots, struct entry *e, struct mfs_error *err)
{
	struct mfs_shared_root *s = &e->shared;
	int rc = 0;

	if (roots->attached && !s->attached)
		rc = roots->attached->open(s->options, &s->attached, err);
	return rc ? rc : mfs_root_open_with(e->path, s->options, roots->keeper, &s->root, err);
}

int mfs_roots_hold(struct mfs_roots *roots, const char *path,
		   const struct mfs_view_options *options, struct mfs_shared_root **ret,
		   struct mfs_error *err)
{
	struct entry *e;
	int rc = 0;

	pthread_mutex_lock(&roots->lock);
	e = find_or_add(roots, path, options);
	pthread_mutex_unlock(&roots->lock);
	if (!e)
		return mfs_fail_nomem(err);
	pthread_mutex_lock(&e->opening);
	if (!e->shared.root) {
		rc = open_entry(roots, e, err);
		if (!rc)
			count_in(roots, e);
	}
	pthread_mutex_unlock(&e->opening);
	if (rc) {
		mfs_roots_drop(roots, &e->shared);
		return rc;
	}
	*ret = &e->shared;
	return 0;
}

struct mfs_shared_root *mfs_roots_hold_open(struct mfs_roots *roots, const char *path,
					    const struct mfs_view_options *options)
{
	struct entry *e;

	pthread_mutex_lock(&roots->lock);
	e = find(roots, path, options);
	if (e && !e->counted)
		e = NULL; /* it is being opened */
	if (e) {
		e->users++;
		roots->holds++;
	}
	pthread_mutex_unlock(&roots->lock);
	return e ? &e->shared : NULL;
}

/* A root that could not be opened does not stay: it may be one later. Nor does a stale one. */
void mfs_roots_drop(struct mfs_roots *roots, struct mfs_shared_root *s)
{
	struct entry *e = (struct entry *)s, *out = NULL;

	pthread_mutex_lock(&roots->lock);
	roots->holds--;
	if (!--e->users && (!s->root || e->stale)) {
		take_off(roots, e);
		out = e;
	} else {
		out = take_idle(roots);
	}
	pthread_mutex_unlock(&roots->lock);
	if (out)
		entry_free(roots, out);
}

void mfs_roots_stale(struct mfs_roots *roots, struct mfs_shared_root *s)
{
	pthread_mutex_lock(&roots->lock);
	((struct entry *)s)->stale = true;
	pthread_mutex_unlock(&roots->lock);
}

bool mfs_roots_remote(struct mfs_roots *roots, struct mfs_cache_stats *ret)
{
	struct mfs_cache_stats n;
	bool remote;

	pthread_mutex_lock(&roots->lock);
	*ret = roots->closed;
	for (const struct entry *e = roots->first; e; e = e->next)
		if (e->counted && mfs_root_remote(e->counted, &n))
			add_stats(ret, &n);
	remote = roots->remote;
	pthread_mutex_unlock(&roots->lock);
	return remote;
}

void mfs_roots_count(struct mfs_roots *roots, unsigned *ret_open, unsigned *ret_users)
{
	pthread_mutex_lock(&roots->lock);
	*ret_open = roots->open_count;
	*ret_users = roots->holds;
	pthread_mutex_unlock(&roots->lock);
}
