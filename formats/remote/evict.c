/*
 * Taking blocks out of a cache that has become too large: objects that no mount uses are removed,
 * those first that were not used for the longest time; then blocks of the others, unless somebody
 * reads them (pins.h). One process at a time does this, under the directory's lock. It never waits
 * for readers, so a cache may be larger than it should be by what is being read.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/clock.h"
#include "formats/base/grow.h"
#include "formats/io/beneath.h"
#include "formats/remote/cache_i.h"

/* The cache's size is looked at whenever so much has been written. */
#define LOOK_MOST (64ull << 20)

struct victim {
	char key[MFS_KEY];
	int64_t used;	/* ns */
	uint64_t size;	/* of the object */
	uint64_t bytes; /* that it takes on the disk */
	bool linked;	/* a mount uses it */
};

struct eviction {
	struct mfs_cache *c;
	struct victim *list;
	size_t count;
	const struct mfs_pin **tables; /* of the mounts that live */
	size_t table_count;
	uint64_t bytes; /* of all */
	int rc;		/* not 0: what is pinned is not known, so nothing may be taken out */
};

/* ---- places of processes ---- */

/* True if the process that made the place has ended: the kernel has given its lock back. A name
 * that is no directory was never a place. */
static bool is_dead(int mounts, const char *id)
{
	char name[300];
	bool dead;
	int fd;

	snprintf(name, sizeof(name), "%s/lock", id);
	fd = mfs_beneath_open(mounts, name, O_RDWR, 0);
	if (fd < 0)
		return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP;
	dead = !flock(fd, LOCK_EX | LOCK_NB);
	close(fd);
	return dead;
}

static int each_place(struct mfs_cache *c, void (*each)(void *arg, const char *id), void *arg)
{
	int fd = openat(c->mounts_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	if (!dir) {
		rc = -errno;
		if (fd >= 0)
			close(fd);
		return rc;
	}
	while (errno = 0, (d = readdir(dir)))
		if (*d->d_name != '.')
			each(arg, d->d_name);
	rc = -errno;
	closedir(dir);
	return rc;
}

/* "4711-65f0c0de2f": as make_place() names them. Nothing else in the directory is a place. */
static bool is_place(const char *id)
{
	const size_t digits = strspn(id, "0123456789");

	return digits && id[digits] == '-' && id[digits + 1] &&
	       !id[digits + 1 + strspn(id + digits + 1, "0123456789abcdef")];
}

static void remove_if_dead(void *arg, const char *id)
{
	struct mfs_cache *c = arg;

	if (is_place(id) && is_dead(c->mounts_fd, id))
		mfs_beneath_remove(c->mounts_fd, id, NULL, NULL);
}

void mfs_evict_dead_places(struct mfs_cache *c)
{
	each_place(c, remove_if_dead, c);
}

static void add_table(void *arg, const char *id)
{
	struct eviction *e = arg;
	const struct mfs_pin *table;
	char name[300];

	int rc;

	snprintf(name, sizeof(name), "%s/pins", id);
	rc = mfs_pins_map(e->c->mounts_fd, name, &table);
	if (!rc && (rc = mfs_grow(&e->tables, e->table_count)))
		mfs_pins_unmap(table);
	if (!rc)
		e->tables[e->table_count++] = table;
	else if (rc != -ENOENT) /* a place that somebody has begun to make, or to remove */
		e->rc = rc;
}

/* ---- blocks ---- */

static bool is_pinned(const struct eviction *e, uint64_t object, uint32_t block)
{
	for (size_t i = 0; i < e->table_count; i++)
		if (mfs_pins_has(e->tables[i], object, block))
			return true;
	return false;
}

static int punch(int fd, uint32_t block)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)block * MFS_BLOCK_BYTES, MFS_BLOCK_BYTES);
}

static bool take_block(struct eviction *e, const struct victim *v, const struct mfs_blocks *b,
		       int fd, uint32_t block)
{
	uint8_t state = MFS_BLOCK_PRESENT;

	if (!atomic_compare_exchange_strong(&b->states[block], &state, MFS_BLOCK_LEAVING))
		return false;
	if (is_pinned(e, mfs_object_number(v->key), block)) {
		atomic_store(&b->states[block], MFS_BLOCK_PRESENT);
		return false;
	}
	punch(fd, block);
	atomic_store(&b->states[block], MFS_BLOCK_ABSENT);
	atomic_fetch_add(&e->c->evicted, 1);
	return true;
}

static void take_blocks(struct eviction *e, const struct victim *v, uint64_t goal)
{
	struct mfs_blocks b;
	char name[MFS_KEY + 8];
	int fd;

	mfs_object_name(v->key, "map", name);
	if (mfs_blocks_open(e->c->objects_fd, name, v->key, v->size, &b))
		return;
	mfs_object_name(v->key, "data", name);
	fd = openat(e->c->objects_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	for (uint32_t i = 0; fd >= 0 && i < b.count && e->bytes > goal; i++)
		if (take_block(e, v, &b, fd, i))
			e->bytes -= mfs_min_u64(e->bytes, MFS_BLOCK_BYTES);
	if (fd >= 0)
		close(fd);
	mfs_blocks_close(&b);
}

int mfs_evict_settle(struct mfs_object *o, uint32_t block)
{
	int lock, fd, rc = 0;

	if (atomic_load(&o->blocks.states[block]) != MFS_BLOCK_LEAVING)
		return 0;
	lock = mfs_cache_lock(o->cache, o->cache->timeout);
	if (lock < 0)
		return lock;
	/* Nobody else is at it now. */
	if (atomic_load(&o->blocks.states[block]) == MFS_BLOCK_LEAVING) {
		fd = mfs_object_open(o);
		rc = fd < 0 ? fd : 0;
		if (fd >= 0) {
			punch(fd, block);
			close(fd);
		}
		if (!rc)
			atomic_store(&o->blocks.states[block], MFS_BLOCK_ABSENT);
	}
	mfs_cache_unlock(lock);
	return rc;
}

/* ---- objects ---- */

static void add_victim(struct eviction *e, const char *file)
{
	char data[MFS_KEY + 8];
	struct victim v = {0};
	struct stat map, bytes;

	if (strlen(file) != 64 + 4 || strcmp(file + 64, ".map"))
		return;
	memcpy(v.key, file, 64);
	mfs_object_name(v.key, "data", data);
	if (fstatat(e->c->objects_fd, file, &map, AT_SYMLINK_NOFOLLOW) ||
	    fstatat(e->c->objects_fd, data, &bytes, AT_SYMLINK_NOFOLLOW))
		return;
	v.used = mfs_ns(map.st_mtim);
	v.size = (uint64_t)bytes.st_size;
	v.bytes = 512 * ((uint64_t)map.st_blocks + (uint64_t)bytes.st_blocks);
	v.linked = map.st_nlink > 1;
	e->bytes += v.bytes;
	if (!mfs_grow(&e->list, e->count))
		e->list[e->count++] = v;
}

static void list_objects(struct eviction *e)
{
	int fd = openat(e->c->objects_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *d;

	while (dir && (d = readdir(dir)))
		add_victim(e, d->d_name);
	if (dir)
		closedir(dir);
}

static int victim_order(const void *a, const void *b)
{
	const struct victim *x = a, *y = b;

	if (x->linked != y->linked)
		return x->linked - y->linked;
	return x->used < y->used ? -1 : x->used > y->used;
}

static void remove_object(struct eviction *e, const struct victim *v)
{
	char name[MFS_KEY + 8];

	mfs_object_name(v->key, "map", name);
	unlinkat(e->c->objects_fd, name, 0);
	mfs_object_name(v->key, "data", name);
	unlinkat(e->c->objects_fd, name, 0);
	e->bytes -= mfs_min_u64(e->bytes, v->bytes);
	atomic_fetch_add(&e->c->evicted, v->bytes / MFS_BLOCK_BYTES);
}

/* Under the directory's lock: nobody begins to use an object meanwhile. */
static void evict(struct eviction *e)
{
	const uint64_t goal = e->c->size - e->c->size / 8;
	int rc;

	mfs_evict_dead_places(e->c);
	list_objects(e);
	if (e->bytes <= e->c->size - e->c->size / 16)
		return;
	rc = each_place(e->c, add_table, e);
	if (rc)
		e->rc = rc;
	if (e->rc)
		return;
	if (e->count)
		qsort(e->list, e->count, sizeof(*e->list), victim_order);
	for (size_t i = 0; i < e->count && e->bytes > goal; i++) {
		if (e->list[i].linked)
			take_blocks(e, &e->list[i], goal);
		else
			remove_object(e, &e->list[i]);
	}
}

void mfs_evict_measure(struct mfs_cache *c)
{
	struct eviction e = {.c = c};

	list_objects(&e);
	atomic_store(&c->held, e.bytes);
	free(e.list);
}

void mfs_evict_look(struct mfs_cache *c, uint64_t written)
{
	const uint64_t step = mfs_min_u64(LOOK_MOST, c->size / 32);
	struct eviction e = {.c = c};
	int lock;

	atomic_fetch_add(&c->held, written);
	if (atomic_fetch_add(&c->since_look, written) + written < step ||
	    pthread_mutex_trylock(&c->evicting))
		return;
	atomic_store(&c->since_look, 0);
	lock = mfs_cache_lock(c, 0);
	if (lock >= 0) {
		evict(&e);
		atomic_store(&c->held, e.bytes);
		mfs_cache_unlock(lock);
	}
	/* Somebody else is at it: the next block asks again. */
	if (lock < 0)
		atomic_fetch_add(&c->since_look, step);
	pthread_mutex_unlock(&c->evicting);
	for (size_t i = 0; i < e.table_count; i++)
		mfs_pins_unmap(e.tables[i]);
	free(e.tables);
	free(e.list);
}
