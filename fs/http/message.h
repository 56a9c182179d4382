/*
 * A request and its reply, as those see them who answer. Nothing here knows which library speaks
 * HTTP, so a protocol can be tested without a socket.
 */
#ifndef MFS_FS_HTTP_MESSAGE_H
#define MFS_FS_HTTP_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "formats/base/buf.h"
#include "fs/http/url.h"

#define MFS_REPLY_HEADERS 16
#define MFS_REQUEST_BODY  (1u << 20) /* bytes of a request's body, at most */

enum mfs_method { MFS_METHOD_GET, MFS_METHOD_HEAD, MFS_METHOD_POST, MFS_METHOD_OTHER };

struct mfs_request {
	enum mfs_method method;
	const char *method_name; /* as it was sent */
	const char *target;	 /* as it was sent */
	struct mfs_url url;
	struct mfs_buf body;
	bool crowded;	 /* other connections use up the limit of those answered at once */
	char client[64]; /* "192.0.2.1:4711", "[2001:db8::1]:4711", "unix" */
	/* The last X-Forwarded-For: a proxy appends its own. NULL: none was sent. */
	const char *forwarded;
	int64_t began_ns; /* monotonic */
	/* The value of a header; NULL: it was not sent. */
	const char *(*header)(const struct mfs_request *q, const char *name);
	const void *headers; /* of header() */
};

/* Bytes that are made while they are sent. */
struct mfs_http_stream_ops {
	/* Fills buf with at least one byte and at most len of them, from offset off of the reply's
	 * body. -errno: the connection is cut, so that no client takes what it has for all. */
	ssize_t (*read)(void *object, uint64_t off, void *buf, size_t len);
	void (*release)(void *object);
};

struct mfs_reply {
	unsigned status;
	const char *type; /* of the body; static */
	struct {
		const char *name; /* static */
		char *value;
	} headers[MFS_REPLY_HEADERS];
	unsigned header_count;
	struct mfs_buf text; /* the body, unless there is a stream */
	const struct mfs_http_stream_ops *stream;
	void *object;	 /* of the stream */
	uint64_t length; /* bytes of the stream */
	bool failed;	 /* there was no memory for it: 500 is sent */

	/* For the log and the counters. */
	const char *route; /* static: which protocol has answered */
	char from[48];	   /* the client's address by a proxy that is believed; "": the peer's */
	char who[64];	   /* the token's name; "": none */
	char why[256];	   /* the sentence of an error; "": none */
};

static inline const char *mfs_request_header(const struct mfs_request *q, const char *name)
{
	return q->header(q, name);
}

/* Adds a header. Control characters of the value become '?', so that it stays one header. */
void mfs_reply_header(struct mfs_reply *a, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Removes the body, and sets the status and a sentence as text/plain. */
void mfs_reply_error(struct mfs_reply *a, unsigned status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Releases what the reply has, its stream included. */
void mfs_reply_release(struct mfs_reply *a);

#endif
