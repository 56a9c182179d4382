/* The inside of a server. Private to mhd_*.c, which alone know libmicrohttpd. */
#ifndef MFS_FS_HTTP_MHD_I_H
#define MFS_FS_HTTP_MHD_I_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "fs/http/deadlines.h"
#include "fs/http/listen.h"
#include "fs/http/http_server.h"

/* A daemon that takes no new connections: it has an older certificate, and replies under way. */
struct mfs_retired {
	struct MHD_Daemon *daemon;
	int listener; /* open until no thread of the daemon can name it */
	struct mfs_retired *next;
};

struct mfs_http {
	struct mfs_http_config config; /* with limits that are set; its times are not looked at */
	atomic_uint idle_seconds, stall_seconds;
	struct MHD_Daemon *daemon;
	struct mfs_retired *retired;
	char address[MFS_LISTEN_TEXT + 16];
	int listener;
	struct mfs_deadlines deadlines;
	atomic_uint requests;
	atomic_bool ending;
};

/* A client, from its connection to its close: what the library calls its socket context. */
struct mfs_peer {
	struct mfs_connection connection;
	struct mfs_exchange *exchange; /* of its request; NULL: it has none now */
};

#define MFS_METHOD_TEXT 32

/* One request and its reply, from the request's line to the reply's end. */
struct mfs_exchange {
	struct mfs_http *http;
	struct mfs_peer *peer;
	struct mfs_request request;
	struct mfs_reply reply;
	char method[MFS_METHOD_TEXT]; /* the library's own goes before the log has it */
	char *target;
	const char *raw; /* where the library has the target, len bytes; for comparisons alone */
	size_t raw_len;
	uint64_t sent; /* bytes of the body */
	bool begun;    /* the headers are there */
	bool queued;
};

/* mhd_framing.c: why the request may not be what a proxy in front has seen, or what the client has
 * sent, and with which status it is refused. NULL: it is clear. */
const char *mfs_framing_why(const struct mfs_exchange *x, struct MHD_Connection *mhd,
			    const char *method, const char *version, unsigned *ret_status);

/* Callbacks of the daemon (microhttpd.h); arg is the struct mfs_http. */
void *mfs_exchange_begin(void *arg, const char *target, struct MHD_Connection *mhd);
enum MHD_Result mfs_exchange_handle(void *arg, struct MHD_Connection *mhd, const char *url,
				    const char *method, const char *version, const char *data,
				    size_t *data_len, void **exchange);
void mfs_exchange_end(void *arg, struct MHD_Connection *mhd, void **exchange,
		      enum MHD_RequestTerminationCode how);
/* The connection goes, or has another request: what it has is freed, counted and logged, also when
 * the library has not called mfs_exchange_end(). Requests that it ends itself (0.9.75: there was no
 * memory for the pairs of a query or a cookie) are such. */
void mfs_exchange_forget(struct mfs_peer *peer);

#endif
