/*
 * The gateway: requests to replies. A protocol is a file with a row of its own, and a line in
 * protocols[] (gateway.c). It gets requests that are well-formed, with what the client may read.
 */
#ifndef MFS_FS_GATEWAY_GATEWAY_H
#define MFS_FS_GATEWAY_GATEWAY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/gateway/access/proxies.h"
#include "fs/gateway/repos/repos.h"
#include "fs/gateway/access/secrets.h"
#include "fs/gateway/access/tokens.h"
#include "fs/http/message.h"

struct mfs_http;
struct mfs_stats;

/* Who sends files: this gateway, or a data node, to which clients are sent with a signed address
 * (hub_signed.c). */
struct mfs_redirects {
	const char *node;	     /* "https://HOST:PORT"; NULL: this gateway */
	struct mfs_secrets *secrets; /* NULL: signed addresses are not known here */
	unsigned seconds;	     /* that an address holds */
};

struct mfs_gateway {
	pthread_mutex_t *lock; /* of repos to proxies; NULL: nobody replaces these */
	struct mfs_repos *repos;
	struct mfs_tokens *tokens;	   /* they live as long as repos */
	struct mfs_redirects redirects;	   /* the same */
	const struct mfs_proxies *proxies; /* the same; NULL: none */
	struct mfs_http *http;		   /* for the status; NULL: not started */
	int access_log;			   /* a descriptor; -1: none */
	bool log_json;			   /* lines of it are JSON */
	int64_t began_ns;		   /* monotonic */
	struct mfs_stats *stats;	   /* fs/gateway/metrics.h */
};

/* One request, for a protocol. */
struct mfs_call {
	struct mfs_gateway *gateway;
	const struct mfs_request *request;
	const struct mfs_grant *grant;
	struct mfs_reply *reply;
};

struct mfs_protocol {
	const char *name; /* of routes, in the log and the counters */
	/* Whether a path is its own. The first one in the table that says so gets the request. */
	bool (*claims)(const struct mfs_request *q);
	void (*answer)(struct mfs_call *c);
};

extern const struct mfs_protocol mfs_protocol_hub;    /* huggingface.co's: models and datasets */
extern const struct mfs_protocol mfs_protocol_files;  /* /files/: plain files by range */
extern const struct mfs_protocol mfs_protocol_status; /* /, /healthz, /metrics */

/* For struct mfs_http_config; arg is the gateway. */
void mfs_gateway_answer(void *arg, const struct mfs_request *q, struct mfs_reply *a);
/* The same on the address of S3, where buckets' names are all that paths begin with (s3.c). */
void mfs_gateway_answer_s3(void *arg, const struct mfs_request *q, struct mfs_reply *a);
void mfs_gateway_done(void *arg, const struct mfs_request *q, const struct mfs_reply *a,
		      uint64_t sent, bool whole);

/* What is served now, and to whom: a copy with a share of its repositories, for one request.
 * Another configuration may be in force when it ends. mfs_repos_free() gives the share back. */
struct mfs_gateway mfs_gateway_now(struct mfs_gateway *g);
/* Replaces all four. Requests that are being answered go on with those that they have. */
void mfs_gateway_replace(struct mfs_gateway *g, struct mfs_repos *repos, struct mfs_tokens *tokens,
			 const struct mfs_redirects *redirects, const struct mfs_proxies *proxies);

/* A line of the access log, for a reply that has ended (access_log.c). */
void mfs_access_log(const struct mfs_gateway *g, const struct mfs_request *q,
		    const struct mfs_reply *a, uint64_t sent, bool whole);

/* True: answered with 503, since there are too many connections. What says how the gateway is
 * (/healthz, /metrics) is answered all the same. */
bool mfs_gateway_is_crowded(const struct mfs_request *q, struct mfs_reply *a);

/* ---- for protocols ---- */

/* Whether the client may read a repository. */
bool mfs_call_allows(const struct mfs_call *c, enum mfs_repo_kind kind, const char *name);

/*
 * Answers with a file of a revision, or with what its conditions and ranges say instead: 200, 206,
 * 304, 412, 416; and 503, with the revision suspected, if its sources have changed. Takes the
 * revision over. file: its number in the view.
 */
void mfs_reply_file(struct mfs_call *c, struct mfs_revision *r, uint32_t file);
/* The same for one who is to ask elsewhere: 302 with that address, 304 or 412. url: the address; it
 * is taken over, and NULL if there was no memory for it. */
void mfs_reply_elsewhere(struct mfs_call *c, struct mfs_revision *r, uint32_t file, char *url);
/* The number of a file in a view; -1: there is none. */
int64_t mfs_view_find(const struct mfs_view *view, const char *name);
/* 503 for what may pass, with Retry-After; else 500. Paths are logged; the client gets their last
 * parts. */
void mfs_reply_failure(struct mfs_reply *a, int rc, const struct mfs_error *err);
/* The same, if names cannot be listed. */
void mfs_reply_unlisted(struct mfs_reply *a, int rc);
/* Cuts absolute paths in a sentence down to their last parts: clients need not know the others. */
void mfs_hide_directories(char *text);

#endif
