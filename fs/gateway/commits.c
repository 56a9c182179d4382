#include <stdlib.h>
#include <string.h>

#include "formats/base/hash.h"
#include "fs/gateway/repos_i.h"

static void served_close(void *beside)
{
	struct mfs_served *s = beside;

	pthread_mutex_destroy(&s->lock);
	pthread_mutex_destroy(&s->search);
	free(s->commits);
	free(s);
}

static int served_open(const struct mfs_view_options *options, void **ret, struct mfs_error *err)
{
	struct mfs_served *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return mfs_fail_nomem(err);
	pthread_mutex_init(&s->lock, NULL);
	pthread_mutex_init(&s->search, NULL);
	rc = mfs_options_digest(options, s->said, err);
	if (rc)
		served_close(s);
	else
		*ret = s;
	return rc;
}

bool mfs_repos_remote(struct mfs_repos *repos, struct mfs_cache_stats *ret)
{
	return mfs_roots_remote(repos->roots, ret);
}

const struct mfs_beside_kind mfs_served_kind = {served_open, served_close};

bool mfs_served_commit(struct mfs_served *s, const struct mfs_views *views, const char *view,
		       char ret[MFS_COMMIT_SIZE])
{
	const uint64_t hash = mfs_hash(view, strlen(view));
	bool found = false;

	pthread_mutex_lock(&s->lock);
	for (uint32_t i = 0; i < s->commit_count && !found; i++) {
		const struct mfs_commit *c = &s->commits[i];

		found = c->views == views && c->name_hash == hash;
		if (found)
			memcpy(ret, c->commit, MFS_COMMIT_SIZE);
	}
	pthread_mutex_unlock(&s->lock);
	return found;
}

/* Without memory nothing is noted, and the commit is looked for again. */
void mfs_served_note(struct mfs_served *s, const struct mfs_views *views, const char *view,
		     const char *commit)
{
	const uint64_t hash = mfs_hash(view, strlen(view));
	struct mfs_commit *c = NULL;

	pthread_mutex_lock(&s->lock);
	if (!s->commits)
		s->commits = calloc(MFS_COMMITS, sizeof(*s->commits));
	for (uint32_t i = 0; i < s->commit_count && !c; i++)
		if (s->commits[i].views == views && s->commits[i].name_hash == hash)
			c = &s->commits[i];
	if (!c && s->commits) {
		c = &s->commits[s->commit_next];
		s->commit_next = (s->commit_next + 1) % MFS_COMMITS;
		if (s->commit_count < MFS_COMMITS)
			s->commit_count++;
	}
	if (c) {
		c->views = views;
		c->name_hash = hash;
		memcpy(c->commit, commit, MFS_COMMIT_SIZE);
	}
	pthread_mutex_unlock(&s->lock);
}
