/*
 * Requests over HTTP: one at a time for each connection, with limits of time, and again after what
 * passes.
 *
 * Time: a server has `timeout` seconds to accept a connection, and its answer may not stand still
 * for longer. What fails in a way that may pass (no connection, a reset, a stall, a body that is
 * too short, 408, 429, 5xx) is tried again, with pauses that double, until two timeouts have passed
 * since the first attempt or since the call got any further (again() below says so); the last
 * attempt begins then. So no call stands still for longer than four.
 */
#ifndef MFS_REMOTE_CURL_H
#define MFS_REMOTE_CURL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "formats/remote/headers.h"

#define MFS_CURL_TIMEOUT 30 /* seconds, unless another time is given */

struct mfs_curl;	/* a connection; one thread at a time */
struct mfs_credentials; /* credentials.h */

struct mfs_curl_options {
	unsigned timeout; /* seconds; 0: MFS_CURL_TIMEOUT */
	/* Requests to S3 are signed with these; NULL: they are not signed. */
	struct mfs_credentials *credentials;
	const char *region; /* of the signature */
	const char *token;  /* "Authorization: Bearer"; NULL: none */
	/* Redirects may lead to this machine and to private networks. Else they lead there only if
	 * the host that was asked first is at the same address. */
	bool private_redirects;
	int64_t until; /* monotonic ns at which calls end, whatever has come; 0: never */
	/* Set by anybody: calls end within a second. NULL: nobody does. */
	const atomic_bool *stop;
};

struct mfs_curl_request {
	const char *method; /* NULL: GET */
	const char *url;
	bool has_range;
	uint64_t first, last;	   /* bytes, both inclusive */
	const char *if_match;	   /* NULL: none */
	const char *if_unmodified; /* a Last-Modified; NULL: none */
	const char *headers[4];	   /* others, "Name: value"; NULL ends them */
	size_t most;		   /* bytes that the body may have; 0: as many as come */
	/* Called when the headers are there, before any byte, once for each attempt. What is not 0
	 * ends the call with this code. NULL: any 2xx is welcome. */
	int (*begin)(void *arg, const struct mfs_headers *h, struct mfs_error *err);
	/* Bytes of the body, in their order. What is not 0 ends the call. NULL: there should be
	 * none. */
	int (*bytes)(void *arg, const uint8_t *bytes, size_t len, struct mfs_error *err);
	/* Called before another attempt, which may begin where this one ended: it moves first, and
	 * says whether it did. NULL: a request begins anew. */
	bool (*again)(void *arg, struct mfs_curl_request *r);
	void *arg;
};

int mfs_curl_new(const struct mfs_curl_options *opt, struct mfs_curl **ret, struct mfs_error *err);
void mfs_curl_free(struct mfs_curl *h);

/*
 * 0: an answer has come with a status of 2xx, and all of its body. Otherwise, with the URL in the
 * sentence (without what follows '?'): -ENOENT 404, 410; -EACCES 401, 403; -EPERM a redirect to
 * where none may lead; -ESTALE 412; -ETIMEDOUT; -EIO what remains; what begin() and bytes() return.
 * *ret may be NULL.
 */
int mfs_curl_do(struct mfs_curl *h, struct mfs_curl_request *r, struct mfs_headers *ret,
		struct mfs_error *err);

struct mfs_buf;
/* mfs_curl_do() with a body that is kept: as text that ends in a NUL. */
int mfs_curl_body(struct mfs_curl *h, struct mfs_curl_request *r, struct mfs_buf *ret,
		  struct mfs_headers *headers, struct mfs_error *err);
/* A whole body in memory, which the caller frees; NUL-terminated. -EFBIG: it is longer than most.
 * */
int mfs_curl_get(struct mfs_curl *h, const char *url, size_t most, char **ret, size_t *ret_len,
		 struct mfs_headers *headers, struct mfs_error *err);

#endif
