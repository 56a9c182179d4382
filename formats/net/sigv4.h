/*
 * AWS Signature Version 4: what a client puts into Authorization, and what a server computes again
 * to check it. (docs.aws.amazon.com: "Create a signed AWS API request"; for S3 "Authenticating
 * Requests: Using the Authorization Header".) Requests without a body that is streamed in chunks.
 */
#ifndef MFS_NET_SIGV4_H
#define MFS_NET_SIGV4_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/base/error.h"

/* SHA-256 of no bytes: the payload of a GET. */
#define MFS_SIGV4_EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
/* Says that the payload is not signed. */
#define MFS_SIGV4_UNSIGNED "UNSIGNED-PAYLOAD"

#define MFS_SIGV4_SIGNATURE 65 /* hexadecimal digits and a NUL */

/* Whose signature, and for what: the "credential scope". */
struct mfs_sigv4_key {
	const char *access; /* AWS_ACCESS_KEY_ID */
	const char *secret;
	const char *region;
	const char *service; /* "s3" */
};

struct mfs_sigv4_header {
	const char *name; /* any case */
	const char *value;
};

struct mfs_sigv4_request {
	const char *method;
	const char *path;  /* as it is sent, percent-encoded; NULL or "": "/" */
	const char *query; /* as it is sent, without '?'; NULL: none */
	/* Those that are signed, and no others; a client must sign "host" and "x-amz-*". A name may
	 * come more than once. */
	const struct mfs_sigv4_header *headers;
	size_t header_count;
	const char *payload; /* hexadecimal SHA-256, or MFS_SIGV4_UNSIGNED */
	const char *time;    /* "20130524T000000Z", as in x-amz-date */
	bool presigned;	     /* the query's X-Amz-Signature is not part of what is signed */
};

/* Signs a request, as hexadecimal digits. -EINVAL: r->time is not YYYYMMDDTHHMMSSZ, or the query
 * has a broken percent code; -ENOMEM. */
int mfs_sigv4_sign(const struct mfs_sigv4_key *key, const struct mfs_sigv4_request *r,
		   char ret[MFS_SIGV4_SIGNATURE], struct mfs_error *err);

/* The value of the header Authorization; the caller frees it. */
int mfs_sigv4_authorization(const struct mfs_sigv4_key *key, const struct mfs_sigv4_request *r,
			    char **ret, struct mfs_error *err);

/* What is hashed and signed, for messages and tests; the caller frees it. */
int mfs_sigv4_canonical(const struct mfs_sigv4_request *r, char **ret, struct mfs_error *err);

/* In a time that does not depend on where they differ. */
bool mfs_sigv4_same(const char *a, const char *b);

#endif
