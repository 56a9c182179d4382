/* The commits of all iterations of a repository. To list them, each is opened once; its commit
 * stays noted until the iteration changes. */
#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "formats/base/uthash.h"
#include "fs/gateway/repos/repos_i.h"
#include "fs/source/root.h"
#include "fs/view/keeper.h"
#include "fs/view/view.h"

/* So many views of all iterations that there are have room; then all is forgotten. */
#define VIEWS 16

struct key {
	const struct mfs_views *views;
	uint64_t name_hash; /* of the view's name */
};

struct mfs_note {
	struct key key;
	char commit[MFS_COMMIT_SIZE]; /* "": the view cannot be opened */
	int64_t mtime_ns;
	UT_hash_handle hh;
};

static struct key key_of(const struct mfs_views *views, const char *view)
{
	return (struct key){views, mfs_hash(view, strlen(view))};
}

static void forget(struct mfs_served *s)
{
	struct mfs_note *n, *next;

	HASH_ITER(hh, s->notes, n, next)
	{
		HASH_DEL(s->notes, n);
		free(n);
	}
}

void mfs_served_init(struct mfs_served *s)
{
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->listing, NULL);
}

void mfs_served_release(struct mfs_served *s)
{
	forget(s);
	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->listing);
}

/* What is noted with ret's key. */
static bool find(struct mfs_served *s, struct mfs_note *ret)
{
	struct mfs_note *n;

	pthread_mutex_lock(&s->lock);
	HASH_FIND(hh, s->notes, &ret->key, sizeof(ret->key), n);
	if (n)
		*ret = *n;
	pthread_mutex_unlock(&s->lock);
	return n;
}

/* Without memory nothing is noted, and the iteration is opened again. */
static void note(struct mfs_served *s, const struct mfs_note *what, uint32_t iterations)
{
	struct mfs_note *n;

	pthread_mutex_lock(&s->lock);
	HASH_FIND(hh, s->notes, &what->key, sizeof(what->key), n);
	if (!n && HASH_COUNT(s->notes) >= (iterations + 1) * VIEWS)
		forget(s);
	if (!n && (n = calloc(1, sizeof(*n)))) {
		n->key = what->key;
		HASH_ADD(hh, s->notes, key, sizeof(n->key), n);
		if (!n->hh.tbl) {
			free(n);
			n = NULL;
		}
	}
	if (n) {
		memcpy(n->commit, what->commit, sizeof(n->commit));
		n->mtime_ns = what->mtime_ns;
	}
	pthread_mutex_unlock(&s->lock);
}

void mfs_served_note(struct mfs_served *s, const struct mfs_revision *r)
{
	struct mfs_note n = {.key = key_of(r->views, r->view_name), .mtime_ns = r->view->mtime_ns};

	memcpy(n.commit, r->commit, sizeof(n.commit));
	note(s, &n, mfs_root_snapshot(r->shared->root)->count);
}

/* ---- lists ---- */

/* What the commit of an iteration is, by a note or by opening it. "": it has none: it was deleted,
 * or cannot be opened however often one tries. */
static int commit_of(const struct mfs_revision *like, struct mfs_iteration *it,
		     struct mfs_note *ret, struct mfs_error *err)
{
	struct mfs_served *s = like->shared->attached;
	struct mfs_revision r = *like;
	int rc;

	*ret = (struct mfs_note){.key = key_of(mfs_iteration_views(it), like->view_name)};
	if (find(s, ret))
		return 0;
	r.held = NULL;
	rc = mfs_revision_open(&r, it, err);
	if (!rc) {
		memcpy(ret->commit, r.commit, sizeof(ret->commit));
		ret->mtime_ns = r.view->mtime_ns;
		mfs_keeper_drop(r.held);
		return 0;
	}
	if (mfs_keeper_lasts(rc))
		note(s, ret, mfs_root_snapshot(like->shared->root)->count);
	return mfs_keeper_lasts(rc) || rc == -ENOENT ? 0 : rc;
}

/* Those below number end, the newest first. */
static int each_below(const struct mfs_revision *r, const struct mfs_root_snapshot *s, uint32_t end,
		      const struct mfs_commits_hooks *a, struct mfs_error *err)
{
	const bool named = mfs_root_has_iterations(r->shared->root);
	int rc = 0;

	for (uint32_t i = end; i-- && !rc;) {
		struct mfs_iteration *it = s->iterations[i];
		struct mfs_note n;

		if (mfs_iteration_reason(it) || !a->wants(a->arg))
			continue;
		rc = commit_of(r, it, &n, err);
		if (!rc && *n.commit)
			a->each(a->arg, named ? mfs_iteration_name(it) : NULL, n.commit,
				n.mtime_ns);
	}
	return rc;
}

int mfs_revision_each_commit(const struct mfs_revision *r, bool all,
			     const struct mfs_commits_hooks *a, struct mfs_error *err)
{
	const struct mfs_root_snapshot *s = mfs_root_snapshot(r->shared->root);
	struct mfs_served *served = r->shared->attached;
	uint32_t end = s->count;
	int rc;

	if (!r->of) {
		if (a->wants(a->arg))
			a->each(a->arg, NULL, r->commit, r->view->mtime_ns);
		return 0;
	}
	while (!all && end && s->iterations[end - 1] != r->of)
		end--;
	if (!end)
		return mfs_fail(err, -ESTALE, "%s was saved again", r->iteration);
	pthread_mutex_lock(&served->listing); /* several that list open each iteration once */
	rc = each_below(r, s, end, a, err);
	pthread_mutex_unlock(&served->listing);
	return rc;
}
