/*
 * The HTTP/1.1 server: libmicrohttpd with a thread for each connection. A thread that waits, for a
 * disk, or for a checkpoint that is being opened, keeps nobody else waiting; one that idles costs a
 * few pages. Who sends or takes nothing is cut off: a client has a time from the end of one request
 * to the end of the next one's headers, and must take a part of a reply again and again.
 * When there are too many, those that wait for a request are closed, the oldest first.
 */
#ifndef MFS_FS_HTTP_HTTP_SERVER_H
#define MFS_FS_HTTP_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "formats/base/error.h"
#include "fs/http/message.h"

struct mfs_http;

/* 0: the default, which is in brackets. */
struct mfs_http_limits {
	unsigned connections;	/* at once; more take the place of those that wait [2048] */
	unsigned per_address;	/* of one IP address [a quarter]; unix sockets have none */
	unsigned idle_seconds;	/* from a request's end to the end of the next one's headers [75] */
	unsigned stall_seconds; /* in which a client takes MFS_HTTP_BLOCK bytes of a reply [60] */
	unsigned header_bytes;	/* of a request's line and headers [16384] */
};

#define MFS_HTTP_BLOCK	(256u << 10)
#define MFS_HTTP_LISTEN "127.0.0.1:8080"

struct mfs_http_config {
	const char *listen; /* "HOST:PORT", "[IPV6]:PORT", ":PORT" (all), "unix:PATH" */
	struct mfs_http_limits limits;
	const char *certificate, *key; /* PEM texts, until the server runs; NULL: no TLS */
	void *arg;		       /* of those that follow, which any thread calls */
	void (*answer)(void *arg, const struct mfs_request *q, struct mfs_reply *a);
	/* A reply has ended. sent: bytes of its body; whole: all of them. */
	void (*done)(void *arg, const struct mfs_request *q, const struct mfs_reply *a,
		     uint64_t sent, bool whole);
};

/* The socket alone, for who gives up rights while there is no other thread: clients connect, and
 * wait. config is copied, its texts are borrowed. -EINVAL: listen is no address; -errno of
 * bind(2). */
int mfs_http_bind(const struct mfs_http_config *config, struct mfs_http **ret,
		  struct mfs_error *err);
/* Answers from now on. After a failure mfs_http_stop() is still to be called. -EINVAL: certificate
 * and key do not fit; -ENOTSUP: TLS is not built in. */
int mfs_http_run(struct mfs_http *http, struct mfs_error *err);
/* mfs_http_bind() and mfs_http_run(). *ret is set before the first request is answered. */
int mfs_http_start(const struct mfs_http_config *config, struct mfs_http **ret,
		   struct mfs_error *err);
/* "http://127.0.0.1:8080", with the port that it has: "HOST:0" takes any. */
const char *mfs_http_address(const struct mfs_http *http);
/* Takes idle_seconds and stall_seconds of limits for the running server. The other limits are those
 * that it was started with. */
void mfs_http_set_times(struct mfs_http *http, const struct mfs_http_limits *limits);
/* New connections get this certificate (PEM texts, read in the call); those that are open keep
 * theirs until they end. It is called by one thread at a time, of a server that runs with TLS.
 * After a failure all is as it was. -EINVAL: certificate and key do not fit. */
int mfs_http_set_certificate(struct mfs_http *http, const char *certificate, const char *key,
			     struct mfs_error *err);
struct mfs_http_state {
	unsigned connections, requests; /* now: open, being answered */
};
/* Zeros if http is NULL. */
struct mfs_http_state mfs_http_state(const struct mfs_http *http);
/* Takes no new connections, lets requests end for so many seconds, and cuts the others. */
void mfs_http_stop(struct mfs_http *http, unsigned grace_seconds);

#endif
