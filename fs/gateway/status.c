/* A page for people at /, an answer for probes at /healthz, numbers for Prometheus at /metrics. */
#include <string.h>

#include "formats/base/clock.h"
#include "formats/base/version.h"
#include "formats/net/uri.h"
#include "fs/gateway/gateway.h"
#include "fs/gateway/html.h"
#include "fs/gateway/metrics.h"
#include "fs/http/server.h"
#include "fs/stats/prom.h"

static bool is(const struct mfs_request *q, const char *name)
{
	return q->url.count == 1 && !strcmp(q->url.parts[0], name);
}

static bool claims(const struct mfs_request *q)
{
	return !q->url.count || is(q, "healthz") || is(q, "metrics");
}

static void row(struct mfs_buf *b, const char *what, unsigned long long n)
{
	mfs_buf_printf(b, "<tr><th>%s<td>%llu\n", what, n);
}

static void add_numbers(struct mfs_gateway *g, struct mfs_buf *b)
{
	const struct mfs_http_state http = mfs_http_state(g->http);
	const struct mfs_repos_state repos = mfs_repos_state(g->repos);
	const struct mfs_gateway_sums sums = mfs_gateway_sums(g->stats);

	mfs_buf_adds(b, "<table>\n");
	row(b, "seconds since the start",
	    (unsigned long long)((mfs_now_ns() - g->began_ns) / 1000000000));
	row(b, "connections", http.connections);
	row(b, "requests now", http.requests);
	row(b, "bytes sent", sums.bytes);
	row(b, "replies 2xx", sums.replies[2]);
	row(b, "replies 3xx", sums.replies[3]);
	row(b, "replies 4xx", sums.replies[4]);
	row(b, "replies 5xx", sums.replies[5]);
	row(b, "replies that were cut", sums.cut);
	row(b, "sources that are open", repos.open);
	row(b, "views in use", repos.users);
	mfs_buf_adds(b, "</table>\n");
}

struct listing {
	struct mfs_call *call;
	enum mfs_repo_kind kind;
};

static int add_repo(void *arg, const char *name)
{
	struct listing *l = arg;
	struct mfs_buf *b = &l->call->reply->text;

	if (!mfs_call_allows(l->call, l->kind, name))
		return 0;
	mfs_buf_adds(b, "<li><a href=\"/files/");
	mfs_buf_adds(b, l->kind == MFS_REPO_DATASET ? "datasets/" : "");
	mfs_uri_encode(b, name, strlen(name), true);
	mfs_buf_adds(b, "/\">");
	mfs_html_text(b, name);
	mfs_buf_adds(b, "</a>\n");
	return 0;
}

static void add_repos(struct mfs_call *c, const char *title, enum mfs_repo_kind kind)
{
	struct listing l = {c, kind};
	int rc;

	mfs_buf_printf(&c->reply->text, "<h2>%s</h2>\n<ul>\n", title);
	rc = mfs_repos_each(c->gateway->repos, kind, add_repo, &l);
	if (rc)
		mfs_buf_printf(&c->reply->text, "<li>There may be more: %s\n", strerror(-rc));
	mfs_buf_adds(&c->reply->text, "</ul>\n");
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
	mfs_html_begin(a, "mcorefs " MFS_VERSION);
	if (mfs_grant_allows(c->grant, "metrics"))
		add_numbers(c->gateway, &a->text);
	add_repos(c, "Models", MFS_REPO_MODEL);
	add_repos(c, "Datasets", MFS_REPO_DATASET);
	mfs_html_end(a);
}

const struct mfs_protocol mfs_protocol_status = {"status", claims, answer};
