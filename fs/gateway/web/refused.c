/* Refusals, in the form that their reader takes: a page for a browser, JSON for who asks for it. */
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "fs/gateway/call/accept.h"
#include "fs/gateway/web/page.h"
#include "fs/gateway/web/web.h"

static const char *title_of(unsigned status)
{
	static const struct {
		unsigned status;
		const char *title;
	} titles[] = {
		{400, "The request was not understood"},
		{401, "Please sign in"},
		{403, "Not allowed"},
		{404, "Not found"},
		{405, "Not possible here"},
		{412, "The file is another one"},
		{413, "Too large"},
		{416, "No such bytes"},
		{429, "Too many at once"},
		{500, "Something went wrong"},
		{503, "Try again in a moment"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(titles); i++)
		if (titles[i].status == status)
			return titles[i].title;
	return "Refused";
}

/* Back to the same place, once he has signed in. */
static void add_form(struct mfs_call *c)
{
	const struct mfs_url *url = &c->request->url;
	struct mfs_buf next = {0};

	mfs_buf_adds(&next, url->path);
	mfs_buf_adds(&next, url->slash && url->count ? "/" : "");
	if (next.failed)
		c->reply->failed = true;
	else
		mfs_sign_in_form(c, next.data);
	mfs_buf_release(&next);
}

static void as_page(struct mfs_call *c)
{
	const struct mfs_crumb home = {"/#models", "mcorefs"};
	struct mfs_reply *a = c->reply;
	const unsigned status = a->status;

	mfs_buf_release(&a->text);
	a->text = (struct mfs_buf){0};
	mfs_page_begin(c, title_of(status), &home, 1);
	a->status = status;
	mfs_buf_adds(&a->text, "<p class=lead>");
	mfs_html_text(&a->text, a->why);
	mfs_buf_adds(&a->text, "\n");
	if (status == 401 && c->grant->rules && c->gateway->sessions)
		add_form(c);
	mfs_buf_adds(&a->text, "<p><a href=\"/#models\">All models and datasets</a>\n");
	mfs_page_end(c);
}

static void as_json(struct mfs_reply *a)
{
	mfs_buf_release(&a->text);
	a->text = (struct mfs_buf){0};
	mfs_buf_adds(&a->text, "{\"error\":");
	mfs_buf_add_json(&a->text, a->why);
	mfs_buf_adds(&a->text, "}\n");
	a->type = "application/json; charset=utf-8";
}

static bool is_html(const struct mfs_reply *a)
{
	return a->type && !strncmp(a->type, "text/html", 9);
}

void mfs_web_dress_refusal(struct mfs_call *c)
{
	const char *accept = mfs_request_header(c->request, "Accept");
	const bool browser = mfs_accept_names(accept, "text/html");
	struct mfs_reply *a = c->reply;

	if (a->status < 400 || a->stream || a->failed)
		return;
	/* Browsers ask their reader; the Hub's clients know 401 by its X-Error-Code alone. */
	if (a->status == 401 && (browser || (c->protocol && c->protocol->is_web))) {
		mfs_reply_header(a, "WWW-Authenticate",
				 "Basic realm=\"mcorefs\", charset=\"UTF-8\"");
		mfs_reply_header(a, "WWW-Authenticate", "Bearer");
	}
	if (browser && !is_html(a))
		as_page(c);
	else if (mfs_accept_names(accept, "application/json") && !is_html(a) && a->type &&
		 strncmp(a->type, "application/json", 16) != 0)
		as_json(a);
}
