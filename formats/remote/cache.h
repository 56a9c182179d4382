/*
 * A directory that keeps ranges of remote objects. Several processes may use one at once.
 *
 *	objects/KEY.data   the bytes, sparse, of the object's size
 *	objects/KEY.map    which blocks of 1 MiB are present, with their checksums (blocks.h)
 *	mounts/ID/         of one process: lock (held while it lives), pins (pins.h), refs/KEY
 *	                   (a link to the object's map), tree/ (mirror.h)
 *	lock               held by who makes or removes any of these
 *
 * KEY is the SHA-256 of an object's URL, version and size. A version is what the server says: its
 * ETag, or the time of its last change. Each request for bytes carries it (If-Match), and each
 * answer is compared with it. So an object that is written anew becomes another object here, and
 * bytes of two versions never meet.
 *
 * A block that is present is not written again, and a block that somebody reads is not taken out.
 */
#ifndef MFS_REMOTE_CACHE_H
#define MFS_REMOTE_CACHE_H

#include <stdint.h>

#include "formats/base/error.h"
#include "formats/io/backing.h"
#include "formats/remote/curl.h"

struct mfs_cache;
struct mfs_object;

#define MFS_CACHE_SIZE	      (10ull << 30) /* unless another size is given */
#define MFS_CACHE_SIZE_LEAST  (16ull << 20)
#define MFS_CACHE_CONNECTIONS 16

struct mfs_cache_options {
	const char *dir;      /* is made if it is not there, for its owner alone */
	uint64_t size;	      /* bytes that objects may take on the disk; 0: MFS_CACHE_SIZE */
	unsigned connections; /* at once; 0: MFS_CACHE_CONNECTIONS */
	struct mfs_curl_options http;
};

/* What a server says of an object. */
struct mfs_object_id {
	const char *url;
	const char *etag;	   /* as it was sent; NULL or "": none */
	const char *last_modified; /* as it was sent; NULL or "": none */
	uint64_t size;
};

/* Opens the cache in its directory, which is made if it is not there. -EACCES: others may write to
 * the directory, or it is another user's link; -errno. */
int mfs_cache_open(const struct mfs_cache_options *opt, struct mfs_cache **ret,
		   struct mfs_error *err);
/* Ends what is being fetched, and removes the process's own directory. Objects and their backings
 * end with the cache; nobody may use them any more. */
void mfs_cache_free(struct mfs_cache *c);

/* Ends threads and what is being fetched; the next one who needs bytes begins them again. Nobody
 * may use the cache meanwhile. */
void mfs_cache_rest(struct mfs_cache *c);

/* The process's own directory, absolute, and a descriptor of it. */
const char *mfs_cache_place(const struct mfs_cache *c);
int mfs_cache_place_fd(const struct mfs_cache *c);

/* Any thread. The object belongs to the cache; its files there are opened when somebody reads it.
 * -EINVAL: it has neither an ETag nor a time of its
 * last change, so nobody could tell its versions apart; -errno. */
int mfs_cache_object(struct mfs_cache *c, const struct mfs_object_id *id, struct mfs_object **ret,
		     struct mfs_error *err);

/* The operations of an object as a file's backing; the object is a struct mfs_object. */
extern const struct mfs_backing_ops mfs_object_backing;
struct mfs_backing mfs_object_as_backing(struct mfs_object *o);

struct mfs_cache_stats {
	uint64_t fetched;  /* bytes that came over the network and were kept */
	uint64_t requests; /* for ranges, attempts to the same end counted once */
	uint64_t failed;   /* of these */
	uint64_t hits;	   /* ranges that were asked for, and were present */
	uint64_t misses;   /* and were not */
	uint64_t damaged;  /* blocks whose sum was wrong, and that were fetched again */
	uint64_t evicted;  /* blocks that this process has taken out */
	uint64_t stale;	   /* objects that have changed on their server */
	uint64_t bytes; /* that the cache took on the disk when it was last looked at, and since */
};
struct mfs_cache_stats mfs_cache_stats(const struct mfs_cache *c);

#endif
