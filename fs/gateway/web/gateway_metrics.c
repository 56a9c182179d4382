#include "fs/gateway/web/gateway_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/remote/cache.h"
#include "fs/gateway/call/call.h"
#include "fs/http/http_server.h"
#include "fs/stats/prom.h"
#include "fs/stats/prom_remote.h"
#include "fs/stats/prom_sources.h"
#include "fs/stats/stats.h"

#define NAME "mcorefs_http_requests_total"

/* The statuses that are sent; "cut" is of replies that ended too early, "none" of requests that
 * ended without a reply of ours (HTTP's library refused them, or the client left), "other" of all
 * the rest. */
#define CODES(X, route, help)                                                                      \
	X(route, "200", help)                                                                      \
	X(route, "206", NULL)                                                                      \
	X(route, "301", NULL)                                                                      \
	X(route, "302", NULL)                                                                      \
	X(route, "303", NULL)                                                                      \
	X(route, "304", NULL)                                                                      \
	X(route, "400", NULL)                                                                      \
	X(route, "401", NULL)                                                                      \
	X(route, "403", NULL)                                                                      \
	X(route, "404", NULL)                                                                      \
	X(route, "405", NULL)                                                                      \
	X(route, "412", NULL)                                                                      \
	X(route, "413", NULL)                                                                      \
	X(route, "414", NULL)                                                                      \
	X(route, "416", NULL)                                                                      \
	X(route, "417", NULL)                                                                      \
	X(route, "429", NULL)                                                                      \
	X(route, "500", NULL)                                                                      \
	X(route, "501", NULL)                                                                      \
	X(route, "503", NULL)                                                                      \
	X(route, "none", NULL)                                                                     \
	X(route, "cut", NULL)                                                                      \
	X(route, "other", NULL)
#define ROW(route, code, help)                                                                     \
	{NAME, help, "route=\"" route "\",code=\"" code "\"", MFS_STATS_COUNTER},
/* (A family's help is that of its first row.) */
#define HELP			"Requests that were answered, by protocol and status."
#define ROWS(route, name)	CODES(ROW, name, HELP)
#define CODE(route, code, help) code,

static const char *const codes[] = {CODES(CODE, , )};

#define CODE_COUNT MFS_ARRAY_SIZE(codes)
#define REQUESTS   (CODE_COUNT * MFS_ROUTE_COUNT)
enum { ROW_SECONDS = REQUESTS, ROW_BYTES, ROW_GUESSES, ROW_COUNT };

static const struct mfs_stats_row rows[ROW_COUNT] = {
	/* clang-format off */
	MFS_ROUTES(ROWS)
	/* clang-format on */
	{"mcorefs_http_request_seconds", "From a request's first line to the reply's end.", NULL,
	 MFS_STATS_SECONDS},
	{"mcorefs_http_tx_bytes_total", "Bytes of bodies that were sent.", NULL, MFS_STATS_COUNTER},
	{"mcorefs_sign_in_wrong_tokens_total",
	 "Wrong tokens that the form for signing in was sent.", NULL, MFS_STATS_COUNTER},
};

struct mfs_stats *mfs_gateway_stats_new(void)
{
	return mfs_stats_new(rows, ROW_COUNT);
}

static unsigned code_of(unsigned status, bool whole)
{
	for (unsigned i = 0; i < CODE_COUNT && whole; i++)
		if (atoi(codes[i]) == (int)status)
			return i;
	return !status ? CODE_COUNT - 3 : CODE_COUNT - 1 - !whole;
}

void mfs_gateway_count(struct mfs_stats *s, const char *route, unsigned status, bool whole,
		       uint64_t sent, uint64_t ns)
{
	unsigned r = 0;

	while (r < MFS_ROUTE_NONE && (!route || strcmp(mfs_route_names[r], route)))
		r++;
	mfs_stats_add(s, r * CODE_COUNT + code_of(status, whole), 1);
	mfs_stats_add(s, ROW_SECONDS, ns);
	mfs_stats_add(s, ROW_BYTES, sent);
}

void mfs_gateway_count_guess(struct mfs_stats *s)
{
	mfs_stats_add(s, ROW_GUESSES, 1);
}

struct mfs_gateway_sums mfs_gateway_sums(const struct mfs_stats *s)
{
	struct mfs_gateway_sums sums = {.bytes = mfs_stats_count(s, ROW_BYTES),
					.guesses = mfs_stats_count(s, ROW_GUESSES)};

	for (unsigned i = 0; i < REQUESTS; i++) {
		const int code = atoi(codes[i % CODE_COUNT]);

		sums.replies[code / 100] += mfs_stats_count(s, i);
		if (i % CODE_COUNT == CODE_COUNT - 2)
			sums.cut += mfs_stats_count(s, i);
	}
	return sums;
}

void mfs_gateway_metrics(struct mfs_gateway *g, struct mfs_buf *out)
{
	const struct mfs_http_state http = mfs_http_state(g->http);
	const struct mfs_repos_state repos = mfs_repos_state(g->repos);
	struct mfs_cache_stats remote;

	mfs_stats_write(g->stats, NULL, out);
	mfs_prom_gauge(out, "mcorefs_http_connections", "Connections that are open.", NULL,
		       http.connections);
	mfs_prom_gauge(out, "mcorefs_inflight", "Requests that are being answered.", NULL,
		       http.requests);
	mfs_prom_gauge(out, "mcorefs_sources_open", "Sources that are open.", NULL, repos.open);
	mfs_prom_gauge(out, "mcorefs_views_held", "Views that replies use.", NULL, repos.users);
	if (mfs_repos_remote(g->repos, &remote))
		mfs_prom_remote(out, NULL, &remote);
	mfs_prom_sources(out, NULL);
	mfs_prom_build(out, NULL, "gateway");
	mfs_prom_process(out, "mcorefs", NULL, g->began_ns);
}
