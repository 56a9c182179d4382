/* The gateway's pages for people: who signs in, what is escaped, what is shown: fs/gateway. */
#include "tests/unit/unit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "fs/gateway/access/authorization.h"
#include "fs/gateway/access/guesses.h"
#include "fs/gateway/access/sessions.h"
#include "fs/gateway/call/accept.h"
#include "fs/gateway/gateway.h"
#include "fs/gateway/repos/facts.h"
#include "fs/gateway/web/html.h"
#include "fs/gateway/web/loss_curve.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/stats/stats.h"
#include "fs/data/data.h"
#include "fs/view/view.h"
#include "tests/unit/fake_idx.h"

#define NOW 1800000000

static struct mfs_error err;
static const struct mfs_view_options options = {.vocab_size = 1000};

/* ---- texts ---- */

START_TEST(text_is_escaped_for_html)
{
	static const struct {
		const char *text, *html;
	} texts[] = {
		{"a<b>&\"'`", "a&#60;b&#62;&#38;&#34;&#39;&#96;"},
		{"\x01\n\x7f", "&#xFFFD;&#xFFFD;&#xFFFD;"},
		{"\xe2\x80\xae"
		 "cod.exe",
		 "&#xFFFD;cod.exe"},				  /* U+202E */
		{"\xe2\x81\xa6\xe2\x81\xa9", "&#xFFFD;&#xFFFD;"}, /* U+2066, U+2069 */
		{"\xd7\xa9\xd7\x9c", "\xd7\xa9\xd7\x9c"},	  /* Hebrew stays */
		{"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
		{"\xc0\xbc", "&#xFFFD;&#xFFFD;"},	      /* '<', too long */
		{"\xed\xa0\x80", "&#xFFFD;&#xFFFD;&#xFFFD;"}, /* half a surrogate */
		{"\xf5\x80\x80\x80", "&#xFFFD;&#xFFFD;&#xFFFD;&#xFFFD;"},
		{"a\xe2\x82", "a&#xFFFD;&#xFFFD;"}, /* cut */
		{"\xc2\x85", "&#xFFFD;"},	    /* C1 */
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(texts); i++) {
		struct mfs_buf b = {0};

		mfs_html_text(&b, texts[i].text);
		ck_assert_str_eq(b.data, texts[i].html);
		mfs_buf_release(&b);
	}
}
END_TEST

START_TEST(html_is_for_those_that_ask_for_it)
{
	static const char html[] = "text/html";

	ck_assert(mfs_accept_names("text/html,application/xhtml+xml,*/*;q=0.8", html));
	ck_assert(mfs_accept_names("application/json , TEXT/HTML;q=0.5", html));
	ck_assert(!mfs_accept_names(NULL, html));
	ck_assert(!mfs_accept_names("*/*", html));
	ck_assert(!mfs_accept_names("text/html;q=0", html));
	ck_assert(!mfs_accept_names("text/html; q=0.000, */*", html));
	ck_assert(mfs_accept_names("text/html;q=0.001", html));
	ck_assert(!mfs_accept_names("text/htmlx", html));
	ck_assert(!mfs_accept_names("", html));
	ck_assert(!mfs_accept_names(",;,", html));
}
END_TEST

/* ---- the header Authorization ---- */

START_TEST(tokens_come_as_bearer_or_password)
{
	static const struct {
		const char *header, *token;
	} headers[] = {
		{"Bearer hf_a", "hf_a"},
		{"bearer  hf_a", "hf_a"},
		{"Basic eDpoZl9hbGljZQ==", "hf_alice"}, /* x:hf_alice */
		{"basic  eDpoZl9hbGljZQ==", "hf_alice"},
		{"Basic OmE6Yg==", "a:b"}, /* ":a:b": no user, and a colon in the token */
		{"Basic eDo=", NULL},	   /* no password */
		{"Basic eA==", NULL},	   /* no colon */
		{"Basic eDphAGI=", NULL},  /* a NUL */
		{"Basic eDpoZl9hbGljZQ", NULL},
		{"Basic !!!!", NULL},
		{"Basic ====", NULL},
		{"Basic", NULL},
		{"Basic ", NULL},
		{"BasiceDpoZl9hbGljZQ==", NULL},
		{"Digest x", NULL},
		{"Bearer", NULL},
		{"", NULL},
		{NULL, NULL},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(headers); i++) {
		char *token;

		ck_assert_int_eq(mfs_authorization_token(headers[i].header, &token), 0);
		ck_assert_msg(!token == !headers[i].token &&
				      (!token || !strcmp(token, headers[i].token)),
			      "%s: %s", headers[i].header, token ? token : "none");
		mfs_authorization_forget(token);
	}
}
END_TEST

/* ---- sessions ---- */

static struct mfs_sessions *new_sessions(void)
{
	struct mfs_sessions *s;

	unit_ok(mfs_sessions_new(&s, &err), &err);
	return s;
}

START_TEST(a_session_is_of_its_secret_and_time)
{
	struct mfs_sessions *s = new_sessions(), *other = new_sessions();
	uint8_t sum[MFS_TOKEN_SUM], found[MFS_TOKEN_SUM];
	char text[MFS_SESSION_SIZE], second[MFS_SESSION_SIZE];

	mfs_token_sum("hf_alice", sum);
	ck_assert_int_eq(mfs_session_begin(s, NULL, NOW, sum, text), 0);
	ck_assert_uint_eq(strlen(text), MFS_SESSION_SIZE - 1);
	ck_assert(mfs_session_open(s, NULL, NOW + 1, text, found));
	ck_assert_mem_eq(sum, found, sizeof(sum));
	ck_assert(!mfs_session_open(other, NULL, NOW, text, found));
	ck_assert(!mfs_session_open(s, NULL, NOW + MFS_SESSION_SECONDS, text, found));
	ck_assert(!mfs_session_open(s, NULL, NOW - 1, text, found));
	ck_assert(!mfs_session_open(s, NULL, NOW, "", found));
	for (size_t i = 0; i < MFS_SESSION_SIZE - 1; i += 3) {
		const char c = text[i];

		text[i] = c == '0' ? '1' : '0';
		ck_assert(!mfs_session_open(s, NULL, NOW, text, found));
		text[i] = 'x';
		ck_assert(!mfs_session_open(s, NULL, NOW, text, found));
		text[i] = c;
	}
	ck_assert_int_eq(mfs_session_begin(s, NULL, NOW, sum, second), 0);
	ck_assert_str_ne(text, second);
	mfs_session_end(s, NULL, NOW, text);
	ck_assert(!mfs_session_open(s, NULL, NOW, text, found));
	ck_assert(mfs_session_open(s, NULL, NOW, second, found));
	mfs_sessions_free(s);
	mfs_sessions_free(other);
}
END_TEST

/* Many sign-outs bring no session back that has ended. */
START_TEST(many_ended)
{
	struct mfs_sessions *s = new_sessions();
	uint8_t sum[MFS_TOKEN_SUM], found[MFS_TOKEN_SUM];
	char first[MFS_SESSION_SIZE], text[MFS_SESSION_SIZE];

	mfs_token_sum("hf_alice", sum);
	for (int i = 0; i < MFS_SESSIONS_ENDED + 10; i++) {
		ck_assert_int_eq(mfs_session_begin(s, NULL, NOW + i, sum, text), 0);
		if (!i)
			memcpy(first, text, sizeof(text));
		mfs_session_end(s, NULL, NOW + i, text);
		ck_assert(!mfs_session_open(s, NULL, NOW + 9999, text, found));
		ck_assert(!mfs_session_open(s, NULL, NOW + 9999, first, found));
	}
	ck_assert_int_eq(mfs_session_begin(s, NULL, NOW + 9999, sum, text), 0);
	ck_assert(mfs_session_open(s, NULL, NOW + 9999, text, found));
	mfs_sessions_free(s);
}
END_TEST

/* Gateways that share a secret take each other's sessions, also while it is being replaced. */
START_TEST(shared_sessions)
{
	struct mfs_sessions *a = new_sessions(), *b = new_sessions();
	struct mfs_secret_list one = {.count = 1}, two = {.count = 2}, third = {.count = 1};
	uint8_t sum[MFS_TOKEN_SUM], found[MFS_TOKEN_SUM];
	char text[MFS_SESSION_SIZE];

	snprintf(one.list[0], sizeof(one.list[0]), "0123456789abcdef0123456789abcdef");
	snprintf(two.list[0], sizeof(two.list[0]), "another-secret-of-the-right-length-");
	snprintf(two.list[1], sizeof(two.list[1]), "%s", one.list[0]);
	memcpy(third.list[0], two.list[0], sizeof(third.list[0]));
	mfs_token_sum("hf_alice", sum);
	ck_assert_int_eq(mfs_session_begin(a, &one, NOW, sum, text), 0);
	ck_assert(mfs_session_open(b, &one, NOW, text, found));
	ck_assert(mfs_session_open(b, &two, NOW, text, found));
	ck_assert(!mfs_session_open(b, &third, NOW, text, found));
	ck_assert(!mfs_session_open(b, NULL, NOW, text, found));
	mfs_sessions_free(a);
	mfs_sessions_free(b);
}
END_TEST

static void check_cookie(const char *header, const char *value)
{
	const char *found = NULL;
	size_t len = 0;
	const bool has = mfs_cookie_find(header, "mcorefs", &found, &len);

	ck_assert_msg(has == !!value, "%s", header);
	if (value)
		ck_assert_msg(len == strlen(value) && !memcmp(found, value, len), "%s", header);
}

START_TEST(a_cookie_is_found_among_others)
{
	check_cookie("mcorefs=a", "a");
	check_cookie("x=1; mcorefs=a b ; y=2", "a b");
	check_cookie("mcorefs=", "");
	check_cookie("xmcorefs=a; mcorefs=b", "b");
	check_cookie("mcorefsx=a", NULL);
	check_cookie("mcorefs", NULL);
	check_cookie("x=mcorefs=a", NULL);
	check_cookie(";;  ;", NULL);
	check_cookie("", NULL);
	check_cookie(NULL, NULL);
}
END_TEST

/* ---- pages ---- */

struct headers {
	const char *name, *value;
};

#define BROWSER                                                                                    \
	{"Accept", "text/html,*/*;q=0.8"},                                                         \
	{                                                                                          \
		"Host", "gw:8080"                                                                  \
	}
#define FORM                                                                                       \
	{                                                                                          \
		"Host", "gw:8080"                                                                  \
	}

static const char *header(const struct mfs_request *q, const char *name)
{
	for (const struct headers *h = q->headers; h && h->name; h++)
		if (!strcasecmp(h->name, name))
			return h->value;
	return NULL;
}

static struct mfs_gateway gateway;

static void ask(const char *target, const struct headers *headers, const char *form,
		unsigned status, struct mfs_reply *a)
{
	struct mfs_request q = {.method = form ? MFS_METHOD_POST : MFS_METHOD_GET,
				.target = target,
				.header = header,
				.headers = headers};

	*a = (struct mfs_reply){0};
	unit_ok(mfs_url_parse(target, &q.url, &err), &err);
	if (form)
		mfs_buf_adds(&q.body, form);
	mfs_gateway_answer(&gateway, MFS_LISTENER_WEB, &q, a);
	ck_assert(!a->failed && !a->text.failed);
	ck_assert_msg(a->status == status, "%s: %u instead of %u: %s", target, a->status, status,
		      a->why);
	mfs_url_release(&q.url);
	mfs_buf_release(&q.body);
}

static const char *value_of(const struct mfs_reply *a, const char *name)
{
	for (unsigned i = 0; i < a->header_count; i++)
		if (!strcmp(a->headers[i].name, name))
			return a->headers[i].value;
	return "";
}

static bool says(const struct mfs_reply *a, const char *text)
{
	return a->text.data && strstr(a->text.data, text);
}

/* What a page must say; with '!' before it, what it must not. */
static void check_page(const char *target, const struct headers *headers, unsigned status,
		       const char *const *texts)
{
	struct mfs_reply a;

	ask(target, headers, NULL, status, &a);
	ck_assert_ptr_nonnull(
		strstr(value_of(&a, "Content-Security-Policy"), "default-src 'none'"));
	ck_assert_ptr_null(strstr(value_of(&a, "Content-Security-Policy"), "unsafe"));
	ck_assert_str_eq(value_of(&a, "X-Content-Type-Options"), "nosniff");
	for (; *texts; texts++)
		ck_assert_msg(says(&a, *texts + (**texts == '!')) == (**texts != '!'),
			      "%s: %s: %.3000s", target, *texts, a.text.data);
	mfs_reply_release(&a);
}

static void write_tokens(const char *text, char path[PATH_MAX])
{
	unit_write(unit_tmpdir(), "tokens", text, strlen(text));
	snprintf(path, PATH_MAX, "%s/tokens", unit_tmpdir());
	chmod(path, 0600);
}

static void begin_gateway(const char *tokens)
{
	char path[PATH_MAX];

	if (tokens)
		write_tokens(tokens, path);
	gateway = (struct mfs_gateway){.repos = mfs_repos_new(0), .access_log = -1};
	unit_ok(mfs_repos_add(gateway.repos, "lab/llama",
			      unit_fixture("resume/llama-torch-tp2-pp2"), &options, &err),
		&err);
	unit_ok(mfs_repos_add(gateway.repos, NULL, unit_fixture("data/tales_text_document"),
			      &options, &err),
		&err);
	unit_ok(mfs_tokens_open(tokens ? path : NULL, &gateway.tokens, &err), &err);
	gateway.sessions = new_sessions();
	gateway.stats = mfs_gateway_stats_new();
}

static void end_gateway(void)
{
	mfs_tokens_free(gateway.tokens);
	mfs_repos_free(gateway.repos);
	mfs_sessions_free(gateway.sessions);
	mfs_stats_free(gateway.stats);
}

#define TOKENS "alice hf_alice1 lab/*\nops hf_ops_123 metrics\n"

/* Signs in, and has the cookie in a header of its own. */
static const char *sign_in(const char *form, const struct headers *headers)
{
	static char cookie[512];
	struct mfs_reply a;

	ask("/sign-in", headers, form, 303, &a);
	snprintf(cookie, sizeof(cookie), "%.*s", (int)strcspn(value_of(&a, "Set-Cookie"), ";"),
		 value_of(&a, "Set-Cookie"));
	mfs_reply_release(&a);
	return cookie;
}

/* A cookie opens pages and files, and nothing of a program's; signing out ends it, and so does the
 * end of its token. */
START_TEST(a_cookie_opens_pages_and_files)
{
	static const struct headers form[] = {FORM, {0}};
	struct headers with[] = {BROWSER, {"Cookie", NULL}, {0}};
	struct mfs_reply a;
	char path[PATH_MAX];

	begin_gateway(TOKENS);
	ask("/sign-in", form, "token=hf_alice1&next=%2Flab%2Fllama", 303, &a);
	ck_assert_str_eq(value_of(&a, "Location"), "/lab/llama");
	ck_assert_str_eq(a.who, "alice");
	ck_assert_ptr_null(strstr(value_of(&a, "Set-Cookie"), "hf_alice1"));
	ck_assert_ptr_nonnull(strstr(value_of(&a, "Set-Cookie"), "; Path=/; "));
	ck_assert_ptr_nonnull(strstr(value_of(&a, "Set-Cookie"), "; HttpOnly; SameSite=Lax"));
	ck_assert_ptr_null(strstr(value_of(&a, "Set-Cookie"), "Secure"));
	ck_assert_ptr_null(strstr(value_of(&a, "Set-Cookie"), "Domain"));
	mfs_reply_release(&a);

	with[2].value = sign_in("token=hf_alice1", form);
	check_page("/lab/llama", with, 200, (const char *[]){"alice", "Sign out", "llama", NULL});
	check_page("/files/lab/llama/", with, 200, (const char *[]){"iter_0000020", NULL});
	ask("/files/lab/llama/main/config.json", with, NULL, 200, &a);
	ck_assert_str_eq(value_of(&a, "X-Content-Type-Options"), "nosniff");
	ck_assert_str_eq(value_of(&a, "Cache-Control"), "private");
	mfs_reply_release(&a);
	ask("/lab/llama/resolve/main/config.json", with, NULL, 401, &a);
	mfs_reply_release(&a);
	ask("/api/models/lab/llama", with, NULL, 401, &a);
	mfs_reply_release(&a);

	ask("/sign-out", with, "", 303, &a);
	ck_assert_ptr_nonnull(strstr(value_of(&a, "Set-Cookie"), "mcorefs=; Path=/; Max-Age=0"));
	mfs_reply_release(&a);
	ask("/lab/llama", with, NULL, 401, &a);
	mfs_reply_release(&a);

	with[2].value = sign_in("token=hf_alice1", form);
	ask("/lab/llama", with, NULL, 200, &a);
	mfs_reply_release(&a);
	usleep(1100000); /* the file of tokens is looked at once a second */
	write_tokens("bob hf_bob_1234 lab/*\n", path);
	ask("/lab/llama", with, NULL, 401, &a);
	mfs_reply_release(&a);
	end_gateway();
}
END_TEST

START_TEST(sign_in_refused)
{
	static const struct headers form[] = {FORM, {0}};
	static const struct headers evil[][4] = {
		{FORM, {"Origin", "http://evil.example"}, {0}},
		{FORM, {"Origin", "null"}, {0}},
		{FORM, {"Origin", "http://gw:8081"}, {0}},
		{FORM, {"Sec-Fetch-Site", "cross-site"}, {0}},
		{FORM, {"Sec-Fetch-Site", "same-site"}, {0}},
	};
	static const struct headers good[][4] = {
		{FORM, {"Origin", "http://gw:8080"}, {0}},
		{FORM, {"Origin", "https://gw:8080"}, {0}}, /* a proxy has TLS */
		{FORM, {"Sec-Fetch-Site", "same-origin"}, {0}},
	};
	struct mfs_reply a;

	begin_gateway(TOKENS);
	ask("/sign-in", form, "token=hf_alice2", 403, &a);
	ck_assert(says(&a, "This token is not known here"));
	ck_assert_ptr_null(strstr(a.text.data, "hf_alice2"));
	ck_assert_str_eq(value_of(&a, "Set-Cookie"), "");
	mfs_reply_release(&a);
	ask("/sign-in", form, "token=%zz", 400, &a);
	mfs_reply_release(&a);
	ask("/sign-in", form, "", 403, &a);
	mfs_reply_release(&a);
	ask("/sign-out", form, NULL, 405, &a);
	mfs_reply_release(&a);
	ask("/sign-in?token=hf_alice1", form, NULL, 200, &a);
	ck_assert_str_eq(value_of(&a, "Set-Cookie"), "");
	ck_assert_ptr_null(strstr(a.text.data, "hf_alice1"));
	mfs_reply_release(&a);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(evil); i++) {
		ask("/sign-in", evil[i], "token=hf_alice1", 403, &a);
		/* A page of another host may be this one's, by a proxy that hides it. */
		ck_assert_int_eq(strstr(a.why, "X-Forwarded-Host") &&
					 strstr(a.why, "trusted_proxies"),
				 i == 0 || i == 2);
		ck_assert_str_eq(value_of(&a, "Set-Cookie"), "");
		mfs_reply_release(&a);
		ask("/sign-out", evil[i], "", 403, &a);
		mfs_reply_release(&a);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(good); i++) {
		ask("/sign-in", good[i], "token=hf_alice1", 303, &a);
		mfs_reply_release(&a);
	}
	end_gateway();
}
END_TEST

/* guess CLIENT's way in: the status of what it is told. */
static unsigned guess(const char *client, const char *form, struct mfs_reply *a)
{
	static const struct headers headers[] = {FORM, {0}};
	struct mfs_request q = {.method = MFS_METHOD_POST,
				.target = "/sign-in",
				.header = header,
				.headers = headers};

	*a = (struct mfs_reply){0};
	snprintf(q.client, sizeof(q.client), "%s", client);
	unit_ok(mfs_url_parse(q.target, &q.url, &err), &err);
	mfs_buf_adds(&q.body, form);
	mfs_gateway_answer(&gateway, MFS_LISTENER_WEB, &q, a);
	mfs_url_release(&q.url);
	mfs_buf_release(&q.body);
	return a->status;
}

START_TEST(ten_wrong_guesses_are_the_last)
{
	struct mfs_reply a;

	begin_gateway(TOKENS);
	unit_ok(mfs_guesses_new(&gateway.guesses, &err), &err);
	for (int i = 0; i < MFS_GUESSES_WRONG; i++) {
		ck_assert_uint_eq(guess("192.0.2.1:4711", "token=hf_alice2", &a), 403);
		mfs_reply_release(&a);
	}
	ck_assert_uint_eq(mfs_gateway_sums(gateway.stats).guesses, MFS_GUESSES_WRONG);
	ck_assert_uint_eq(guess("192.0.2.1:4712", "token=hf_alice1", &a), 429);
	ck_assert_int_ge(atoi(value_of(&a, "Retry-After")), 1);
	ck_assert_int_le(atoi(value_of(&a, "Retry-After")), MFS_GUESSES_SECONDS);
	mfs_reply_release(&a);
	ck_assert_uint_eq(guess("192.0.2.2:4711", "token=hf_alice1", &a), 303);
	mfs_reply_release(&a);
	mfs_guesses_free(gateway.guesses);
	end_gateway();
}
END_TEST

/* Times, the prefix of IPv6, and a table that is full. */
START_TEST(guesses_end)
{
	const int64_t second = 1000000000, minute = MFS_GUESSES_SECONDS * second;
	struct mfs_guesses *g;
	char client[64];

	unit_ok(mfs_guesses_new(&g, &err), &err);
	for (int i = 0; i < MFS_GUESSES_WRONG; i++) {
		ck_assert_uint_eq(mfs_guesses_wait(g, "unix", 5), 0);
		mfs_guesses_wrong(g, "unix", 5);
		mfs_guesses_wrong(g, "[2001:db8::1]:80", 5 + i);
	}
	ck_assert_uint_eq(mfs_guesses_wait(g, "unix", 5), MFS_GUESSES_SECONDS);
	ck_assert_uint_eq(mfs_guesses_wait(g, "unix", 4 + minute), 1);
	ck_assert_uint_eq(mfs_guesses_wait(g, "unix", 5 + minute), 0);
	ck_assert_uint_ne(mfs_guesses_wait(g, "2001:db8::ffff:1", 20), 0);
	ck_assert_uint_eq(mfs_guesses_wait(g, "2001:db8:0:1::1", 20), 0);
	for (int i = 0; i < MFS_GUESSES_ADDRESSES; i++) {
		snprintf(client, sizeof(client), "10.0.%d.%d", i / 256, i % 256);
		mfs_guesses_wrong(g, client, 100);
	}
	ck_assert_uint_eq(mfs_guesses_wait(g, "unix", 100), 0);
	mfs_guesses_free(g);
}
END_TEST

/* Wherever a form says that it goes on, it is a path of this gateway. */
START_TEST(a_form_goes_on_to_a_path_of_this_gateway)
{
	static const struct headers form[] = {FORM, {0}};
	static const struct {
		const char *next, *location;
	} nexts[] = {
		{"%2Flab%2Fllama%2F", "/lab/llama/"},
		{"http%3A%2F%2Fevil.example%2F", "/"},
		{"%2F%2Fevil.example", "/"},
		{"%2F%5Cevil.example", "/%5Cevil.example"},
		{"%5C%5Cevil.example", "/"},
		{"%2F%09%2Fevil.example", "/"},
		{"%2Fa%0D%0ASet-Cookie%3A+x%3D1", "/"},
		{"%2F..%2F..%2Fx", "/"},
		{"javascript%3Aalert(1)", "/"},
		{"%2Flab%3Fx%3D1", "/lab"},
		{"", "/"},
	};
	struct mfs_reply a;

	begin_gateway(TOKENS);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(nexts); i++) {
		char text[256];

		snprintf(text, sizeof(text), "token=hf_alice1&next=%s", nexts[i].next);
		ask("/sign-in", form, text, 303, &a);
		ck_assert_str_eq(value_of(&a, "Location"), nexts[i].location);
		mfs_reply_release(&a);
	}
	check_page("/sign-in?next=%22%3E%3Cscript%3E", form, 200,
		   (const char *[]){"!<script", NULL});
	end_gateway();
}
END_TEST

/* By TLS the cookie has a name that browsers take from nobody else. */
START_TEST(tls_cookie)
{
	static const struct headers tls[] = {FORM, {"X-Forwarded-Proto", "https"}, {0}};
	struct mfs_proxies proxies = {0};
	struct mfs_reply a;

	begin_gateway(TOKENS);
	ask("/sign-in", tls, "token=hf_alice1", 303, &a); /* nobody is trusted */
	ck_assert(!strncmp(value_of(&a, "Set-Cookie"), "mcorefs=", 8));
	mfs_reply_release(&a);
	unit_ok(mfs_proxies_add(&proxies, "unix", &err), &err);
	gateway.proxies = &proxies;
	{
		struct mfs_request q = {.method = MFS_METHOD_POST,
					.target = "/sign-in",
					.client = "unix",
					.header = header,
					.headers = tls};

		a = (struct mfs_reply){0};
		unit_ok(mfs_url_parse(q.target, &q.url, &err), &err);
		mfs_buf_adds(&q.body, "token=hf_alice1");
		mfs_gateway_answer(&gateway, MFS_LISTENER_WEB, &q, &a);
		ck_assert(!strncmp(value_of(&a, "Set-Cookie"), "__Host-mcorefs=", 15));
		ck_assert_ptr_nonnull(strstr(value_of(&a, "Set-Cookie"), "; Secure"));
		mfs_reply_release(&a);
		mfs_url_release(&q.url);
		mfs_buf_release(&q.body);
	}
	mfs_proxies_release(&proxies);
	end_gateway();
}
END_TEST

/* A browser is asked for a token and told in a page; the Hub's clients get what they know. */
START_TEST(browsers_are_asked_and_clients_are_told)
{
	static const struct headers browser[] = {BROWSER, {0}};
	static const struct headers json[] = {{"Accept", "application/json"}, {0}};
	static const struct headers basic[] = {
		BROWSER, {"Authorization", "Basic YW55Ym9keTpoZl9hbGljZTE="}, {0}};
	struct mfs_reply a;

	begin_gateway(TOKENS);
	ask("/files/lab/llama/", NULL, NULL, 401, &a);
	ck_assert_ptr_nonnull(strstr(value_of(&a, "WWW-Authenticate"), "Basic realm="));
	ck_assert(!strncmp(a.type, "text/plain", 10));
	mfs_reply_release(&a);
	ask("/files/lab/llama/", json, NULL, 401, &a);
	ck_assert(says(&a, "{\"error\":\"lab/llama: a token is needed\"}"));
	mfs_reply_release(&a);
	ask("/files/lab/llama/", browser, NULL, 401, &a);
	ck_assert_ptr_nonnull(strstr(value_of(&a, "WWW-Authenticate"), "Basic realm="));
	ck_assert(says(&a, "name=token") && says(&a, "value=\"/files/lab/llama/\""));
	mfs_reply_release(&a);
	ask("/api/models/lab/llama", NULL, NULL, 401, &a);
	ck_assert_str_eq(value_of(&a, "WWW-Authenticate"), "");
	ck_assert_str_eq(value_of(&a, "X-Error-Code"), "RepoNotFound");
	ck_assert(!strncmp(a.type, "application/json", 16));
	mfs_reply_release(&a);
	ask("/no/such/route", browser, NULL, 404, &a);
	ck_assert(!strncmp(a.type, "text/html", 9) && says(&a, "no such route"));
	mfs_reply_release(&a);
	ask("/no/such/route", NULL, NULL, 404, &a);
	ck_assert(!strncmp(a.type, "application/json", 16));
	mfs_reply_release(&a);
	check_page("/files/lab/llama/main/%3Cscript%3E", basic, 404,
		   (const char *[]){"Not found", "!<script>", "&#60;script&#62;", NULL});
	check_page("/lab/llama", basic, 200, (const char *[]){"alice", "!Sign out", NULL});
	check_page("/", browser, 200, (const char *[]){"!lab/llama", "Sign in", "!metrics", NULL});
	ask("/ops/none", basic, NULL, 404, &a);
	mfs_reply_release(&a);
	end_gateway();
}
END_TEST

/* What a model is, its views and iterations, the loss; lines have the address that was asked. */
START_TEST(model_page)
{
	static const struct headers browser[] = {BROWSER, {0}};
	static const struct headers evil[] = {{"Host", "\"><script>"}, {0}};
	struct mfs_facts f;

	begin_gateway(NULL);
	ck_assert(!mfs_repos_facts(gateway.repos, MFS_REPO_MODEL, "lab/llama", &f));
	check_page("/", browser, 200, (const char *[]){"lab/llama", "replies 4xx", NULL});
	check_page("/lab/llama", browser, 200,
		   (const char *[]){"LlamaForCausalLM", "312,896", "bfloat16", "TP 2, PP 2",
				    "Optimizer<dd>yes", "lab/llama__gguf", "lab/llama__hf-fp8",
				    "lab/llama__megatron.torch.tp1-pp1", "iter_0000020",
				    "<polyline", "6.4378", "complete, the newest",
				    "HF_ENDPOINT=http://gw:8080 vllm serve lab/llama<", "!HF_TOKEN",
				    "!<script", NULL});
	ck_assert(mfs_repos_facts(gateway.repos, MFS_REPO_MODEL, "lab/llama", &f));
	for (unsigned i = 0; i < f.view_count; i++)
		if (f.views[i].kind->of == MFS_VIEW_OF_MODEL && !f.views[i].kind->spec)
			ck_assert_msg(f.views[i].is_measured && f.views[i].bytes > 100000, "%s",
				      f.views[i].kind->name);
	check_page("/", browser, 200, (const char *[]){"313 K", "with optimizer", NULL});
	check_page("/lab/llama", evil, 200, (const char *[]){"!<script", "http://HOST:PORT", NULL});
	check_page("/datasets/local/tales_text_document", browser, 200,
		   (const char *[]){"240", "load_dataset(", "__jsonl", "717 kB", NULL});
	end_gateway();
}
END_TEST

/* A dataset of three rows, whose tokens are markup. */
static void add_hostile(void)
{
	static const char tokenizer[] =
		"{\"version\": \"1.0\", \"added_tokens\": [{\"id\": 0, \"content\": "
		"\"<script>alert(1)</script>\", \"special\": true, \"single_word\": false, "
		"\"lstrip\": false, \"rstrip\": false, \"normalized\": false}], "
		"\"normalizer\": null, \"pre_tokenizer\": null, \"post_processor\": null, "
		"\"decoder\": {\"type\": \"Fuse\"}, \"model\": {\"type\": \"WordLevel\", "
		"\"unk_token\": \"<script>alert(1)</script>\", \"vocab\": {"
		"\"<script>alert(1)</script>\": 0, "
		"\"\\\"><img src=x onerror=alert(2)>\\n\\u202e\": 1}}}";
	static const int32_t lengths[] = {2, 0, 5000};
	static struct mfs_view_options hostile;
	static struct mfs_data_options data;
	static int32_t tokens[5002] = {0, 1};
	const struct fake_idx idx = {.sequences = 3, .code = 4, .lengths = lengths};
	static char dir[PATH_MAX], prefix[PATH_MAX];
	struct mfs_buf b = {0};

	snprintf(dir, sizeof(dir), "%s", unit_tmpdir());
	snprintf(prefix, sizeof(prefix), "%s/hostile", dir);
	fake_idx(&b, &idx);
	unit_write(dir, "hostile.idx", b.data, b.len);
	mfs_buf_release(&b);
	unit_write(dir, "hostile.bin", tokens, sizeof(tokens));
	unit_write(dir, "tokenizer.json", tokenizer, sizeof(tokenizer) - 1);
	data.tokenizer = dir;
	hostile.tokenizer = dir;
	hostile.data = &data;
	unit_ok(mfs_repos_add(gateway.repos, NULL, prefix, &hostile, &err), &err);
}

/* The dataset again, with a tokenizer's directory that has none. */
static void add_without_tokenizer(void)
{
	static struct mfs_view_options lost;
	static struct mfs_data_options data;
	static char dir[PATH_MAX], prefix[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s/no_tokenizer", unit_tmpdir());
	snprintf(prefix, sizeof(prefix), "%s/hostile", unit_tmpdir());
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	data.tokenizer = dir;
	lost.tokenizer = dir;
	lost.data = &data;
	unit_ok(mfs_repos_add(gateway.repos, "local/lost", prefix, &lost, &err), &err);
}

/* A row of a dataset: as text, of which nothing is markup, or as ids; one after the other. */
START_TEST(dataset_page_shows_a_row)
{
	static const struct headers browser[] = {BROWSER, {0}};

	begin_gateway(NULL);
	add_hostile();
	add_without_tokenizer();
	check_page("/datasets/local/hostile", browser, 200,
		   (const char *[]){
			   "!<script", "!<img", "&#60;script&#62;alert(1)&#60;/script&#62;",
			   "&#34;&#62;&#60;img src=x onerror=alert(2)&#62;\n&#xFFFD;", "Row 0 of 3",
			   "2 tokens", "<a href=\"?row=1#row\">Next</a>", "!>Previous</a>", NULL});
	check_page("/datasets/local/hostile?row=99%22%3E%3Cscript%3E", browser, 200,
		   (const char *[]){"!<script", "Row 2 of 3", "5,000 tokens", "the first 1,024",
				    "<a href=\"?row=1#row\">Previous</a>", "!>Next</a>", NULL});
	check_page("/datasets/local/hostile?row=1", browser, 200,
		   (const char *[]){"Row 1 of 3", "0 tokens", "<pre dir=auto>\n</pre>", NULL});
	check_page("/datasets/local/tales_text_document?row=239", browser, 200,
		   (const char *[]){"Row 239 of 240", "-o tokenizer=DIR", NULL});
	check_page("/datasets/local/lost", browser, 200,
		   (const char *[]){"they are shown as ids: ", "has no file of a tokenizer",
				    "!-o tokenizer=DIR", NULL});
	check_page("/datasets/local/tales_text_document", browser, 200,
		   (const char *[]){"<pre dir=auto>\n", "Row 0 of 240", NULL});
	end_gateway();
}
END_TEST

START_TEST(a_search_finds_names)
{
	static const struct headers browser[] = {BROWSER, {0}};

	begin_gateway(NULL);
	check_page("/?q=LLA", browser, 200, (const char *[]){"lab/llama", "!tales", NULL});
	check_page("/?q=%22%3E%3Cb%3E", browser, 200,
		   (const char *[]){"!lab/llama", "!<b>", "none of that name", NULL});
	check_page("/?q=llama&from=1", browser, 200, (const char *[]){"!/lab/llama\"", NULL});
	check_page("/?from=-1&q=llama", browser, 200, (const char *[]){"lab/llama", NULL});
	end_gateway();
}
END_TEST

/* A save that is not whole is named with its reason, without the directory. */
START_TEST(an_incomplete_save_is_shown_with_its_reason)
{
	static const struct headers browser[] = {BROWSER, {0}};
	char path[PATH_MAX], command[3 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/run", unit_tmpdir());
	snprintf(
		command, sizeof(command),
		"cp -a '%s' '%s' && chmod -R u+w '%s' && cd '%s' && "
		"cp -a iter_0000020 iter_0000030 && "
		"rm -r iter_0000030/mp_rank_01_001 && printf 30 >latest_checkpointed_iteration.txt",
		unit_fixture("resume/llama-torch-tp2-pp2"), path, path, path);
	ck_assert_int_eq(system(command), 0);
	begin_gateway(NULL);
	unit_ok(mfs_repos_add(gateway.repos, "lab/broken", path, &options, &err), &err);
	check_page("/lab/broken", browser, 200,
		   (const char *[]){"iter_0000030", "iter_0000020", "incomplete", NULL});
	check_page("/", browser, 200, (const char *[]){"incomplete", NULL});
	end_gateway();
}
END_TEST

/* What is no model of a family's has a page all the same, and the views that need none. */
START_TEST(no_family)
{
	static const struct mfs_view_options other = {.arch = "gpt2"};
	static const struct headers browser[] = {BROWSER, {0}};
	struct mfs_reply a;

	begin_gateway(NULL);
	unit_ok(mfs_repos_add(gateway.repos, "lab/odd", unit_fixture("weights/llama-torch-tp2-pp2"),
			      &other, &err),
		&err);
	check_page("/lab/odd", browser, 200,
		   (const char *[]){"gpt2", "lab/odd__raw", "iter_0000040", "!vllm serve lab/odd<",
				    NULL});
	ask("/lab/none", browser, NULL, 404, &a);
	mfs_reply_release(&a);
	end_gateway();
}
END_TEST

START_TEST(curve_of_odd_numbers)
{
	const double huge = 1.7e308, values[] = {0.0 / 0.0, huge, -huge, 1.0 / 0.0};
	struct mfs_curve c = {0};
	struct mfs_buf b = {0};

	mfs_page_add_curve(&b, &c);
	ck_assert_uint_eq(b.len, 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(mfs_curve_add(&c, i, values[i]), 0);
	mfs_page_add_curve(&b, &c);
	ck_assert_ptr_nonnull(strstr(b.data, "<polyline points=\"48.0,10.0 600.0,140.0 \"/>"));
	mfs_curve_release(&c);
	mfs_buf_release(&b);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gateway_pages");
	TCase *c = unit_case(s, "gateway_pages", text_is_escaped_for_html);

	tcase_add_test(c, html_is_for_those_that_ask_for_it);
	tcase_add_test(c, tokens_come_as_bearer_or_password);
	tcase_add_test(c, a_session_is_of_its_secret_and_time);
	tcase_add_test(c, many_ended);
	tcase_add_test(c, shared_sessions);
	tcase_add_test(c, a_cookie_is_found_among_others);
	tcase_add_test(c, a_cookie_opens_pages_and_files);
	tcase_add_test(c, sign_in_refused);
	tcase_add_test(c, ten_wrong_guesses_are_the_last);
	tcase_add_test(c, guesses_end);
	tcase_add_test(c, a_form_goes_on_to_a_path_of_this_gateway);
	tcase_add_test(c, tls_cookie);
	tcase_add_test(c, browsers_are_asked_and_clients_are_told);
	tcase_add_test(c, model_page);
	tcase_add_test(c, dataset_page_shows_a_row);
	tcase_add_test(c, a_search_finds_names);
	tcase_add_test(c, an_incomplete_save_is_shown_with_its_reason);
	tcase_add_test(c, no_family);
	tcase_add_test(c, curve_of_odd_numbers);
	return s;
}
