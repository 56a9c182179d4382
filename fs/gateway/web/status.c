/* A page for people at /, an answer for probes at /healthz, numbers for Prometheus at /metrics. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/version.h"
#include "formats/net/uri.h"
#include "fs/cli/text.h"
#include "fs/gateway/web/html.h"
#include "fs/gateway/web/metrics.h"
#include "fs/gateway/web/web.h"
#include "fs/http/server.h"
#include "fs/stats/prom.h"

/* Of a repository, that the page shows: the newest. */
#define ITERATIONS 3

static bool is(const struct mfs_request *q, const char *name)
{
	return q->url.count == 1 && !strcmp(q->url.parts[0], name);
}

static bool claims(const struct mfs_request *q)
{
	return !q->url.count || is(q, "healthz") || is(q, "metrics");
}

static void row(struct mfs_buf *b, const char *what, const char *text)
{
	mfs_buf_printf(b, "<tr><th>%s<td class=n>%s\n", what, text);
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

	mfs_buf_printf(b, "<tr><th>%s<td class=\"n%s\">%s\n", what, n ? " bad" : "",
		       mfs_grouped(n, text));
}

static void add_numbers(struct mfs_gateway *g, struct mfs_buf *b)
{
	const struct mfs_http_state http = mfs_http_state(g->http);
	const struct mfs_repos_state repos = mfs_repos_state(g->repos);
	const struct mfs_gateway_sums sums = mfs_gateway_sums(g->stats);
	const double seconds = (double)(mfs_now_ns() - g->began_ns) / 1e9;
	char text[MFS_HUMAN], rate[MFS_HUMAN + 8];

	mfs_buf_adds(b, "<table>\n");
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
	count(b, "sources that are open", repos.open);
	count(b, "views in use", repos.users);
	mfs_buf_adds(b, "</table>\n");
}

struct listing {
	struct mfs_call *call;
	enum mfs_repo_kind kind;
	bool inside; /* the reader may know where sources lie */
	bool any;
	const char *name; /* of the repository whose iterations are listed */
	unsigned iterations;
};

/* A link to what is below /files/. last: "" or a part that is added, which is the link's text. */
static void add_link(const struct listing *l, const char *last)
{
	struct mfs_buf *b = &l->call->reply->text;

	mfs_buf_adds(b, "<a href=\"/files/");
	mfs_buf_adds(b, l->kind == MFS_REPO_DATASET ? "datasets/" : "");
	mfs_uri_encode(b, l->name, strlen(l->name), true);
	mfs_buf_adds(b, "/");
	mfs_uri_encode(b, last, strlen(last), true);
	mfs_buf_adds(b, *last ? "/\">" : "\">");
	mfs_html_text(b, *last ? last : l->name);
	mfs_buf_adds(b, "</a>");
}

static int add_iteration(void *arg, const char *iteration)
{
	struct listing *l = arg;

	if (l->iterations++ < ITERATIONS) {
		add_link(l, iteration);
		mfs_buf_adds(&l->call->reply->text, "<br>");
	}
	return 0;
}

/* A page that opened what it shows would take as long as that takes. */
static void add_iterations(struct listing *l)
{
	struct mfs_buf *b = &l->call->reply->text;
	int rc;

	l->iterations = 0;
	rc = mfs_repos_each_known(l->call->gateway->repos, l->name, add_iteration, l);
	if (rc)
		mfs_buf_adds(b, rc == -EAGAIN ? "not open" : strerror(-rc));
	else if (!l->iterations)
		add_link(l, "main"); /* an HF directory */
	else if (l->iterations > ITERATIONS)
		mfs_buf_printf(b, "and %u more", l->iterations - ITERATIONS);
}

static int add_repo(void *arg, const char *name)
{
	struct listing *l = arg;
	struct mfs_buf *b = &l->call->reply->text;
	char path[PATH_MAX];

	if (!mfs_call_allows(l->call, l->kind, name))
		return 0;
	if (!l->any) {
		mfs_buf_adds(b, "<table>\n<tr><th>name");
		mfs_buf_adds(b, l->inside ? " and source" : "");
		mfs_buf_adds(b, l->kind == MFS_REPO_MODEL ? "<th>iterations\n" : "\n");
	}
	l->any = true;
	l->name = name;
	mfs_buf_adds(b, "<tr><td>");
	add_link(l, "");
	if (l->inside &&
	    !mfs_repos_source(l->call->gateway->repos, l->kind, name, path, sizeof(path))) {
		mfs_buf_adds(b, "<br><small>");
		mfs_html_text(b, path);
		mfs_buf_adds(b, "</small>");
	}
	if (l->kind == MFS_REPO_MODEL) {
		mfs_buf_adds(b, "<td class=i>");
		add_iterations(l);
	}
	mfs_buf_adds(b, "\n");
	return 0;
}

static void add_repos(struct mfs_call *c, const char *title, enum mfs_repo_kind kind, bool inside)
{
	struct listing l = {.call = c, .kind = kind, .inside = inside};
	struct mfs_buf *b = &c->reply->text;
	int rc;

	mfs_buf_printf(b, "<h2>%s</h2>\n", title);
	rc = mfs_repos_each(c->gateway->repos, kind, add_repo, &l);
	mfs_buf_adds(b, l.any ? "</table>\n" : rc ? "" : "<p>none\n");
	if (rc)
		mfs_buf_printf(b, "<p class=bad>There may be more: %s\n", strerror(-rc));
}

static void answer_metrics(struct mfs_call *c)
{
	if (!mfs_grant_allows(c->grant, "metrics")) {
		mfs_reply_error(c->reply, 401, "a token that may read 'metrics' is needed");
		mfs_reply_header(c->reply, "WWW-Authenticate", "Bearer");
		return;
	}
	c->reply->status = 200;
	c->reply->type = MFS_PROM_TYPE;
	mfs_gateway_metrics(c->gateway, &c->reply->text);
}

static void answer(struct mfs_call *c)
{
	struct mfs_reply *a = c->reply;
	bool inside;

	if (c->request->method == MFS_METHOD_POST) {
		mfs_reply_error(a, 405, "this is read by GET and HEAD");
		mfs_reply_header(a, "Allow", "GET, HEAD");
		return;
	}
	if (is(c->request, "metrics")) {
		answer_metrics(c);
		return;
	}
	if (is(c->request, "healthz")) {
		a->status = 200;
		a->type = "text/plain; charset=utf-8";
		mfs_buf_adds(&a->text, "ok\n");
		return;
	}
	inside = mfs_grant_allows(c->grant, "metrics");
	mfs_html_begin(a, "mcorefs " MFS_VERSION);
	if (inside)
		add_numbers(c->gateway, &a->text);
	add_repos(c, "Models", MFS_REPO_MODEL, inside);
	add_repos(c, "Datasets", MFS_REPO_DATASET, inside);
	mfs_html_end(a);
}

const struct mfs_protocol mfs_protocol_status = {"status", claims, answer};
