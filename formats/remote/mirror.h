/*
 * A directory of this machine that stands for one of a server: the names that it has, with sizes
 * and times. The files are placeholders (formats/io/backing.h), whose bytes come through a cache
 * (cache.h) when they are read. So everything that opens, lists or maps files works on it as on any
 * directory.
 *
 * URLs: "http://", "https://": a directory of a web server with an index, or one with the files of
 * a HuggingFace model; "s3://BUCKET/PREFIX". docs/REMOTE.md says more.
 */
#ifndef MFS_REMOTE_MIRROR_H
#define MFS_REMOTE_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/remote/cache.h"

struct mfs_mirror;

struct mfs_mirror_options {
	const char *cache;	/* directory; NULL: the user's (docs/REMOTE.md) */
	uint64_t cache_size;	/* bytes; 0: MFS_CACHE_SIZE */
	unsigned timeout;	/* seconds; 0: MFS_CURL_TIMEOUT */
	unsigned open_timeout;	/* seconds for its listing; 0: MFS_LIST_SECONDS (server.h) */
	bool private_redirects; /* curl.h */
};

bool mfs_mirror_is_url(const char *source);
/* The directory of the cache: the one that is given, or the user's. The caller frees it. */
int mfs_mirror_cache(const char *given, char **ret, struct mfs_error *err);

/* Lists a URL, and makes the directory. -ENOENT: there is nothing below it; -ENODATA: the server
 * does not say what it has; -EACCES; -ETIMEDOUT; -EIO; -EINVAL. */
int mfs_mirror_open(const char *url, const struct mfs_mirror_options *opt, struct mfs_mirror **ret,
		    struct mfs_error *err);
/* The directory goes, and what is in the cache stays. Nobody may read its files any more. */
void mfs_mirror_free(struct mfs_mirror *m);
/* Ends its threads until somebody reads again. Nobody may read meanwhile. */
void mfs_mirror_rest(struct mfs_mirror *m);

/* Absolute; its last name is the URL's. */
const char *mfs_mirror_path(const struct mfs_mirror *m);
struct mfs_cache_stats mfs_mirror_stats(const struct mfs_mirror *m);

#endif
