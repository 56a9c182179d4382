/*
 * The page at /: models first, then datasets, each with what is known of it; at the end counters
 * for who runs the gateway. ?q=TEXT names those alone that have TEXT in their names, and from=N
 * begins after the first N. Nothing is opened for it but what is open anyway.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/net/uri.h"
#include "fs/cli/text.h"
#include "fs/gateway/call/reply.h"
#include "fs/gateway/repos/facts.h"
#include "fs/gateway/web/counters.h"
#include "fs/gateway/web/page.h"
#include "fs/gateway/web/web.h"

#define ROWS   100	   /* of a kind on one page */
#define BUDGET 500000000ll /* ns in which the page looks at what is open */

static bool claims(const struct mfs_request *q)
{
	return !q->url.count;
}

struct listing {
	struct mfs_call *call;
	enum mfs_repo_kind kind;
	bool inside; /* the reader may know where sources lie */
	const char *search;
	uint64_t from, matched, shown;
	int64_t until_ns;
};

/* ---- what is known of one ---- */

static int note_first(void *arg, const char *iteration)
{
	snprintf(arg, MFS_FACT_TEXT, "%s", iteration);
	return 1;
}

/* What is noted; of a model that is open, looked at again if it has a newer iteration by now. */
static bool know(const struct listing *l, const char *name, struct mfs_facts *f)
{
	struct mfs_repos *repos = l->call->gateway->repos;
	char newest[MFS_FACT_TEXT] = "";
	enum mfs_absent_kind what;
	struct mfs_error err;
	bool known = mfs_repos_facts(repos, l->kind, name, f);
	int rc = l->kind == MFS_REPO_MODEL ? mfs_repos_each_known(repos, name, note_first, newest)
					   : -EAGAIN;

	if (rc < 0 || (known && (!*newest || !strcmp(newest, f->iteration))))
		return known;
	if (mfs_now_ns() < l->until_ns)
		known = !mfs_repos_learn(repos, l->kind, name, 0, f, &what, &err) || *f->why;
	return known;
}

static void add_sizes(struct mfs_buf *b, const struct mfs_facts *f)
{
	char text[MFS_HUMAN];

	mfs_buf_printf(b, "<td class=n data-of=parameters>%s",
		       f->parameters ? mfs_human_count(f->parameters, text) : "");
	mfs_buf_printf(b, "<td class=n>%s", f->bytes ? mfs_human_bytes(f->bytes, text) : "");
	mfs_buf_printf(b, "<td>%s", f->dtype ? f->dtype : "");
}

void mfs_page_add_layout(struct mfs_buf *b, const struct mfs_facts *f)
{
	if (!f->tp)
		return;
	mfs_buf_printf(b, "TP %u, PP %u", f->tp, f->pp);
	if (f->vpp > 1)
		mfs_buf_printf(b, ", VPP %u", f->vpp);
	if (f->ep > 1)
		mfs_buf_printf(b, ", EP %u", f->ep);
	if (f->ep > 1 && f->etp > 1)
		mfs_buf_printf(b, ", ETP %u", f->etp);
}

static void add_model_facts(struct mfs_buf *b, const struct mfs_facts *f)
{
	mfs_buf_adds(b, "<td>");
	mfs_html_text(b, f->family);
	add_sizes(b, f);
	mfs_buf_adds(b, "<td>");
	mfs_page_add_layout(b, f);
	mfs_buf_adds(b, f->optimizer == MFS_FACT_YES ? "<br><small>with optimizer</small>" : "");
	mfs_buf_adds(b, "<td class=t>");
	mfs_page_add_time(b, f->saved_ns);
	if (*f->iteration) {
		mfs_buf_adds(b, "<br><small>");
		mfs_html_text(b, f->iteration);
		mfs_buf_adds(b, "</small>");
	}
	mfs_buf_adds(b, "<td class=good>complete");
}

/* Why it cannot be shown, for its reader: he need not know where it lies. */
static void add_reason(struct mfs_buf *b, struct mfs_facts *f)
{
	mfs_hide_directories(f->why);
	mfs_buf_adds(b, "<td colspan=7 class=\"wide warn\">");
	mfs_html_text(b, f->why);
}

/* Of a checkpoint that nobody has opened: what its names say. */
static void add_glance(const struct listing *l, const char *name)
{
	struct mfs_buf *b = &l->call->reply->text;
	struct mfs_glance g;

	if (mfs_repos_glance(l->call->gateway->repos, name, &g))
		g = (struct mfs_glance){0};
	mfs_buf_adds(
		b,
		"<td colspan=5 class=\"wide soft\">opened when somebody asks for it<td class=t>");
	mfs_page_add_time(b, g.saved_ns);
	if (*g.iteration)
		mfs_buf_printf(b, "<br><small>%s</small>", g.iteration);
	mfs_buf_adds(b, "<td>");
}

static void add_dataset_facts(struct mfs_buf *b, const struct mfs_facts *f)
{
	char text[MFS_HUMAN];

	mfs_buf_printf(b, "<td class=n data-of=rows>%s", f->rows ? mfs_grouped(f->rows, text) : "");
	mfs_buf_printf(b, "<td class=n data-of=tokens>%s",
		       f->tokens ? mfs_human_count(f->tokens, text) : "");
	mfs_buf_printf(b, "<td class=n>%s", f->bytes ? mfs_human_bytes(f->bytes, text) : "");
	mfs_buf_printf(b, "<td>%s<td class=t>", f->dtype ? f->dtype : "");
	mfs_page_add_time(b, f->saved_ns);
}

/* ---- rows ---- */

static void begin_table(struct listing *l)
{
	mfs_buf_adds(&l->call->reply->text,
		     l->kind == MFS_REPO_MODEL
			     ? "<div class=scroll><table class=list>\n<thead><tr><th>Name<th>Family"
			       "<th class=n>Parameters<th class=n>Size<th>Type<th>Saved as"
			       "<th>Saved (UTC)<th>State</thead>\n"
			     : "<div class=scroll><table class=list>\n<thead><tr><th>Name"
			       "<th class=n>Rows<th class=n>Tokens<th class=n>Size<th>Type"
			       "<th>Changed (UTC)</thead>\n");
}

static void add_name(struct listing *l, const char *name)
{
	struct mfs_buf *b = &l->call->reply->text, href = {0};
	char path[PATH_MAX];

	mfs_page_add_repo(&href, l->kind, name);
	mfs_buf_adds(b, "<tr><td class=name>");
	mfs_html_link(b, href.failed ? "/" : href.data, name);
	mfs_buf_release(&href);
	if (l->inside &&
	    !mfs_repos_source(l->call->gateway->repos, l->kind, name, path, sizeof(path))) {
		mfs_buf_adds(b, "<br><small>");
		mfs_html_name(b, path);
		mfs_buf_adds(b, "</small>");
	}
}

static int add_repo(void *arg, const char *name)
{
	struct listing *l = arg;
	struct mfs_buf *b = &l->call->reply->text;
	struct mfs_facts f = {0};
	bool known;

	if (!mfs_call_allows(l->call, l->kind, name) || !strcasestr(name, l->search))
		return 0;
	if (l->matched++ < l->from || l->shown == ROWS)
		return 0;
	if (!l->shown++)
		begin_table(l);
	known = know(l, name, &f);
	add_name(l, name);
	if (l->kind == MFS_REPO_DATASET)
		add_dataset_facts(b, &f);
	else if (known && *f.why)
		add_reason(b, &f);
	else if (known)
		add_model_facts(b, &f);
	else
		add_glance(l, name);
	mfs_buf_adds(b, "\n");
	return 0;
}

static void add_more(const struct listing *l)
{
	struct mfs_buf *b = &l->call->reply->text;
	const uint64_t end = l->from + l->shown;

	if (l->shown)
		mfs_buf_adds(b, "</table></div>\n");
	else if (l->matched || *l->search)
		mfs_buf_adds(b, "<p class=soft>none of that name\n");
	else
		mfs_buf_adds(b, l->call->grant->rules && !l->call->grant->known
					? "<p class=soft>none without signing in\n"
					: "<p class=soft>none\n");
	if (end >= l->matched || !l->shown)
		return;
	mfs_buf_printf(b, "<p>%llu to %llu of %llu. <a href=\"/?from=%llu&amp;q=",
		       (unsigned long long)l->from + 1, (unsigned long long)end,
		       (unsigned long long)l->matched, (unsigned long long)end);
	mfs_uri_encode(b, l->search, strlen(l->search), false);
	mfs_buf_adds(b, "\">The next ones</a>\n");
}

static void add_repos(struct mfs_call *c, const char *title, enum mfs_repo_kind kind, bool inside)
{
	const char *search = mfs_url_query(&c->request->url, "q");
	const char *from = mfs_url_query(&c->request->url, "from");
	struct listing l = {.call = c,
			    .kind = kind,
			    .inside = inside,
			    .search = search ? search : "",
			    .from = from && *from >= '0' && *from <= '9' ? strtoul(from, NULL, 10)
									 : 0,
			    .until_ns = mfs_now_ns() + BUDGET};
	struct mfs_buf *b = &c->reply->text;
	int rc;

	mfs_buf_printf(b, "<h2 id=%s>%s</h2>\n", kind == MFS_REPO_MODEL ? "models" : "datasets",
		       title);
	rc = mfs_repos_each(c->gateway->repos, kind, add_repo, &l);
	add_more(&l);
	if (rc)
		mfs_buf_printf(b, "<p class=bad>There may be more: %s\n", strerror(-rc));
}

static void answer(struct mfs_call *c)
{
	const bool inside = mfs_grant_allows(c->grant, "metrics");

	if (c->request->method == MFS_METHOD_POST) {
		mfs_reply_error(c->reply, 405, "this is read by GET and HEAD");
		mfs_reply_header(c->reply, "Allow", "GET, HEAD");
		return;
	}
	mfs_page_begin(c, "Models and datasets", NULL, 0);
	add_repos(c, "Models", MFS_REPO_MODEL, inside);
	add_repos(c, "Datasets", MFS_REPO_DATASET, inside);
	if (inside)
		mfs_page_add_counters(c->gateway, &c->reply->text);
	mfs_page_end(c);
}

const struct mfs_protocol mfs_protocol_home = {
	.route = MFS_ROUTE_STATUS, .claims = claims, .answer = answer, .is_web = true};
