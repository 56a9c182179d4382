/* An answer for probes at /healthz, numbers for Prometheus at /metrics, and the texts of pages. */
#include <string.h>

#include "formats/base/array.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/gateway/web/page.h"
#include "fs/gateway/web/web.h"
#include "fs/stats/prom.h"

static void answer_metrics(struct mfs_call *c)
{
	if (!mfs_grant_allows(c->grant, "metrics")) {
		mfs_reply_error(c->reply, 401, "a token that may read 'metrics' is needed");
		return;
	}
	c->reply->type = MFS_PROM_TYPE;
	mfs_gateway_metrics(c->gateway, &c->reply->text);
}

static void answer_health(struct mfs_call *c)
{
	c->reply->type = "text/plain; charset=utf-8";
	mfs_buf_adds(&c->reply->text, "ok\n");
}

/* Its address has its hash in it (page.c). */
static void answer_style(struct mfs_call *c)
{
	c->reply->type = "text/css; charset=utf-8";
	mfs_reply_header(c->reply, "X-Content-Type-Options", "nosniff");
	mfs_reply_header(c->reply, "Cache-Control", "public, max-age=86400");
	mfs_buf_adds(&c->reply->text, mfs_web_style);
}

static void answer_documentation(struct mfs_call *c)
{
	c->reply->type = "text/plain; charset=utf-8";
	mfs_page_headers(c->reply);
	mfs_buf_adds(&c->reply->text, mfs_web_documentation);
}

static const struct {
	const char *path;
	void (*answer)(struct mfs_call *c);
} texts[] = {
	{"healthz", answer_health},
	{"metrics", answer_metrics},
	{MFS_STYLE_PATH, answer_style},
	{MFS_DOCUMENTATION_PATH, answer_documentation},
};

#define TEXTS MFS_ARRAY_SIZE(texts)

static size_t find(const struct mfs_request *q)
{
	size_t i = q->url.count == 1 ? 0 : TEXTS;

	while (i < TEXTS && strcmp(q->url.parts[0], texts[i].path) != 0)
		i++;
	return i;
}

static bool claims(const struct mfs_request *q)
{
	return find(q) < TEXTS;
}

static void answer(struct mfs_call *c)
{
	if (c->request->method == MFS_METHOD_POST) {
		mfs_reply_error(c->reply, 405, "this is read by GET and HEAD");
		mfs_reply_header(c->reply, "Allow", "GET, HEAD");
		return;
	}
	c->reply->status = 200;
	texts[find(c->request)].answer(c);
}

const struct mfs_protocol mfs_protocol_status = {
	.route = MFS_ROUTE_STATUS, .claims = claims, .answer = answer, .is_web = true};
