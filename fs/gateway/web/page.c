#include "fs/gateway/web/page.h"

#include <string.h>
#include <time.h>

#include "formats/base/hash.h"
#include "formats/base/version.h"
#include "formats/net/uri.h"

/* form-action: a page that somebody could change sends the token nowhere else. */
#define POLICY                                                                                     \
	"default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; "              \
	"frame-ancestors 'none'"

void mfs_page_headers(struct mfs_reply *a)
{
	mfs_reply_header(a, "Content-Security-Policy", POLICY);
	mfs_reply_header(a, "X-Content-Type-Options", "nosniff");
	mfs_reply_header(a, "Referrer-Policy", "same-origin");
	mfs_reply_header(a, "Cache-Control", "private, no-store");
	mfs_reply_header(a, "Vary", "Accept, Authorization, Cookie");
}

/* Who reads the page, and how he becomes somebody else. */
static void add_who(struct mfs_call *c)
{
	struct mfs_buf *b = &c->reply->text;

	if (!c->grant->rules || !c->gateway->sessions)
		return;
	mfs_buf_adds(b, "<div class=who>");
	if (c->grant->known) {
		mfs_buf_adds(b, "<span>");
		mfs_html_name(b, c->reply->who);
		mfs_buf_adds(b, "</span>");
	}
	if (c->grant->session) {
		mfs_buf_adds(b, "<form method=post action=\"/sign-out\"><button>Sign out</button>"
				"</form>");
	} else if (!c->grant->known) {
		mfs_buf_adds(b, "<a href=\"/sign-in?next=");
		mfs_uri_encode(b, c->request->url.path, strlen(c->request->url.path), false);
		mfs_buf_adds(b, c->request->url.slash && c->request->url.count ? "%2F" : "");
		mfs_buf_adds(b, "\">Sign in</a>");
	}
	mfs_buf_adds(b, "</div>");
}

static void add_search(struct mfs_call *c)
{
	const char *asked = mfs_url_query(&c->request->url, "q");
	struct mfs_buf *b = &c->reply->text;

	mfs_buf_adds(b, "<form action=\"/\" role=search><input name=q type=search "
			"placeholder=\"Search names\" aria-label=\"Search names\" value=\"");
	mfs_html_text(b, asked && !c->request->url.count ? asked : "");
	mfs_buf_adds(b, "\"></form>");
}

/* The link home has more than '/' : fsspec takes a bare one for an entry of a listing. */
static void add_header(struct mfs_call *c)
{
	mfs_buf_adds(&c->reply->text, "<header><a class=brand href=\"/#top\">mcorefs</a>"
				      "<a href=\"/#models\">Models</a>"
				      "<a href=\"/#datasets\">Datasets</a>");
	add_search(c);
	add_who(c);
	mfs_buf_adds(&c->reply->text, "</header>\n");
}

static void add_crumbs(struct mfs_call *c, const char *title, const struct mfs_crumb *crumbs,
		       unsigned count)
{
	struct mfs_buf *b = &c->reply->text;

	mfs_buf_adds(b, "<nav class=crumbs aria-label=\"The way up\">");
	for (unsigned i = 0; i < count; i++) {
		mfs_html_link(b, crumbs[i].href, crumbs[i].name);
		mfs_buf_adds(b, " / ");
	}
	mfs_html_name(b, title);
	mfs_buf_adds(b, "</nav>\n");
}

/* Browsers keep it by its address, which another style does not have. */
static void add_style(struct mfs_buf *b)
{
	mfs_buf_printf(b, "<link rel=\"stylesheet\" href=\"/" MFS_STYLE_PATH "?%016llx\">\n",
		       (unsigned long long)mfs_hash(mfs_web_style, strlen(mfs_web_style)));
}

void mfs_page_begin(struct mfs_call *c, const char *title, const struct mfs_crumb *crumbs,
		    unsigned count)
{
	struct mfs_reply *a = c->reply;

	a->status = 200;
	a->type = "text/html; charset=utf-8";
	mfs_page_headers(a);
	mfs_buf_adds(&a->text,
		     "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		     "<meta name=\"viewport\" content=\"width=device-width, "
		     "initial-scale=1\">\n<meta name=\"color-scheme\" "
		     "content=\"light dark\">\n<title>");
	mfs_html_text(&a->text, title);
	mfs_buf_adds(&a->text, " - mcorefs</title>\n");
	add_style(&a->text);
	mfs_buf_adds(&a->text, "</head>\n<body>\n");
	add_header(c);
	mfs_buf_adds(&a->text, "<main>\n");
	if (count)
		add_crumbs(c, title, crumbs, count);
	mfs_buf_adds(&a->text, "<h1>");
	mfs_html_name(&a->text, title);
	mfs_buf_adds(&a->text, "</h1>\n");
}

/* Below /files/ a link to it would be an entry of the listing (files.c). */
void mfs_page_end(struct mfs_call *c)
{
	const struct mfs_url *url = &c->request->url;
	struct mfs_buf *b = &c->reply->text;

	mfs_buf_adds(b, "</main>\n<footer>mcorefs " MFS_VERSION);
	if (!url->count || strcmp(url->parts[0], "files") != 0)
		mfs_buf_adds(b, " &middot; <a href=\"/files/\">files</a>");
	mfs_buf_adds(b, " &middot; <a href=\"/" MFS_DOCUMENTATION_PATH
			"\">documentation</a></footer>\n</body>\n</html>\n");
}

void mfs_page_add_repo(struct mfs_buf *b, enum mfs_repo_kind kind, const char *name)
{
	mfs_buf_adds(b, kind == MFS_REPO_DATASET ? "/datasets/" : "/");
	mfs_uri_encode(b, name, strlen(name), true);
}

void mfs_page_add_files(struct mfs_buf *b, enum mfs_repo_kind kind, const char *name,
			const char *more)
{
	mfs_buf_adds(b, "/files");
	mfs_page_add_repo(b, kind, name);
	mfs_buf_adds(b, "/");
	if (more) {
		mfs_uri_encode(b, more, strlen(more), true);
		mfs_buf_adds(b, "/");
	}
}

void mfs_page_add_time(struct mfs_buf *b, int64_t ns)
{
	const time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	char text[32];

	if (ns && gmtime_r(&seconds, &tm) && strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm))
		mfs_buf_adds(b, text);
}
