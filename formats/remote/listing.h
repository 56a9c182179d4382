/* What a server has below a URL: names, as a directory of this machine could have them. */
#ifndef MFS_REMOTE_LISTING_H
#define MFS_REMOTE_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"

#define MFS_LISTING_MOST 1000000

struct mfs_listed {
	char *name; /* relative, with '/'; no part is ".", ".." or empty */
	char *etag; /* NULL: not known yet */
	char *last_modified;
	uint64_t size;
	int64_t mtime; /* seconds */
	bool guessed;  /* no server has confirmed that it exists */
};

struct mfs_listing {
	struct mfs_listed *items;
	size_t count;
};

/* Whether a name may be a file's below a directory. */
bool mfs_listing_name_ok(const char *name, size_t len);

/* Adds a name of len bytes, with nothing known of it. -EINVAL: it may not be a file's; -E2BIG:
 * there are too many. *ret may be NULL; it stays until the next call. */
int mfs_listing_add(struct mfs_listing *l, const char *name, size_t len, struct mfs_listed **ret,
		    struct mfs_error *err);
void mfs_listing_release(struct mfs_listing *l);
/* Sorts the items from number first on by their names. Of several with one name one stays. */
void mfs_listing_sort(struct mfs_listing *l, size_t first);
/* Takes out the items of which keep() says no. */
void mfs_listing_keep(struct mfs_listing *l, bool (*keep)(const struct mfs_listed *item));

/* ---- answers ---- */

/* S3's ListObjectsV2 (XML). Reads S3's pages. Names are what follows prefix; keys that end with '/'
 * are no files, and those that cannot be names of files are passed over. *ret is the token of the
 * next page, which the caller frees, or NULL. -EINVAL. */
int mfs_listing_read_s3(struct mfs_listing *l, const char *xml, size_t len, const char *prefix,
			char **ret_next, struct mfs_error *err);

/* One directory's index, as web servers make it: nginx's autoindex in JSON, or a page of links
 * (nginx, Apache, Caddy, Python's http.server). Names end with '/' if they are directories. Links
 * that lead out of the directory are passed over. -EINVAL: it is not an index. */
int mfs_listing_read_json(struct mfs_listing *l, const char *text, size_t len,
			  struct mfs_error *err);
int mfs_listing_read_html(struct mfs_listing *l, const char *text, size_t len,
			  struct mfs_error *err);

/* The files of weights that a model.safetensors.index.json names, each once. */
int mfs_listing_read_weights(struct mfs_listing *l, const char *text, size_t len,
			     struct mfs_error *err);

#endif
