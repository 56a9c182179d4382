/*
 * Signing in and out of the pages:
 *
 *   GET  /sign-in?next=PATH     a form
 *   POST /sign-in               token=TOKEN&next=PATH: a session begins, and PATH follows
 *   POST /sign-out              the session ends
 *
 * A POST of another site's page is refused, and PATH is of this gateway whatever next= holds.
 */
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>

#include "formats/base/clock.h"
#include "formats/base/str.h"
#include "formats/net/uri.h"
#include "fs/gateway/access/guesses.h"
#include "fs/gateway/call/gateway_address.h"
#include "fs/gateway/call/session_cookie.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/gateway/web/page.h"
#include "fs/gateway/web/web.h"

#define IN    "sign-in"
#define OUT   "sign-out"
#define FIELD 4096 /* bytes of a field that is taken */

static bool is(const struct mfs_request *q, const char *name)
{
	return q->url.count == 1 && !q->url.slash && !strcmp(q->url.parts[0], name);
}

static bool claims(const struct mfs_request *q)
{
	return is(q, IN) || is(q, OUT);
}

/* ---- the form ---- */

static bool is_loopback(const char *host)
{
	const size_t len = host ? strcspn(host, ":") : 0;

	return host && (!strncmp(host, "[::1]", 5) || !strncmp(host, "127.", 4) ||
			(len == 9 && !strncmp(host, "localhost", 9)));
}

void mfs_sign_in_form(struct mfs_call *c, const char *next)
{
	struct mfs_buf *b = &c->reply->text;

	mfs_buf_adds(b, "<form class=card method=post action=\"/" IN "\">\n"
			"<label for=token>Your token (what <code>HF_TOKEN</code> holds)</label>\n"
			"<input id=token name=token type=password required "
			"autocomplete=current-password autofocus>\n"
			"<input name=user value=token autocomplete=username hidden>\n"
			"<input name=next type=hidden value=\"");
	mfs_html_text(b, next);
	mfs_buf_adds(b, "\">\n<button>Sign in</button>\n");
	if (!mfs_call_is_tls(c) && !is_loopback(mfs_call_host(c)))
		mfs_buf_adds(b, "<p class=warn>This address has no TLS: the token can be read on "
				"the way.\n");
	mfs_buf_adds(b, "</form>\n");
}

static void show_form(struct mfs_call *c, const char *next, const char *problem)
{
	mfs_page_begin(c, "Sign in", NULL, 0);
	if (!c->grant->rules || !c->gateway->sessions) {
		mfs_buf_adds(&c->reply->text, "<p>This gateway asks for no tokens: everybody reads "
					      "all of it.\n");
	} else {
		if (problem)
			mfs_buf_printf(&c->reply->text, "<p class=bad role=alert>%s\n", problem);
		mfs_sign_in_form(c, next);
	}
	mfs_page_end(c);
}

/* ---- where it goes on ---- */

/* Appends a path of this gateway, made of the parts of the given one, so that it cannot name
 * another host. "/" stands for all that is no such path. */
static void add_next(struct mfs_buf *b, const char *given)
{
	struct mfs_url url;

	if (*given != '/' || mfs_url_parse(given, &url, NULL)) {
		mfs_buf_adds(b, "/");
		return;
	}
	for (unsigned i = 0; i < url.count; i++) {
		mfs_buf_adds(b, "/");
		mfs_uri_encode(b, url.parts[i], strlen(url.parts[i]), false);
	}
	mfs_buf_adds(b, url.slash ? "/" : "");
	mfs_url_release(&url);
}

static void go_to(struct mfs_call *c, const char *next)
{
	struct mfs_buf to = {0};

	add_next(&to, next);
	mfs_buf_add(&to, "", 1);
	c->reply->status = 303;
	mfs_page_headers(c->reply);
	if (to.failed)
		c->reply->failed = true;
	else
		mfs_reply_header(c->reply, "Location", "%s", to.data);
	mfs_buf_release(&to);
}

/* ---- what was sent ---- */

struct fields {
	char token[FIELD], next[FIELD];
};

static int take_field(void *arg, const char *name, const char *value)
{
	struct fields *f = arg;

	if (!strcmp(name, "token"))
		snprintf(f->token, sizeof(f->token), "%s", value);
	else if (!strcmp(name, "next"))
		snprintf(f->next, sizeof(f->next), "%s", value);
	return 0;
}

static bool read_form(const struct mfs_buf *body, struct fields *ret)
{
	struct mfs_buf copy = {0};
	bool ok;

	*ret = (struct fields){.next = "/"};
	/* With the NUL that ends a buffer: a buffer that grows leaves copies in freed memory. */
	mfs_buf_add(&copy, body->data ? body->data : "", body->len);
	ok = !copy.failed && strlen(copy.data) == body->len &&
	     !mfs_form_each(copy.data, take_field, ret, NULL);
	if (copy.data)
		OPENSSL_cleanse(copy.data, copy.cap);
	mfs_buf_release(&copy);
	return ok;
}

/* Where guesses are counted. */
static const char *client_of(const struct mfs_call *c)
{
	return *c->reply->from ? c->reply->from : c->request->client;
}

static void begin(struct mfs_call *c, const uint8_t sum[MFS_TOKEN_SUM], const char *next)
{
	const struct mfs_rules *rules = c->grant->rules;

	mfs_call_begin_session(c, sum);
	snprintf(c->reply->who, sizeof(c->reply->who), "%s",
		 mfs_rules_name(rules, mfs_rules_find_sum(rules, sum)));
	go_to(c, next);
}

static void refuse(struct mfs_call *c, const char *next)
{
	mfs_gateway_count_guess(c->gateway->stats);
	if (c->gateway->guesses)
		mfs_guesses_wrong(c->gateway->guesses, client_of(c), mfs_now_ns());
	show_form(c, next, "This token is not known here.");
	c->reply->status = 403;
	snprintf(c->reply->why, sizeof(c->reply->why), "the token is not known here");
}

static void sign_in(struct mfs_call *c)
{
	const struct mfs_rules *rules = c->grant->rules;
	uint8_t sum[MFS_TOKEN_SUM];
	struct fields f;
	const bool whole = read_form(&c->request->body, &f);

	mfs_token_sum(f.token, sum);
	OPENSSL_cleanse(f.token, sizeof(f.token));
	if (!whole)
		mfs_reply_error(c->reply, 400, "the body is no form with a token");
	else if (rules && c->gateway->sessions && mfs_rules_find_sum(rules, sum) >= 0)
		begin(c, sum, f.next);
	else
		refuse(c, f.next);
}

/* A client that has guessed too often is not told of a right token either. */
static bool must_wait(struct mfs_call *c)
{
	struct mfs_guesses *guesses = c->gateway->guesses;
	const unsigned seconds =
		guesses ? mfs_guesses_wait(guesses, client_of(c), mfs_now_ns()) : 0;

	if (!seconds)
		return false;
	mfs_reply_error(c->reply, 429,
			"%d wrong tokens in a minute have come from this address: try again in %u "
			"s",
			MFS_GUESSES_WRONG, seconds);
	mfs_reply_header(c->reply, "Retry-After", "%u", seconds);
	return true;
}

static void answer_post(struct mfs_call *c)
{
	const char *other = mfs_call_other_site(c);

	if (other) {
		mfs_reply_error(c->reply, 403, "%s", other);
	} else if (is(c->request, IN)) {
		if (!must_wait(c))
			sign_in(c);
	} else {
		mfs_call_end_session(c);
		go_to(c, "/");
	}
}

static void answer(struct mfs_call *c)
{
	const char *next = mfs_url_query(&c->request->url, "next");

	if (c->request->method == MFS_METHOD_POST) {
		answer_post(c);
	} else if (is(c->request, OUT)) {
		mfs_reply_error(c->reply, 405, "signing out is a POST");
		mfs_reply_header(c->reply, "Allow", "POST");
	} else {
		show_form(c, next ? next : "/", NULL);
	}
}

const struct mfs_protocol mfs_protocol_sign = {
	.route = MFS_ROUTE_PAGES, .claims = claims, .answer = answer, .is_web = true};
