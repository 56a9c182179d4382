/* The inside of S3's protocol. Private to s3*.c. */
#ifndef MFS_FS_GATEWAY_S3_S3_I_H
#define MFS_FS_GATEWAY_S3_S3_I_H

#include "fs/gateway/call/reply.h"

#define MFS_S3_XMLNS "http://s3.amazonaws.com/doc/2006-03-01/"

/* Text in XML. Control characters become references, as S3 has them. */
void mfs_s3_text(struct mfs_buf *b, const char *text);
/* Answers with XML that begins; what follows is added to the reply's text. */
void mfs_s3_begin(struct mfs_reply *a, const char *element);
void mfs_s3_error(struct mfs_call *c, unsigned status, const char *code, const char *sentence);
/* Like mfs_s3_error(), for a reply that says its error already; others stay as they are. */
void mfs_s3_dress(struct mfs_call *c);
/* "2006-02-03T16:45:09.000Z" */
void mfs_s3_time(struct mfs_buf *b, int64_t ns);

/* Finds out who asks (s3_sign.c). False: the call is answered. */
bool mfs_s3_identify(struct mfs_call *c, struct mfs_grant *grant);

/* What the client may read, as [datasets/]ORG/NAME, in the order of keys (s3_names.c). */
struct mfs_s3_names {
	char **list;
	unsigned count;
	bool failed; /* there was no memory */
	int rc;	     /* -errno: a directory of repositories cannot be listed */
};
void mfs_s3_names_find(const struct mfs_call *c, struct mfs_s3_names *ret);
void mfs_s3_names_release(struct mfs_s3_names *names);
void mfs_s3_names_add(struct mfs_s3_names *names, const char *text);
/* Adds what a prefix names in full, unless it is there: no list has a view, or an iteration's
 * number. */
void mfs_s3_names_add_once(struct mfs_s3_names *names, const char *text, size_t len);
void mfs_s3_names_sort(struct mfs_s3_names *names);
bool mfs_s3_is_in(const char *name, const char *bucket);
/* Whether the client may know of a bucket. Else the call is answered. */
bool mfs_s3_bucket_is(struct mfs_call *c, const struct mfs_s3_names *names, const char *bucket);
/* ListObjectsV2 (s3_list.c). */
void mfs_s3_list(struct mfs_call *c, const struct mfs_s3_names *names, const char *bucket);

#endif
