/*
 * One request to a gateway: what is served at that time, and what the client may read. A protocol
 * gets requests that are well-formed.
 */
#ifndef MFS_FS_GATEWAY_CALL_CALL_H
#define MFS_FS_GATEWAY_CALL_CALL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fs/gateway/access/proxies.h"
#include "fs/gateway/access/secrets.h"
#include "fs/gateway/access/tokens.h"
#include "fs/gateway/repos/repos.h"
#include "fs/http/message.h"

struct mfs_guesses;
struct mfs_http;
struct mfs_protocol;
struct mfs_sessions;
struct mfs_stats;

/* Who sends files: this gateway, or a data node, to which clients are sent with a signed address
 * (fs/gateway/hub/hub_signed.c). */
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
	struct mfs_sessions *sessions;	   /* of its own; NULL: nobody signs in on pages */
	struct mfs_guesses *guesses;	   /* the same; NULL: they are not counted */
	struct mfs_http *http;		   /* for the status; NULL: not started */
	int access_log;			   /* a descriptor; -1: none */
	bool log_json;			   /* lines of it are JSON */
	int64_t began_ns;		   /* monotonic */
	struct mfs_stats *stats;	   /* fs/gateway/web/gateway_metrics.h */
};

/* One request, for a protocol. */
struct mfs_call {
	struct mfs_gateway *gateway;
	const struct mfs_request *request;
	const struct mfs_grant *grant;
	struct mfs_reply *reply;
	const struct mfs_protocol *protocol; /* that answers; NULL: none */
};

/* What requests are counted as, in the log and the counters: X(ROUTE, NAME). The last one is for
 * requests that no protocol has answered. */
#define MFS_ROUTES(X)                                                                              \
	X(HUB, "hub")                                                                              \
	X(FILES, "files")                                                                          \
	X(PAGES, "pages")                                                                          \
	X(STATUS, "status")                                                                        \
	X(S3, "s3")                                                                                \
	X(NONE, "none")

#define MFS_ROUTE_ENUM(route, name) MFS_ROUTE_##route,
enum mfs_route { MFS_ROUTES(MFS_ROUTE_ENUM) MFS_ROUTE_COUNT };
extern const char *const mfs_route_names[MFS_ROUTE_COUNT];

struct mfs_protocol {
	enum mfs_route route;
	/* Whether a path is its own. The first one in the table that says so gets the request. */
	bool (*claims)(const struct mfs_request *q);
	void (*answer)(struct mfs_call *c);
	/* For people: a session's cookie counts as a token (session_cookie.h), and who may not read
	 * is asked for one. */
	bool is_web;
	/* Finds out who asks, from the rules that grant holds. False: the call is answered. A
	 * protocol that has it refuses methods in its own form, too. NULL: a token or a session
	 * says who asks. */
	bool (*identify)(struct mfs_call *c, struct mfs_grant *grant);
	/* Gives a complete refusal the form that its clients want. NULL: that of the web. */
	void (*dress)(struct mfs_call *c);
};

/* What is served now, and to whom: a copy with a share of its repositories, for one request.
 * Another configuration may be in force when it ends. mfs_repos_free() gives the share back. */
struct mfs_gateway mfs_gateway_now(struct mfs_gateway *g);
/* Replaces all four. Requests that are being answered go on with those that they have. */
void mfs_gateway_replace(struct mfs_gateway *g, struct mfs_repos *repos, struct mfs_tokens *tokens,
			 const struct mfs_redirects *redirects, const struct mfs_proxies *proxies);

/* True: answered with 503, since there are too many connections. What says how the gateway is
 * (/healthz, /metrics) is answered all the same. */
bool mfs_gateway_is_crowded(const struct mfs_request *q, struct mfs_reply *a);

/* Whether the client may read a repository. */
bool mfs_call_allows(const struct mfs_call *c, enum mfs_repo_kind kind, const char *name);

#endif
