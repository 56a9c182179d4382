#include <stdlib.h>

#include "fs/gateway/repos/repos_i.h"

static void served_close(void *attached)
{
	struct mfs_served *s = attached;

	mfs_served_release(s);
	mfs_curve_release(&s->losses.curve);
	pthread_mutex_destroy(&s->losses.lock);
	free(s);
}

static int served_open(const struct mfs_view_options *options, void **ret, struct mfs_error *err)
{
	struct mfs_served *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return mfs_fail_nomem(err);
	mfs_served_init(s);
	pthread_mutex_init(&s->losses.lock, NULL);
	rc = mfs_options_digest(options, s->digest, err);
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

const struct mfs_attached_ops mfs_served_ops = {served_open, served_close};
