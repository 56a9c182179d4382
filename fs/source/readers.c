#define _GNU_SOURCE
#include "fs/source/readers.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/clock.h"
#include "formats/io/census.h"
#include "formats/io/fileset.h"
#include "formats/io/walk.h"

struct mfs_readers {
	char *path;		      /* NULL: of sets */
	struct mfs_access_fold fixed; /* of sets; read once */
	uint32_t count;		      /* of sets */
	struct mfs_census **sets;

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t looked;
	bool looking;
	int64_t due; /* monotonic ns of the next look; 0: the result may be of any age */
	int64_t old; /* monotonic ns: after it a thread waits for the look of another */
	struct mfs_access_fold fold;
	struct mfs_access told;
};

static void look_at_path(const char *path, struct mfs_access_fold *fold)
{
	struct mfs_access_fold now = {0};
	struct stat st;
	int fd, rc = mfs_walk(AT_FDCWD, path, &now, &fd, &st);

	if (rc) {
		/* What is gone shows nothing new. */
		mfs_access_merge(fold, &now);
		fold->closed |= rc == -EACCES || rc == -EPERM || rc == -ELOOP;
		return;
	}
	mfs_walk_count(fd, &st,
		       S_ISDIR(st.st_mode) ? MFS_ACCESS_READ | MFS_ACCESS_SEARCH : MFS_ACCESS_READ,
		       &now);
	close(fd);
	mfs_access_name(&now, &st);
	*fold = now;
}

static void look_at_sets(const struct mfs_readers *r, struct mfs_access_fold *fold)
{
	struct mfs_access_fold now = r->fixed, one;

	for (uint32_t i = 0; i < r->count; i++) {
		/* What was known of all of them is more than was known of this one. */
		one = *fold;
		mfs_census_look(r->sets[i], &one);
		mfs_access_merge(&now, &one);
	}
	*fold = now;
}

static void take(struct mfs_readers *r, const struct mfs_access_fold *fold)
{
	r->fold = *fold;
	r->told = mfs_access_told(fold);
}

static struct mfs_readers *new_readers(void)
{
	struct mfs_readers *r = calloc(1, sizeof(*r));

	if (r) {
		pthread_mutex_init(&r->lock, NULL);
		pthread_cond_init(&r->looked, NULL);
	}
	return r;
}

static void look_again_after(struct mfs_readers *r, int64_t pause)
{
	r->due = mfs_now_ns() + pause;
	r->old = r->due + pause;
}

struct mfs_readers *mfs_readers_of_path(const char *path)
{
	struct mfs_access_fold fold = {.closed = true};
	struct mfs_readers *r = new_readers();

	if (!r)
		return NULL;
	r->path = strdup(path);
	if (!r->path) {
		mfs_readers_free(r);
		return NULL;
	}
	look_at_path(path, &fold);
	take(r, &fold);
	look_again_after(r, MFS_READERS_INTERVAL);
	return r;
}

struct mfs_readers *mfs_readers_of_sets(struct mfs_fileset *const *sets, uint32_t count,
					const struct mfs_access_fold *fixed)
{
	struct mfs_access_fold fold = {0};
	struct mfs_readers *r = new_readers();

	if (!r)
		return NULL;
	if (fixed)
		r->fixed = *fixed;
	r->fixed.closed |= !count && !r->fixed.named; /* no source says who may read */
	fold = r->fixed;
	r->sets = calloc(count + 1, sizeof(*r->sets));
	for (uint32_t i = 0; r->sets && i < count; i++) {
		r->sets[i] = mfs_fileset_census(sets[i]);
		if (!r->sets[i])
			break;
		mfs_access_merge(&fold, mfs_fileset_access(sets[i]));
		r->count++;
	}
	if (r->count < count || !r->sets) {
		mfs_readers_free(r);
		return NULL;
	}
	take(r, &fold);
	return r;
}

void mfs_readers_free(struct mfs_readers *r)
{
	if (!r)
		return;
	for (uint32_t i = 0; i < r->count; i++)
		mfs_census_unref(r->sets[i]);
	pthread_cond_destroy(&r->looked);
	pthread_mutex_destroy(&r->lock);
	free(r->sets);
	free(r->path);
	free(r);
}

void mfs_readers_look(struct mfs_readers *r)
{
	const int64_t began = mfs_now_ns();
	struct mfs_access_fold fold;
	int64_t pause;

	pthread_mutex_lock(&r->lock);
	while (r->looking && began >= r->old)
		pthread_cond_wait(&r->looked, &r->lock);
	if (r->looking || began < r->due) {
		pthread_mutex_unlock(&r->lock);
		return;
	}
	r->looking = true;
	fold = r->fold;
	pthread_mutex_unlock(&r->lock);
	if (r->path)
		look_at_path(r->path, &fold);
	else
		look_at_sets(r, &fold);
	pthread_mutex_lock(&r->lock);
	pause = (mfs_now_ns() - began) * MFS_READERS_SHARE;
	look_again_after(r, pause > MFS_READERS_INTERVAL ? pause : MFS_READERS_INTERVAL);
	take(r, &fold);
	r->looking = false;
	pthread_cond_broadcast(&r->looked);
	pthread_mutex_unlock(&r->lock);
}

struct mfs_access mfs_readers_told(struct mfs_readers *r)
{
	struct mfs_access told;

	pthread_mutex_lock(&r->lock);
	told = r->told;
	pthread_mutex_unlock(&r->lock);
	return told;
}

struct mfs_access_fold mfs_readers_fold(struct mfs_readers *r)
{
	struct mfs_access_fold fold;

	pthread_mutex_lock(&r->lock);
	fold = r->fold;
	pthread_mutex_unlock(&r->lock);
	return fold;
}
