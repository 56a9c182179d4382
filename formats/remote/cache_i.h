/* Private to formats/remote: a cache and its objects. */
#ifndef MFS_REMOTE_CACHE_I_H
#define MFS_REMOTE_CACHE_I_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/uthash.h"
#include "formats/remote/blocks.h"
#include "formats/remote/cache.h"
#include "formats/remote/pins.h"

#define MFS_KEY 65 /* hexadecimal digits and a NUL */
/* Blocks of one request, unless a reader wants fewer. */
#define MFS_REQUEST_BLOCKS 8

/* A range of blocks that is asked for in one request. */
struct mfs_job {
	struct mfs_object *object;
	uint32_t first, count, next; /* next: the first that has not come */
	bool wanted;		     /* somebody waits for it */
	bool done;
	unsigned refs; /* the queue's or the worker's, and of those who wait */
	struct mfs_error err;
	pthread_cond_t news; /* a block has come, or the job has ended */
	struct mfs_job *next_queued;
};

struct mfs_queue {
	struct mfs_job *first, *last;
};

struct mfs_object {
	struct mfs_cache *cache;
	char key[MFS_KEY];
	uint64_t number;  /* of the key */
	uint64_t version; /* backing.h */
	char *url, *etag, *last_modified;
	uint64_t size;
	atomic_bool ready; /* the rest is there, once somebody has used it */
	struct mfs_blocks blocks;
	_Atomic uint8_t *met;  /* for each block: this process has compared or written it */
	_Atomic int64_t used;  /* when its time of use was last written down */
	atomic_bool stale;     /* changed on its server */
	atomic_bool kept;      /* a pin of all blocks stays */
	struct mfs_job **jobs; /* for each block the one that brings it; under the cache's lock */
	UT_hash_handle hh;
};

struct mfs_cache {
	char *dir, *place;
	int dirfd, objects_fd, mounts_fd, place_fd, refs_fd, lock_fd /* the place's */;
	uint64_t size;
	unsigned connections, timeout /* seconds that other processes are waited for */;
	struct mfs_curl_options http;
	struct mfs_pins pins;

	pthread_mutex_t lock; /* what follows */
	pthread_cond_t work;  /* there is a job, or it is the end */
	struct mfs_object *objects;
	struct mfs_queue wanted, ahead; /* first come first served */
	unsigned ahead_count, queued;
	pthread_t threads[MFS_CACHE_CONNECTIONS * 4];
	unsigned thread_count, idle;
	bool ending;
	atomic_bool stop; /* the same, for transfers */

	pthread_mutex_t opening; /* objects' files; taken before no other lock of these */
	pthread_mutex_t evicting;
	_Atomic uint64_t since_look; /* bytes written since the cache's size was looked at */
	_Atomic uint64_t held;	     /* that size, with what was written since */
	_Atomic uint64_t fetched, requests, failed, hits, misses, damaged, evicted, stale;
};

/* What stands for a key in tables of pins: its first 64 bits. 0 is a pin of nothing. */
static inline uint64_t mfs_object_number(const char *key)
{
	char digits[17];

	memcpy(digits, key, 16);
	digits[16] = '\0';
	return strtoull(digits, NULL, 16) | 1;
}

/* Opens an object's files, at its first use: a server may have more objects than a process may have
 * mappings. seconds: for which other processes are waited; 0: nobody is waited for. -EIO, -ENOMEM,
 * -EAGAIN. */
int mfs_object_ready(struct mfs_object *o, unsigned seconds, struct mfs_error *err);
/* The names of an object's files in objects/. */
void mfs_object_name(const char *key, const char *end, char ret[MFS_KEY + 8]);
/* Its bytes, for writing: a descriptor, or -errno. */
int mfs_object_open(const struct mfs_object *o);
uint32_t mfs_block_bytes(const struct mfs_object *o, uint32_t block);

/* Whether a block can be read, by one who has pinned it. */
static inline bool mfs_block_is_there(const struct mfs_object *o, uint32_t block)
{
	return atomic_load(&o->blocks.states[block]) == MFS_BLOCK_PRESENT;
}

/* fetch.c: under the cache's lock. Makes jobs for the absent blocks of a range that nobody fetches
 * yet. wanted: somebody waits for them. -ENOMEM, -EAGAIN: there is no thread. */
int mfs_fetch_start(struct mfs_object *o, uint32_t first, uint32_t last, bool wanted);
/* The job that brings a block; NULL: none. */
struct mfs_job *mfs_fetch_job(const struct mfs_object *o, uint32_t block);
void mfs_fetch_unref(struct mfs_job *job);
/* Ends all threads and jobs. */
void mfs_fetch_end(struct mfs_cache *c);
/* Like mfs_fetch_end(), and the next job begins a thread again. Nobody may use the cache
 * meanwhile. */
void mfs_fetch_rest(struct mfs_cache *c);

/* evict.c: called after bytes were written; takes blocks out if there are too many. It waits for
 * no other process. */
void mfs_evict_look(struct mfs_cache *c, uint64_t written);
/* Looks at the size alone. */
void mfs_evict_measure(struct mfs_cache *c);
/* Somebody takes this block out, or was killed while he did. Afterwards it is absent or present.
 * The caller has pinned it. Errors of mfs_cache_lock(). */
int mfs_evict_settle(struct mfs_object *o, uint32_t block);
/* Removes directories of processes that have ended. Under the lock of the directory. */
void mfs_evict_dead_places(struct mfs_cache *c);
/* The lock of the directory, which other processes may hold: a frozen one for ever. -ETIMEDOUT: not
 * within so many seconds (0: not at once); -errno. */
int mfs_cache_lock(struct mfs_cache *c, unsigned seconds);
void mfs_cache_unlock(int lock);

#endif
