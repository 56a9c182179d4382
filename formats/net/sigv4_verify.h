/*
 * The other side of AWS Signature Version 4: a server reads the header Authorization, or the query
 * of a presigned URL, and computes the signature again. (S3's "Authenticating Requests: Using the
 * Authorization Header" and "Using Query Parameters".)
 */
#ifndef MFS_NET_SIGV4_VERIFY_H
#define MFS_NET_SIGV4_VERIFY_H

#include <stdint.h>

#include "formats/net/sigv4.h"

#define MFS_SIGV4_SKEW	  900 /* seconds that a client's clock may differ */
#define MFS_SIGV4_HEADERS 32  /* that are signed, at most */
#define MFS_SIGV4_BYTES	  4096
#define MFS_SIGV4_EXPIRES 604800 /* seconds that a presigned URL may hold: seven days */

/* What Authorization or a query says. The access key may have slashes in it. */
struct mfs_sigv4_claim {
	const char *access, *day, *region, *service, *signature;
	const char *headers[MFS_SIGV4_HEADERS]; /* names that are signed; "host" is among them */
	size_t header_count;
	bool presigned;	  /* by a query; the next two fields are of one */
	const char *time; /* X-Amz-Date */
	unsigned expires; /* X-Amz-Expires: seconds from that time */
	char *memory;	  /* what the texts point into */
};

/* Whether a header is of this kind. NULL: none was sent. */
bool mfs_sigv4_is(const char *authorization);
/* Takes a header Authorization apart; nothing is verified yet. -EINVAL: it is not what AWS
 * documents, or too long; -ENOMEM. After a failure there is nothing to release. */
int mfs_sigv4_claim_parse(const char *authorization, struct mfs_sigv4_claim *ret,
			  struct mfs_error *err);
/* Whether a query, as it was sent, is of a presigned URL: it has the name X-Amz-Algorithm or
 * X-Amz-Signature. NULL: there was none. */
bool mfs_sigv4_is_presigned(const char *query);
/* Like mfs_sigv4_claim_parse(), of a query, with a sentence about it. -EINVAL: also if a name comes
 * twice, or it would hold for more than MFS_SIGV4_EXPIRES. */
int mfs_sigv4_claim_parse_query(const char *query, struct mfs_sigv4_claim *ret,
				struct mfs_error *err);
void mfs_sigv4_claim_release(struct mfs_sigv4_claim *c);

/* A request as it has arrived. */
struct mfs_sigv4_arrived {
	const char *method;
	const char *target; /* path and query as they were sent */
	/* The value of a header; NULL: it was not sent. */
	const char *(*header)(const void *arg, const char *name);
	const void *arg;
};

/*
 * now: seconds since 1970. -ETIME: the request's time is more than MFS_SIGV4_SKEW away from it;
 * -EKEYEXPIRED: a presigned URL is over; -EINVAL: no x-amz-date, one of another form or day, or a
 * header that is signed and was not sent; -EKEYREJECTED: the signature is another one. Signatures
 * are compared in constant time. A missing x-amz-content-sha256 stands for a request without a
 * body, with which it is not compared; that of a presigned request is not signed.
 */
int mfs_sigv4_verify(const struct mfs_sigv4_claim *c, const struct mfs_sigv4_arrived *r,
		     const char *secret, int64_t now, struct mfs_error *err);

#endif
