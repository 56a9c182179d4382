/*
 * The page of a model, /ORG/NAME, or a dataset, /datasets/ORG/NAME: what it is, how it is read, its
 * views, its iterations and their loss, or one of its rows. The newest iteration is opened for it,
 * and sizes of views are measured for a while; the next request goes on.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/clock.h"
#include "formats/run/curve.h"
#include "fs/cli/text.h"
#include "fs/gateway/call/reply.h"
#include "fs/gateway/repos/facts.h"
#include "fs/gateway/web/dataset_row.h"
#include "fs/gateway/web/shell_lines.h"
#include "fs/gateway/web/loss_curve.h"
#include "fs/gateway/web/page.h"
#include "fs/gateway/web/web.h"

#define BUDGET	   1500000000ll /* ns in which views are measured */
#define ITERATIONS 200		/* the newest, that are listed */

/* ---- addresses ---- */

struct asked {
	enum mfs_repo_kind kind;
	char name[MFS_REPO_NAME];
	bool is_view; /* the name ends in "__VIEW", which is cut off */
};

/* "/ORG/NAME" for who reads pages; other parts have meanings of their own. */
static bool find_asked(const struct mfs_request *q, struct asked *ret)
{
	const bool data = q->url.count == 3 && !strcmp(q->url.parts[0], "datasets");
	char *view = NULL;

	if (q->url.count != 2 + (unsigned)data || q->method == MFS_METHOD_POST)
		return false;
	ret->kind = data ? MFS_REPO_DATASET : MFS_REPO_MODEL;
	if ((size_t)snprintf(ret->name, sizeof(ret->name), "%s/%s", q->url.parts[data],
			     q->url.parts[data + 1]) >= sizeof(ret->name) ||
	    !mfs_repo_name_ok(ret->name) || !strcmp(q->url.parts[0], "api") ||
	    (!data && !strcmp(q->url.parts[0], "datasets")))
		return false;
	for (char *at = ret->name; (at = strstr(at, "__")); at++)
		view = at;
	ret->is_view = view && view[-1] != '/';
	if (ret->is_view)
		*view = '\0';
	return true;
}

static bool claims(const struct mfs_request *q)
{
	struct asked a;

	return find_asked(q, &a);
}

/* ---- what it is ---- */

static void add_shape(struct mfs_buf *b, const struct mfs_facts *f)
{
	char text[MFS_HUMAN];

	if (f->layers > 0)
		mfs_html_fact(b, "Shape", "%lld layers, hidden %lld, %lld heads",
			      (long long)f->layers, (long long)f->hidden, (long long)f->heads);
	if (f->experts > 0)
		mfs_html_fact(b, "Experts", "%lld, %lld of them for a token", (long long)f->experts,
			      (long long)f->experts_used);
	if (f->context > 0)
		mfs_html_fact(b, "Context", "%s positions",
			      mfs_grouped((uint64_t)f->context, text));
	if (f->vocabulary)
		mfs_html_fact(b, "Vocabulary", "%s", mfs_grouped(f->vocabulary, text));
}

static void add_saved(struct mfs_buf *b, const struct mfs_facts *f)
{
	static const char *const optimizer[] = {"not known", "no", "yes"};
	char size[MFS_HUMAN];

	if (f->source_files)
		mfs_html_fact(b, "Saved as", "%s, %u file%s, %s", f->format, f->source_files,
			      f->source_files == 1 ? "" : "s",
			      mfs_human_bytes(f->source_bytes, size));
	if (f->tp) {
		mfs_buf_adds(b, "<dt>Layout<dd>");
		mfs_page_add_layout(b, f);
		mfs_html_fact(b, "Optimizer", "%s", optimizer[f->optimizer]);
	}
	mfs_buf_adds(b, "<dt>Saved<dd>");
	mfs_page_add_time(b, f->saved_ns);
	mfs_buf_adds(b, " UTC");
	if (*f->iteration) {
		mfs_buf_adds(b, ", ");
		mfs_html_text(b, f->iteration);
	}
	mfs_buf_adds(b, "\n");
}

static void add_model(struct mfs_buf *b, const struct mfs_facts *f)
{
	char human[MFS_HUMAN], exact[MFS_HUMAN], size[MFS_HUMAN];

	mfs_buf_adds(b, "<dl>\n");
	mfs_html_fact(b, "Family", "%s (%s)", f->family, f->architecture);
	mfs_html_fact(b, "Parameters", "%s (%s)", mfs_human_count(f->parameters, human),
		      mfs_grouped(f->parameters, exact));
	mfs_html_fact(b, "Type and size", "%s, %s", f->dtype ? f->dtype : "?",
		      mfs_human_bytes(f->bytes, size));
	add_shape(b, f);
	add_saved(b, f);
	mfs_html_fact(b, "Tokenizer", "%s", f->has_tokenizer ? "yes" : "none");
	mfs_buf_adds(b, "<dt>State<dd class=good>complete\n</dl>\n");
}

static void add_dataset(struct mfs_buf *b, const struct mfs_facts *f)
{
	char human[MFS_HUMAN], exact[MFS_HUMAN];

	mfs_buf_adds(b, "<dl>\n");
	if (f->is_blend) {
		mfs_html_fact(b, "Kind", "a blend, which has samples alone");
	} else {
		mfs_html_fact(b, "Rows", "%s", mfs_grouped(f->rows, exact));
		mfs_html_fact(b, "Tokens", "%s (%s), %s", mfs_human_count(f->tokens, human),
			      mfs_grouped(f->tokens, exact), f->dtype ? f->dtype : "?");
	}
	add_saved(b, f);
	mfs_buf_adds(b, "</dl>\n");
}

/* ---- views ---- */

struct views {
	struct mfs_call *call;
	const struct asked *asked;
	const struct mfs_view_kind *kind;
	char first[MFS_REPO_NAME * 2]; /* the first layout's repository; "": there is none */
};

/* "lab/llama__megatron.torch.tp2-pp1": the repository of a view. */
static void make_name(const struct views *v, const char *view, char ret[MFS_REPO_NAME * 2])
{
	const bool model = v->asked->kind == MFS_REPO_MODEL;
	const bool is_default = !strcmp(view, model ? MFS_VIEW_DEFAULT : "parquet");
	const int len = snprintf(ret, MFS_REPO_NAME * 2, "%s%s%s", v->asked->name,
				 is_default ? "" : "__", is_default ? "" : view);

	for (int i = (int)strlen(v->asked->name); i < len && ret[i]; i++)
		if (ret[i] == '/')
			ret[i] = '.';
}

static void add_view_link(const struct views *v, const char *name)
{
	struct mfs_buf href = {0};

	mfs_page_add_files(&href, v->asked->kind, name, "main");
	mfs_html_link(&v->call->reply->text, href.failed ? "/" : href.data, name);
	mfs_buf_release(&href);
}

static void begin_view(const struct views *v)
{
	mfs_buf_adds(&v->call->reply->text, "<tr><td class=name>");
}

/* Help is of several lines where a terminal shows it. */
static void end_view(const struct views *v, const struct mfs_view_fact *f, const char *name)
{
	const bool model = v->asked->kind == MFS_REPO_MODEL;
	const char *line = model ? mfs_line_of_view(v->kind->name) : NULL;
	struct mfs_buf *b = &v->call->reply->text;
	char size[MFS_HUMAN];

	mfs_buf_printf(b, "<td class=n>%s<td class=wide>",
		       f->is_measured ? mfs_human_bytes(f->bytes, size) : "");
	for (const char *at = v->kind->help; *at;) {
		const size_t len = strcspn(at, "\n");

		mfs_html_text_part(b, at, len);
		mfs_buf_adds(b, at[len] ? " " : "");
		at += len + !!at[len];
	}
	if (line && strcmp(v->kind->name, MFS_VIEW_DEFAULT) != 0)
		mfs_page_add_line(v->call, line, name);
	mfs_buf_adds(b, "\n");
}

static void add_view(const struct views *v, const struct mfs_view_fact *f)
{
	char name[MFS_REPO_NAME * 2];

	make_name(v, v->kind->name, name);
	begin_view(v);
	add_view_link(v, name);
	end_view(v, f, name);
}

/* The layouts of a directory share a row. */
static void add_layout(void *arg, const char *spec)
{
	struct views *v = arg;
	char view[MFS_FACT_REASON], name[MFS_REPO_NAME * 2];

	snprintf(view, sizeof(view), "%s/%s", v->kind->name, spec);
	make_name(v, view, name);
	if (!*v->first) {
		memcpy(v->first, name, sizeof(name));
		begin_view(v);
	} else {
		mfs_buf_adds(&v->call->reply->text, "<br>");
	}
	add_view_link(v, name);
}

static void add_views(struct mfs_call *c, const struct asked *a, const struct mfs_facts *f)
{
	struct mfs_buf *b = &c->reply->text;

	mfs_buf_adds(b, "<h2>Views</h2>\n<div class=scroll><table class=list>\n<thead><tr><th>Name"
			"<th class=n>Size<th>What it is</thead>\n");
	for (unsigned i = 0; i < f->view_count; i++) {
		struct views v = {.call = c, .asked = a, .kind = f->views[i].kind};

		if (!v.kind->spec)
			add_view(&v, &f->views[i]);
		else if (a->kind == MFS_REPO_MODEL)
			mfs_repos_each_layout(c->gateway->repos, a->name, v.kind, add_layout, &v);
		if (*v.first)
			end_view(&v, &f->views[i], v.first);
	}
	mfs_buf_adds(b, "</table></div>\n");
	if (a->kind == MFS_REPO_MODEL)
		mfs_buf_adds(b, "<p class=soft>Each name is a repository of its own. Other layouts "
				"than those above have names like them.\n");
}

/* ---- iterations ---- */

struct iterations {
	struct mfs_call *call;
	const struct asked *asked;
	const struct mfs_curve *losses;
	unsigned count;
};

static void add_loss(struct mfs_buf *b, const struct mfs_curve *c, int64_t step)
{
	const struct mfs_curve_point *p = step < 0 ? NULL : mfs_curve_at(c, step);

	mfs_buf_adds(b, "<td class=n>");
	if (p && isfinite(p->value))
		mfs_buf_printf(b, "%.4f", p->value);
	else if (p)
		mfs_buf_adds(b, "<span class=bad>not a number</span>");
}

static int add_iteration(void *arg, const struct mfs_saved *s)
{
	struct iterations *l = arg;
	struct mfs_buf *b = &l->call->reply->text, href = {0};

	if (l->count++ == ITERATIONS)
		return 1;
	if (l->count == 1)
		mfs_buf_printf(b,
			       "<div class=scroll><table class=list>\n<thead><tr><th>Iteration"
			       "<th>Saved (UTC)%s<th>State</thead>\n",
			       l->losses->count ? "<th class=n>Training loss" : "");
	mfs_page_add_files(&href, l->asked->kind, l->asked->name, s->name);
	mfs_buf_adds(b, "<tr><td class=name>");
	if (s->reason)
		mfs_html_name(b, s->name);
	else
		mfs_html_link(b, href.failed ? "/" : href.data, s->name);
	mfs_buf_release(&href);
	mfs_buf_adds(b, "<td class=t>");
	mfs_page_add_time(b, s->mtime_ns);
	if (l->losses->count)
		add_loss(b, l->losses, s->number);
	mfs_buf_adds(b, s->reason ? "<td class=warn>" : "<td class=good>");
	if (s->reason) {
		char why[MFS_FACT_REASON];

		snprintf(why, sizeof(why), "%s", s->reason);
		mfs_hide_directories(why);
		mfs_html_text(b, why);
	} else {
		mfs_buf_adds(b, s->is_latest ? "complete, the newest" : "complete");
	}
	mfs_buf_adds(b, "\n");
	return 0;
}

static void add_iterations(struct mfs_call *c, const struct asked *a)
{
	struct mfs_curve losses = {0};
	char note[MFS_FACT_REASON];
	struct iterations l = {.call = c, .asked = a, .losses = &losses};
	struct mfs_buf *b = &c->reply->text;

	if (mfs_repos_losses(c->gateway->repos, a->name, &losses, note))
		mfs_curve_release(&losses);
	mfs_buf_adds(b, "<h2>Iterations</h2>\n");
	mfs_page_add_curve(b, &losses);
	mfs_repos_each_saved(c->gateway->repos, a->name, add_iteration, &l);
	mfs_buf_adds(b, l.count ? "</table></div>\n" : "<p class=soft>It has none.\n");
	if (l.count > ITERATIONS)
		mfs_buf_printf(b,
			       "<p class=soft>These are the newest %d; all are among the files.\n",
			       ITERATIONS);
	if (*note) {
		mfs_buf_adds(b,
			     "<p class=warn>A file of the training loss is not read to its end: ");
		mfs_html_text(b, note);
		mfs_buf_adds(b, "\n");
	}
	mfs_curve_release(&losses);
}

/* ---- the page ---- */

static void refuse(struct mfs_call *c, const struct asked *a)
{
	if (c->grant->known)
		mfs_reply_error(c->reply, 404, "there is no repository %s", a->name);
	else
		mfs_reply_error(c->reply, 401, "%s: a token is needed", a->name);
}

static void go_to_repo(struct mfs_call *c, const struct asked *a)
{
	struct mfs_buf to = {0};

	mfs_page_add_repo(&to, a->kind, a->name);
	c->reply->status = 303;
	if (to.failed)
		c->reply->failed = true;
	else
		mfs_reply_header(c->reply, "Location", "%s", to.data);
	mfs_buf_release(&to);
}

static void begin(struct mfs_call *c, const struct asked *a)
{
	const size_t org = strcspn(a->name, "/");
	const bool model = a->kind == MFS_REPO_MODEL;
	char name[MFS_REPO_NAME], href[MFS_REPO_NAME + 16];
	const struct mfs_crumb crumbs[] = {
		{model ? "/#models" : "/#datasets", model ? "Models" : "Datasets"}, {href, name}};

	snprintf(name, sizeof(name), "%.*s", (int)org, a->name);
	snprintf(href, sizeof(href), "/?q=%s%%2F", name); /* letters, digits and -._ alone */
	mfs_page_begin(c, a->name, crumbs, 2);
}

static void add_source(struct mfs_call *c, const struct asked *a)
{
	struct mfs_buf *b = &c->reply->text, href = {0};
	char path[PATH_MAX];

	mfs_page_add_files(&href, a->kind, a->name, NULL);
	mfs_buf_adds(b, "<p class=lead>");
	mfs_html_link(b, href.failed ? "/" : href.data, "Files");
	mfs_buf_release(&href);
	if (mfs_grant_allows(c->grant, "metrics") &&
	    !mfs_repos_source(c->gateway->repos, a->kind, a->name, path, sizeof(path))) {
		mfs_buf_adds(b, " of <code>");
		mfs_html_name(b, path);
		mfs_buf_adds(b, "</code>");
	}
	mfs_buf_adds(b, "\n");
}

static void answer(struct mfs_call *c)
{
	enum mfs_absent_kind what;
	struct mfs_facts f;
	struct mfs_error err;
	struct asked a;
	int rc;

	if (!find_asked(c->request, &a) || !mfs_call_allows(c, a.kind, a.name)) {
		refuse(c, &a);
		return;
	}
	if (a.is_view) {
		go_to_repo(c, &a);
		return;
	}
	rc = mfs_repos_learn(c->gateway->repos, a.kind, a.name, mfs_now_ns() + BUDGET, &f, &what,
			     &err);
	if (rc == -ENOENT && what == MFS_ABSENT_REPO &&
	    !mfs_repos_is_open(c->gateway->repos, a.kind, a.name)) {
		mfs_reply_error(c->reply, 404, "there is no repository %s", a.name);
		return;
	}
	if (rc && rc != -ENOENT) {
		mfs_reply_failure(c->reply, rc, &err);
		return;
	}
	begin(c, &a);
	add_source(c, &a);
	if (rc) {
		mfs_hide_directories(f.why);
		mfs_buf_adds(&c->reply->text, "<p class=warn>");
		mfs_html_text(&c->reply->text, f.why);
		mfs_buf_adds(&c->reply->text, "\n");
	} else if (a.kind == MFS_REPO_MODEL) {
		add_model(&c->reply->text, &f);
	} else {
		add_dataset(&c->reply->text, &f);
	}
	if (!rc)
		mfs_page_add_lines(c, a.kind, a.name, &f);
	if (f.view_count)
		add_views(c, &a, &f);
	if (a.kind == MFS_REPO_MODEL)
		add_iterations(c, &a);
	else if (!rc && !f.is_blend)
		mfs_page_add_row(c, a.name);
	mfs_page_end(c);
}

const struct mfs_protocol mfs_protocol_repo = {
	.route = MFS_ROUTE_PAGES, .claims = claims, .answer = answer, .is_web = true};
