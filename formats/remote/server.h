/* What a URL leads to: who is asked there, what for, and what there is below it. Private to
 * formats/remote. */
#ifndef MFS_REMOTE_SERVER_H
#define MFS_REMOTE_SERVER_H

#include <stdbool.h>

#include "formats/remote/curl.h"
#include "formats/remote/listing.h"

struct mfs_server {
	bool s3;
	char *base;   /* URL that names are appended to, with '/' at its end, encoded */
	char *bucket; /* URL of the bucket, without '/' at its end */
	char *prefix; /* of keys: "" or with '/' at its end */
	char *name;   /* the last part of the URL, decoded; never empty */
	char region[64];
	struct mfs_credentials *credentials;
	struct mfs_curl_options http;
};

/* Reads the URL of a server, and finds the credentials for it. -EINVAL: the URL has another form;
 * errors of mfs_credentials_new(). */
int mfs_server_open(const char *url, unsigned timeout, bool private_redirects,
		    struct mfs_server *ret, struct mfs_error *err);
void mfs_server_release(struct mfs_server *s);

/* The URL of a name below it; the caller frees it. NULL: no memory. */
char *mfs_server_url(const struct mfs_server *s, const char *name);

/* All files below it, with sizes and versions, in at most so many seconds (0:
 * MFS_LIST_SECONDS). -E2BIG: there are too many names, directories or pages of names. */
#define MFS_LIST_SECONDS     600
#define MFS_LIST_DIRECTORIES 10000
#define MFS_LIST_PAGES	     10000 /* of S3, with a thousand names each as a rule */
int mfs_server_list(const struct mfs_server *s, unsigned seconds, struct mfs_listing *ret,
		    struct mfs_error *err);

#endif
