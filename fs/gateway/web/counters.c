#include "fs/gateway/web/counters.h"

#include <stdio.h>

#include "formats/base/clock.h"
#include "fs/cli/text.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/http/http_server.h"

static void row(struct mfs_buf *b, const char *what, const char *text)
{
	mfs_buf_printf(b, "<tr><td>%s<td class=n>%s\n", what, text);
}

static void count(struct mfs_buf *b, const char *what, uint64_t n)
{
	char text[MFS_HUMAN];

	row(b, what, mfs_grouped(n, text));
}

/* What should be none. */
static void failures(struct mfs_buf *b, const char *what, uint64_t n)
{
	char text[MFS_HUMAN];

	mfs_buf_printf(b, "<tr><td>%s<td class=\"n%s\">%s\n", what, n ? " bad" : "",
		       mfs_grouped(n, text));
}

void mfs_page_add_counters(struct mfs_gateway *g, struct mfs_buf *b)
{
	const struct mfs_http_state http = mfs_http_state(g->http);
	const struct mfs_repos_state repos = mfs_repos_state(g->repos);
	const struct mfs_gateway_sums sums = mfs_gateway_sums(g->stats);
	const double seconds = (double)(mfs_now_ns() - g->began_ns) / 1e9;
	char text[MFS_HUMAN], rate[MFS_HUMAN + 8];

	mfs_buf_adds(b, "<h2 id=gateway>This gateway</h2>\n<table class=counts>\n");
	row(b, "time since the start", mfs_human_seconds(seconds, text));
	count(b, "connections", http.connections);
	count(b, "requests now", http.requests);
	row(b, "sent", mfs_human_bytes(sums.bytes, text));
	snprintf(rate, sizeof(rate), "%s/s",
		 mfs_human_bytes((uint64_t)((double)sums.bytes / (seconds + 1)), text));
	row(b, "sent, mean since the start", rate);
	count(b, "replies 2xx", sums.replies[2]);
	count(b, "replies 3xx", sums.replies[3]);
	count(b, "replies 4xx", sums.replies[4]);
	failures(b, "replies 5xx", sums.replies[5]);
	failures(b, "replies that were cut", sums.cut);
	count(b, "wrong tokens of people who sign in", sums.guesses);
	count(b, "sources that are open", repos.open);
	count(b, "views in use", repos.users);
	mfs_buf_adds(b, "</table>\n<p><a href=\"/metrics\">All counters, for Prometheus</a>\n");
}
