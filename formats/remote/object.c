/* What a reader asks of an object: to have a range present, and to keep it so. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/io/regular.h"
#include "formats/remote/cache_i.h"

#define SECOND	 1000000000ll
#define PIN_NONE UINT32_MAX /* of a range without bytes */

void mfs_object_name(const char *key, const char *end, char ret[MFS_KEY + 8])
{
	snprintf(ret, MFS_KEY + 8, "%s.%s", key, end);
}

static int open_to_read(const struct mfs_object *o)
{
	char name[MFS_KEY + 8];
	int fd, rc;

	mfs_object_name(o->key, "data", name);
	rc = mfs_open_regular_as_is(o->cache->objects_fd, name, O_NOFOLLOW, &fd, NULL);
	return rc ? rc : fd;
}

int mfs_object_open(const struct mfs_object *o)
{
	char name[MFS_KEY + 8];
	int fd;

	mfs_object_name(o->key, "data", name);
	fd = openat(o->cache->objects_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

uint32_t mfs_block_bytes(const struct mfs_object *o, uint32_t block)
{
	return (uint32_t)mfs_min_u64(MFS_BLOCK_BYTES, o->size - (uint64_t)block * MFS_BLOCK_BYTES);
}

static int open_data(void *object, int *ret_fd, struct mfs_error *err)
{
	struct mfs_object *o = object;
	int fd, rc = mfs_object_ready(o, o->cache->timeout, err);

	if (rc)
		return rc;
	fd = open_to_read(o);
	if (fd < 0)
		return mfs_fail(err, -EIO, "%s: cannot open its file in the cache: %s", o->url,
				strerror(-fd));
	*ret_fd = fd;
	return 0;
}

/* ---- the first meeting with a block ---- */

/* A block that an earlier process or another one has written is compared with its sum, once. A
 * wrong one is absent. */
static void meet(struct mfs_object *o, int fd, uint32_t block)
{
	uint8_t present = MFS_BLOCK_PRESENT;
	uint64_t sum;

	if (!mfs_block_sum_file(fd, (uint64_t)block * MFS_BLOCK_BYTES, mfs_block_bytes(o, block),
				block, &sum) &&
	    sum == atomic_load(&o->blocks.sums[block])) {
		atomic_store(&o->met[block], 1);
		return;
	}
	if (atomic_compare_exchange_strong(&o->blocks.states[block], &present, MFS_BLOCK_ABSENT))
		atomic_fetch_add(&o->cache->damaged, 1);
}

static int meet_all(struct mfs_object *o, uint32_t first, uint32_t last)
{
	int fd = -1;

	for (uint32_t b = first; b <= last; b++) {
		if (atomic_load(&o->met[b]) || !mfs_block_is_there(o, b))
			continue;
		if (fd < 0)
			fd = open_to_read(o);
		if (fd < 0)
			return fd;
		meet(o, fd, b);
	}
	if (fd >= 0)
		close(fd);
	return 0;
}

/* ---- waiting ---- */

static bool all_there(const struct mfs_object *o, uint32_t first, uint32_t last)
{
	for (uint32_t b = first; b <= last; b++)
		if (!mfs_block_is_there(o, b) || !atomic_load(&o->met[b]))
			return false;
	return true;
}

static int say_stale(const struct mfs_object *o, struct mfs_error *err)
{
	return mfs_fail(err, -ESTALE, "%s: changed on the server since it was listed", o->url);
}

/* Waits for one block, under the cache's lock. A request ends in bounded time (curl.h), and so does
 * this. */
static int await(struct mfs_object *o, uint32_t block, struct mfs_error *err)
{
	struct mfs_cache *c = o->cache;
	struct mfs_job *job = mfs_fetch_job(o, block);
	int rc = 0;

	if (!job)
		return 0; /* it has come, or has to be asked for again */
	job->refs++;
	while (!job->done && !mfs_block_is_there(o, block) && !c->ending)
		pthread_cond_wait(&job->news, &c->lock);
	if (!mfs_block_is_there(o, block)) {
		rc = c->ending ? mfs_fail(err, -EIO, "%s: the cache is closed", o->url)
			       : job->err.code;
		if (rc && !c->ending && err)
			*err = job->err;
	}
	mfs_fetch_unref(job);
	return rc;
}

/* Who waits for more than all connections bring at once asks for it bit by bit: others come in
 * between. In blocks. */
static uint64_t window_of(const struct mfs_cache *c)
{
	return 2ull * c->connections * MFS_REQUEST_BLOCKS;
}

static int fetch(struct mfs_object *o, uint32_t first, uint32_t last, struct mfs_error *err)
{
	struct mfs_cache *c = o->cache;
	const uint64_t window = window_of(c);
	int rc = 0;

	if (atomic_load(&o->stale))
		return say_stale(o, err);
	pthread_mutex_lock(&c->lock);
	for (uint64_t b = first, asked = first; b <= last && !rc; b++) {
		/* Half a window is asked for while the other half comes. */
		if (asked <= last && asked < b + window / 2) {
			const uint64_t end = mfs_min_u64(b + window - 1, last);

			rc = mfs_fetch_start(o, (uint32_t)asked, (uint32_t)end, true);
			if (rc)
				rc = mfs_fail(err, rc, "%s: cannot fetch: %s", o->url,
					      strerror(-rc));
			asked = end + 1;
		}
		if (!rc && !mfs_block_is_there(o, (uint32_t)b))
			rc = await(o, (uint32_t)b, err);
	}
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/* Who is not used for the longest time is taken out first (evict.c): once a minute is enough. */
static void note_use(struct mfs_object *o)
{
	const int64_t now = mfs_now_ns();
	int64_t before = atomic_load_explicit(&o->used, memory_order_relaxed);
	char name[MFS_KEY + 8];
	int fd;

	if (before && now - before < 60 * SECOND)
		return;
	if (!atomic_compare_exchange_strong(&o->used, &before, now))
		return;
	mfs_object_name(o->key, "map", name);
	/* By a descriptor: a sandbox changes the times of no name. */
	fd = openat(o->cache->objects_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return;
	futimens(fd, NULL);
	close(fd);
}

static int acquire(void *object, uint64_t off, uint64_t len, uint32_t *ret_pin,
		   struct mfs_error *err)
{
	struct mfs_object *o = object;
	const uint32_t first = (uint32_t)(off / MFS_BLOCK_BYTES);
	const uint32_t last = (uint32_t)((off + len - 1) / MFS_BLOCK_BYTES);
	struct mfs_cache *c = o->cache;
	int rc;

	*ret_pin = PIN_NONE;
	if (!len)
		return 0;
	rc = mfs_object_ready(o, c->timeout, err);
	if (rc)
		return rc;
	rc = mfs_pins_add(&c->pins, o->number, first, last, ret_pin);
	if (rc)
		return mfs_fail(err, -EIO, "%s: too many ranges are read at once", o->url);
	note_use(o);
	if (all_there(o, first, last)) {
		atomic_fetch_add_explicit(&c->hits, 1, memory_order_relaxed);
		return 0;
	}
	rc = meet_all(o, first, last);
	if (rc)
		rc = mfs_fail(err, -EIO, "%s: cannot read its file in the cache: %s", o->url,
			      strerror(-rc));
	if (!rc && all_there(o, first, last)) {
		atomic_fetch_add_explicit(&c->hits, 1, memory_order_relaxed);
		return 0;
	}
	atomic_fetch_add_explicit(&c->misses, 1, memory_order_relaxed);
	/* Blocks that another process has fetched meanwhile have to be met. */
	while (!rc && !all_there(o, first, last)) {
		rc = fetch(o, first, last, err);
		if (!rc && meet_all(o, first, last))
			rc = mfs_fail(err, -EIO, "%s: cannot read its file in the cache", o->url);
	}
	if (rc)
		mfs_pins_remove(&c->pins, *ret_pin);
	return rc;
}

static void release(void *object, uint32_t pin)
{
	struct mfs_object *o = object;

	if (pin != PIN_NONE)
		mfs_pins_remove(&o->cache->pins, pin);
}

static int keep(void *object, struct mfs_error *err)
{
	struct mfs_object *o = object;
	uint32_t pin;
	int rc;

	if (atomic_load(&o->kept))
		return 0;
	rc = acquire(o, 0, o->size, &pin, err);
	/* Of two who come here at once one pin is enough. */
	if (!rc && atomic_exchange(&o->kept, true))
		release(o, pin);
	return rc;
}

static void willneed(void *object, uint64_t off, uint64_t len)
{
	struct mfs_object *o = object;

	if (off >= o->size || !len || atomic_load(&o->stale) || mfs_object_ready(o, 0, NULL))
		return;
	len = mfs_min_u64(len, o->size - off);
	pthread_mutex_lock(&o->cache->lock);
	mfs_fetch_start(o, (uint32_t)(off / MFS_BLOCK_BYTES),
			(uint32_t)((off + len - 1) / MFS_BLOCK_BYTES), false);
	pthread_mutex_unlock(&o->cache->lock);
}

const struct mfs_backing_ops mfs_object_backing = {.open = open_data,
						   .acquire = acquire,
						   .release = release,
						   .keep = keep,
						   .willneed = willneed};

struct mfs_backing mfs_object_as_backing(struct mfs_object *o)
{
	return (struct mfs_backing){&mfs_object_backing, o, o->version};
}
