#define _GNU_SOURCE
#include "formats/remote/cache.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/sha.h>

#include "formats/base/bytes.h"
#include "formats/base/buf.h"
#include "formats/base/clock.h"
#include "formats/base/str.h"
#include "formats/io/beneath.h"
#include "formats/remote/cache_i.h"

#define SAFE (O_CLOEXEC | O_NOFOLLOW)

/* ---- the directory ---- */

static void nap(void)
{
	const struct timespec little = {0, 5000000};

	nanosleep(&little, NULL);
}

int mfs_cache_lock(struct mfs_cache *c, unsigned seconds)
{
	const int64_t end = mfs_now_ns() + seconds * 1000000000ll;
	int rc, fd = openat(c->dirfd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0)
		return -errno;
	while (flock(fd, LOCK_EX | LOCK_NB)) {
		rc = errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
		if (rc == -EINTR || (rc == -ETIMEDOUT && mfs_now_ns() < end)) {
			nap();
			continue;
		}
		close(fd);
		return rc;
	}
	return fd;
}

void mfs_cache_unlock(int lock)
{
	if (lock >= 0)
		close(lock);
}

static int open_dir(int dirfd, const char *name, int *ret)
{
	*ret = mfs_beneath_make_dirs(dirfd, name, 0700);
	return *ret < 0 ? *ret : 0;
}

/* A user who can write here decides what all readers see. */
static int check_owner(struct mfs_cache *c, struct mfs_error *err)
{
	struct stat st;

	if (fstat(c->dirfd, &st))
		return mfs_fail_errno(err, "%s", c->dir);
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return mfs_fail(err, -EACCES,
				"%s: a cache must belong to who uses it, and others must not be "
				"able to write there (found owner %u, mode %o)",
				c->dir, (unsigned)st.st_uid, (unsigned)st.st_mode & 0777);
	return 0;
}

/* In /tmp others may have made what bears the name of a cache: a link into the user's own files, of
 * which the cache would remove some. */
static int check_name(const char *dir, struct mfs_error *err)
{
	struct stat st;

	if (lstat(dir, &st))
		return mfs_fail_errno(err, "cannot open the cache %s", dir);
	if (st.st_uid == geteuid() || (S_ISLNK(st.st_mode) && !st.st_uid))
		return 0;
	return mfs_fail(err, -EACCES,
			"%s: a cache must belong to who uses it (found a %s of user %u)", dir,
			S_ISLNK(st.st_mode) ? "link" : "file or directory", (unsigned)st.st_uid);
}

static int open_cache_dir(struct mfs_cache *c, const char *dir, struct mfs_error *err)
{
	int rc = mfs_make_path(dir, 0755, 0700);

	if (!rc && check_name(dir, err))
		return err->code;
	if (!rc && !(c->dir = realpath(dir, NULL)))
		rc = -errno;
	if (!rc) {
		c->dirfd = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = c->dirfd < 0 ? -errno : 0;
	}
	if (rc)
		return mfs_fail(err, rc, "cannot open the cache %s: %s", dir, strerror(-rc));
	rc = check_owner(c, err);
	if (rc)
		return rc;
	rc = open_dir(c->dirfd, "objects", &c->objects_fd);
	if (!rc)
		rc = open_dir(c->dirfd, "mounts", &c->mounts_fd);
	return rc ? mfs_fail(err, rc, "cannot open the cache %s: %s", c->dir, strerror(-rc)) : 0;
}

/* This process's own directory, under the directory's lock. */
static int make_place(struct mfs_cache *c)
{
	struct timespec now;
	char id[64];
	int rc;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(id, sizeof(id), "%d-%llx%lx", (int)getpid(), (unsigned long long)now.tv_sec,
		 (unsigned long)now.tv_nsec);
	if (asprintf(&c->place, "%s/mounts/%s", c->dir, id) < 0) {
		c->place = NULL;
		return -ENOMEM;
	}
	rc = open_dir(c->mounts_fd, id, &c->place_fd);
	if (rc)
		return rc;
	c->lock_fd = openat(c->place_fd, "lock", O_RDWR | O_CREAT | O_EXCL | SAFE, 0600);
	if (c->lock_fd < 0 || flock(c->lock_fd, LOCK_EX | LOCK_NB))
		return -errno;
	rc = open_dir(c->place_fd, "refs", &c->refs_fd);
	return rc ? rc : mfs_pins_create(c->place_fd, "pins", &c->pins);
}

int mfs_cache_open(const struct mfs_cache_options *opt, struct mfs_cache **ret,
		   struct mfs_error *err)
{
	struct mfs_cache *c = calloc(1, sizeof(*c));
	int rc, lock;

	if (!c)
		return mfs_fail_nomem(err);
	c->dirfd = c->objects_fd = c->mounts_fd = c->place_fd = c->refs_fd = c->lock_fd = -1;
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->evicting, NULL);
	pthread_mutex_init(&c->opening, NULL);
	pthread_cond_init(&c->work, NULL);
	c->size = mfs_max_u64(opt->size ? opt->size : MFS_CACHE_SIZE, MFS_CACHE_SIZE_LEAST);
	c->connections = opt->connections ? opt->connections : MFS_CACHE_CONNECTIONS;
	c->connections = (unsigned)mfs_min_u64(c->connections, MFS_CACHE_CONNECTIONS * 4);
	c->http = opt->http;
	c->timeout = opt->http.timeout ? opt->http.timeout : MFS_CURL_TIMEOUT;
	c->http.stop = &c->stop;
	/* What earlier mounts have left may be more than this one allows. */
	atomic_store(&c->since_look, c->size);
	rc = open_cache_dir(c, opt->dir, err);
	if (!rc) {
		lock = mfs_cache_lock(c, c->timeout);
		rc = lock < 0 ? lock : make_place(c);
		if (!rc)
			mfs_evict_dead_places(c);
		mfs_cache_unlock(lock);
		if (!rc)
			mfs_evict_measure(c);
		if (rc)
			rc = mfs_fail(err, rc, "cannot use the cache %s: %s", c->dir,
				      strerror(-rc));
	}
	if (rc) {
		mfs_cache_free(c);
		return rc;
	}
	*ret = c;
	return 0;
}

static void free_object(struct mfs_object *o)
{
	mfs_blocks_close(&o->blocks);
	free((void *)o->met);
	free(o->jobs);
	free(o->url);
	free(o->etag);
	free(o->last_modified);
	free(o);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void mfs_cache_free(struct mfs_cache *c)
{
	struct mfs_object *o, *next;
	int lock;

	if (!c)
		return;
	mfs_fetch_end(c);
	HASH_ITER(hh, c->objects, o, next)
	{
		HASH_DEL(c->objects, o);
		free_object(o);
	}
	mfs_pins_free(&c->pins);
	close_fd(c->lock_fd); /* from here on the place is a dead one's */
	lock = c->mounts_fd < 0 ? -1 : mfs_cache_lock(c, c->timeout);
	if (lock >= 0)
		mfs_evict_dead_places(c);
	mfs_cache_unlock(lock);
	close_fd(c->refs_fd);
	close_fd(c->place_fd);
	close_fd(c->mounts_fd);
	close_fd(c->objects_fd);
	close_fd(c->dirfd);
	pthread_cond_destroy(&c->work);
	pthread_mutex_destroy(&c->opening);
	pthread_mutex_destroy(&c->evicting);
	pthread_mutex_destroy(&c->lock);
	free(c->place);
	free(c->dir);
	free(c);
}

void mfs_cache_rest(struct mfs_cache *c)
{
	mfs_fetch_rest(c);
}

const char *mfs_cache_place(const struct mfs_cache *c)
{
	return c->place;
}

int mfs_cache_place_fd(const struct mfs_cache *c)
{
	return c->place_fd;
}

struct mfs_cache_stats mfs_cache_stats(const struct mfs_cache *c)
{
	return (struct mfs_cache_stats){.fetched = atomic_load(&c->fetched),
					.requests = atomic_load(&c->requests),
					.failed = atomic_load(&c->failed),
					.hits = atomic_load(&c->hits),
					.misses = atomic_load(&c->misses),
					.damaged = atomic_load(&c->damaged),
					.evicted = atomic_load(&c->evicted),
					.stale = atomic_load(&c->stale),
					.bytes = atomic_load(&c->held)};
}

/* ---- objects ---- */

static void key_of(const struct mfs_object_id *id, const char *version, char ret[MFS_KEY])
{
	uint8_t hash[SHA256_DIGEST_LENGTH];
	struct mfs_buf b = {0};

	mfs_buf_printf(&b, "%s\n%s\n%llu", id->url, version, (unsigned long long)id->size);
	SHA256((const uint8_t *)b.data, b.failed ? 0 : b.len, hash);
	mfs_buf_release(&b);
	mfs_str_hex(hash, sizeof(hash), ret);
}

static int create_data(struct mfs_cache *c, const char *name, uint64_t size)
{
	int rc = 0, fd = mfs_beneath_create(c->objects_fd, name, O_RDWR, 0600);

	if (fd < 0)
		return fd;
	if (ftruncate(fd, (off_t)size))
		rc = -errno;
	close(fd);
	return rc;
}

static bool has_data(struct mfs_cache *c, const char *name, uint64_t size)
{
	struct stat st;

	return !fstatat(c->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == size;
}

/* Somebody who lives uses the object. */
static bool is_linked(struct mfs_cache *c, const char *map)
{
	struct stat st;

	mfs_evict_dead_places(c);
	return !fstatat(c->objects_fd, map, &st, AT_SYMLINK_NOFOLLOW) && st.st_nlink > 1;
}

/* Its files in the cache: those that are there, or new ones. What is damaged is made anew, unless
 * somebody else reads it: he knows the data by its name. Under the directory's lock. */
static int open_files(struct mfs_cache *c, struct mfs_object *o)
{
	char data[MFS_KEY + 8], map[MFS_KEY + 8];
	int rc = -ENOENT;

	mfs_object_name(o->key, "data", data);
	mfs_object_name(o->key, "map", map);
	if (has_data(c, data, o->size))
		rc = mfs_blocks_open(c->objects_fd, map, o->key, o->size, &o->blocks);
	if ((rc == -ENOENT || rc == -EINVAL) && is_linked(c, map))
		return -EBUSY;
	if (rc == -ENOENT || rc == -EINVAL) {
		unlinkat(c->objects_fd, map, 0);
		unlinkat(c->objects_fd, data, 0);
		rc = create_data(c, data, o->size);
		if (!rc)
			rc = mfs_blocks_create(c->objects_fd, map, o->key, o->url, o->size);
		if (!rc)
			rc = mfs_blocks_open(c->objects_fd, map, o->key, o->size, &o->blocks);
	}
	/* Says to others that it is in use (evict.c). */
	if (!rc && linkat(c->objects_fd, map, c->refs_fd, o->key, 0) && errno != EEXIST)
		rc = -errno;
	return rc;
}

/* Under `opening`. */
static int make_ready(struct mfs_object *o, unsigned seconds)
{
	const uint32_t count = mfs_blocks_count(o->size);
	int lock, rc;

	if (!o->met)
		o->met = calloc(count + 1, sizeof(*o->met));
	if (!o->jobs)
		o->jobs = calloc(count + 1, sizeof(struct mfs_job *));
	if (!o->met || !o->jobs)
		return -ENOMEM;
	lock = mfs_cache_lock(o->cache, seconds);
	if (lock < 0)
		return lock;
	rc = open_files(o->cache, o);
	mfs_cache_unlock(lock);
	if (rc)
		mfs_blocks_close(&o->blocks);
	else
		atomic_store(&o->ready, true);
	return rc;
}

int mfs_object_ready(struct mfs_object *o, unsigned seconds, struct mfs_error *err)
{
	pthread_mutex_t *opening = &o->cache->opening;
	int rc = 0;

	if (atomic_load(&o->ready))
		return 0;
	if (!seconds && pthread_mutex_trylock(opening))
		return -EAGAIN;
	if (seconds)
		pthread_mutex_lock(opening);
	if (!atomic_load(&o->ready))
		rc = make_ready(o, seconds);
	pthread_mutex_unlock(opening);
	if (rc == -EBUSY)
		return mfs_fail(err, -EIO,
				"%s: its files in the cache %s are damaged, and another mount uses "
				"them",
				o->url, o->cache->dir);
	return rc ? mfs_fail(err, rc == -ENOMEM ? rc : -EIO,
			     "%s: cannot keep it in the cache %s: %s", o->url, o->cache->dir,
			     strerror(-rc))
		  : 0;
}

/* The same for a weak ETag and for the strong one that it becomes, which are two objects here. */
static uint64_t version_of(const struct mfs_object_id *id, const char *key)
{
	char strong[MFS_KEY];

	if (!id->etag || mfs_etag_opaque(id->etag) == id->etag)
		return mfs_object_number(key);
	key_of(id, mfs_etag_opaque(id->etag), strong);
	return mfs_object_number(strong);
}

static int new_object(struct mfs_cache *c, const struct mfs_object_id *id, const char *key,
		      struct mfs_object **ret)
{
	struct mfs_object *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->cache = c;
	o->size = id->size;
	memcpy(o->key, key, MFS_KEY);
	o->number = mfs_object_number(key);
	o->version = version_of(id, key);
	o->url = strdup(id->url);
	o->etag = strdup(id->etag ? id->etag : "");
	o->last_modified = strdup(id->last_modified ? id->last_modified : "");
	if (!o->url || !o->etag || !o->last_modified) {
		free_object(o);
		return -ENOMEM;
	}
	*ret = o;
	return 0;
}

int mfs_cache_object(struct mfs_cache *c, const struct mfs_object_id *id, struct mfs_object **ret,
		     struct mfs_error *err)
{
	const bool has_etag = id->etag && *id->etag;
	struct mfs_object *o;
	char key[MFS_KEY];
	int rc = 0;

	if (!has_etag && (!id->last_modified || !*id->last_modified))
		return mfs_fail(err, -EINVAL,
				"%s: the server gives neither an ETag nor Last-Modified, so its "
				"versions cannot be told apart",
				id->url);
	if (id->size > (uint64_t)UINT32_MAX * MFS_BLOCK_BYTES / 2)
		return mfs_fail(err, -EFBIG, "%s: %llu bytes are too many", id->url,
				(unsigned long long)id->size);
	key_of(id, has_etag ? id->etag : id->last_modified, key);
	pthread_mutex_lock(&c->lock);
	HASH_FIND(hh, c->objects, key, sizeof(key) - 1, o);
	if (!o) {
		rc = new_object(c, id, key, &o);
		if (!rc) {
			HASH_ADD_KEYPTR(hh, c->objects, o->key, sizeof(key) - 1, o);
			if (!o->hh.tbl) {
				free_object(o);
				rc = -ENOMEM;
			}
		}
	}
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return mfs_fail(err, rc, "%s: cannot keep it in the cache %s: %s", id->url, c->dir,
				strerror(-rc));
	*ret = o;
	return 0;
}
