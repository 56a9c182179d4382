/* Signed addresses: formats/net/signed_url.c, fs/gateway/access/secrets.c,
 * fs/gateway/hub/hub_signed.c, and the access log, which must not have them. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/net/signed_url.h"
#include "fs/gateway/gateway_config.h"
#include "fs/gateway/gateway.h"
#include "fs/view/view.h"

#define OLD    "0123456789abcdef0123456789abcdef"
#define NEW    "fedcba9876543210fedcba9876543210"
#define COMMIT "0123456789012345678901234567890123456789"

static struct mfs_error err;
static const struct mfs_view_options options = {.vocab_size = 1000};

/* ---- the signature ---- */

/* printf 'mcorefs-url-1\n1700000000\nlab/a\nCOMMIT\nx/y' | openssl dgst -sha256 -hmac SECRET */
START_TEST(a_signature_is_of_all_parts_of_an_address)
{
	static const char expected[] =
		"b015619373551cd1a31a5c82881baef22a56344071efe3922ac15ffe083ea293";
	static const struct mfs_signed_url url = {"lab/a", COMMIT, "x/y", 1700000000};
	static const struct mfs_signed_url others[] = {
		{"lab/b", COMMIT, "x/y", 1700000000},
		{"datasets/lab/a", COMMIT, "x/y", 1700000000},
		{"lab/a", "1123456789012345678901234567890123456789", "x/y", 1700000000},
		{"lab/a", COMMIT, "x/z", 1700000000},
		{"lab/a", COMMIT, "x", 1700000000},
		{"lab/a", COMMIT, "x/y", 1700000001},
	};
	char got[MFS_SIGNED_URL_SIGNATURE];

	unit_ok(mfs_signed_url_sign(OLD, &url, got, &err), &err);
	ck_assert_str_eq(got, expected);
	unit_ok(mfs_signed_url_verify(OLD, &url, expected, &err), &err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(others); i++)
		unit_fails(mfs_signed_url_verify(OLD, &others[i], expected, &err), &err,
			   -EKEYREJECTED, "signature");
	unit_fails(mfs_signed_url_verify(NEW, &url, expected, &err), &err, -EKEYREJECTED, NULL);
	unit_fails(mfs_signed_url_verify(OLD, &url, "", &err), &err, -EKEYREJECTED, NULL);
	got[63] = '\0';
	unit_fails(mfs_signed_url_verify(OLD, &url, got, &err), &err, -EKEYREJECTED, NULL);
}
END_TEST

START_TEST(times_are_plain_numbers)
{
	static const char *const bad[] = {
		"", " 1", "+1", "-1", "01", "1 ", "1.0", "0x1", "9223372036854775808"};
	int64_t n;

	ck_assert(mfs_signed_url_time("1700000000", &n));
	ck_assert_int_eq(n, 1700000000);
	ck_assert(mfs_signed_url_time("0", &n));
	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		ck_assert_msg(!mfs_signed_url_time(bad[i], &n), "'%s'", bad[i]);
}
END_TEST

/* ---- the secrets ---- */

/* A file that only its owner may read. */
static void write_private(char path[PATH_MAX], const char *name, const char *text)
{
	static char dir[PATH_MAX];

	if (!*dir)
		snprintf(dir, sizeof(dir), "%s", unit_tmpdir());
	snprintf(path, PATH_MAX, "%.4000s/%s", dir, name);
	unlink(path);
	unit_write(dir, name, text, strlen(text));
	ck_assert_int_eq(chmod(path, 0600), 0);
}

static const char *write_secrets(const char *text)
{
	static char path[PATH_MAX];

	write_private(path, "secret", text);
	return path;
}

START_TEST(secrets_are_long_lines_of_a_private_file)
{
	static const char *const bad[] = {"",	       "\n",	 "short\n",	     OLD "\nshort",
					  OLD " " OLD, OLD "\t", OLD "\n" OLD "\xff"};
	struct mfs_secret_list list;
	struct mfs_secrets *s;
	char many[400], path[PATH_MAX];

	unit_ok(mfs_secrets_parse("s", OLD, strlen(OLD), &list, &err), &err);
	ck_assert_uint_eq(list.count, 1);
	unit_ok(mfs_secrets_parse("s", NEW "\n\n" OLD "\n", 66, &list, &err), &err);
	ck_assert_uint_eq(list.count, 2);
	ck_assert_str_eq(list.list[0], NEW);
	ck_assert_str_eq(list.list[1], OLD);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++) {
		unit_fails(mfs_secrets_parse("s", bad[i], strlen(bad[i]), &list, &err), &err,
			   -EINVAL, "secret");
		ck_assert_ptr_null(strstr(err.msg, OLD));
	}
	for (int i = 0; i < 9; i++)
		memcpy(many + (size_t)33 * i, OLD "\n", 33);
	unit_ok(mfs_secrets_parse("s", many, 8 * 33, &list, &err), &err);
	unit_fails(mfs_secrets_parse("s", many, 9 * 33, &list, &err), &err, -EINVAL, "s:9");
	unit_ok(mfs_secrets_open(write_secrets(OLD), &s, &err), &err);
	mfs_secrets_free(s);
	write_private(path, "secret", OLD);
	ck_assert_int_eq(chmod(path, 0644), 0);
	unit_fails(mfs_secrets_open(path, &s, &err), &err, -EACCES, "mode is 644");
	unit_fails(mfs_secrets_open("/nonexistent/secret", &s, &err), &err, -ENOENT, NULL);
}
END_TEST

/* ---- the gateway ---- */

static const char *no_header(const struct mfs_request *q, const char *name)
{
	(void)q, (void)name;
	return NULL;
}

/* Answers, and copies the header Location. Returns the status. */
static unsigned ask(struct mfs_gateway *g, enum mfs_method method, const char *target,
		    char *location)
{
	struct mfs_request q = {.method = method,
				.method_name = "GET",
				.target = target,
				.header = no_header,
				.client = "unit"};
	struct mfs_reply a = {0};

	unit_ok(mfs_url_parse(target, &q.url, &err), &err);
	mfs_gateway_answer(g, MFS_LISTENER_WEB, &q, &a);
	ck_assert(!a.failed);
	for (unsigned i = 0; location && i < a.header_count; i++)
		if (!strcmp(a.headers[i].name, "Location"))
			strcpy(location, a.headers[i].value);
	if (a.status == 403)
		ck_assert_ptr_nonnull(strstr(a.why, "address"));
	mfs_gateway_done(g, &q, &a, 0, true);
	mfs_reply_release(&a);
	mfs_url_release(&q.url);
	return a.status;
}

static void open_gateway(struct mfs_gateway *g, const char *tokens, const char *node)
{
	*g = (struct mfs_gateway){.repos = mfs_repos_new(0), .access_log = -1};
	unit_ok(mfs_repos_add(g->repos, "lab/a", unit_fixture("weights/llama-torch-tp2-pp2"),
			      &options, &err),
		&err);
	unit_ok(mfs_repos_add(g->repos, NULL, unit_fixture("data/tales_text_document"), &options,
			      &err),
		&err);
	unit_ok(mfs_tokens_open(tokens, &g->tokens, &err), &err);
	g->redirects.node = node;
	unit_ok(mfs_secrets_open(write_secrets(OLD), &g->redirects.secrets, &err), &err);
}

static void close_gateway(struct mfs_gateway *g)
{
	mfs_secrets_free(g->redirects.secrets);
	mfs_tokens_free(g->tokens);
	mfs_repos_free(g->repos);
}

#define NODE "https://node:8443/behind"

/* What a gateway signs, a node with the same secret sends to anybody, and nothing else. */
START_TEST(a_node_sends_what_a_gateway_signed)
{
	static const char file[] = "/lab/a/resolve/main/config.json";
	static const char data[] = "/datasets/local/tales_text_document/resolve/main/"
				   "data-00000-of-00001.parquet";
	struct mfs_gateway gateway, node;
	char path[PATH_MAX], to[1024], at[1024], *query;

	write_private(path, "tokens", "all - other/*\n");
	open_gateway(&gateway, NULL, NODE "/");
	open_gateway(&node, path, NULL);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, file, NULL), 401);
	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_HEAD, file, to), 302);
	ck_assert_msg(!strncmp(to, NODE "/lab/a/resolve/", strlen(NODE "/lab/a/resolve/")), "%s",
		      to);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, to + strlen(NODE), NULL), 200);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_HEAD, to + strlen(NODE), NULL), 200);
	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_GET, to + strlen(NODE), NULL), 200);

	/* Another file, other places, other times. */
	query = strchr(to, '?');
	snprintf(at, sizeof(at), "/lab/a/resolve/main/config.json%s", query);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 403);
	snprintf(at, sizeof(at), "%.*sgeneration_config.json%s",
		 (int)(query - strlen("config.json") - to - strlen(NODE)), to + strlen(NODE),
		 query);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 403);
	snprintf(at, sizeof(at), "%s0", to + strlen(NODE));
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 403);
	snprintf(at, sizeof(at), "%.*s?signature=%s", (int)(query - to - strlen(NODE)),
		 to + strlen(NODE), strstr(to, "signature=") + 10);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 403);
	snprintf(at, sizeof(at), "%s", to + strlen(NODE));
	++*strstr(at, "&signature"); /* no such name: nothing is signed */
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 401);
	snprintf(at, sizeof(at), "%s", to + strlen(NODE));
	strstr(at, "expires=")[8]++;
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 403);

	/* It is the file's right and not the repository's. */
	snprintf(at, sizeof(at), "/api/models/lab/a%s", query);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 401);
	snprintf(at, sizeof(at), "/files/lab/a/main/config.json%s", query);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, at, NULL), 401);

	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_GET, data, to), 302);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, to + strlen(NODE), NULL), 200);
	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_GET, "/lab/a/resolve/main/nope", NULL), 404);
	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_GET, "/files/lab/a/main/config.json", NULL),
			  200);
	close_gateway(&gateway);
	close_gateway(&node);
}
END_TEST

/* Secrets are replaced in two steps, while addresses that were signed before still hold; and an
 * address ends. */
START_TEST(an_older_secret_holds_until_it_goes)
{
	static const char file[] = "/lab/a/resolve/main/config.json";
	struct mfs_gateway gateway, node;
	char before[1024], after[1024];

	open_gateway(&gateway, NULL, NODE);
	open_gateway(&node, NULL, NULL);
	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_GET, file, before), 302);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, before + strlen(NODE), NULL), 200);
	write_secrets(NEW "\n" OLD "\n");
	sleep(1); /* between two looks */
	gateway.redirects.seconds = 1;
	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_GET, file, after), 302);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, before + strlen(NODE), NULL), 200);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, after + strlen(NODE), NULL), 200);
	write_secrets("wrong\n");
	sleep(1);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, before + strlen(NODE), NULL), 200);
	write_secrets(NEW "\n");
	sleep(2);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, before + strlen(NODE), NULL), 403);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, after + strlen(NODE), NULL), 403);
	ck_assert_uint_eq(ask(&gateway, MFS_METHOD_GET, file, after), 302);
	ck_assert_uint_eq(ask(&node, MFS_METHOD_GET, after + strlen(NODE), NULL), 200);
	close_gateway(&gateway);
	close_gateway(&node);
}
END_TEST

/* Nothing that gives a right is in the log, however its name is spelt. */
START_TEST(signatures_are_not_in_the_log)
{
	static const struct {
		const char *target, *logged;
	} cases[] = {
		{"/lab/a/x?expires=1&signature=secret", "\"/lab/a/x?expires=1&signature=*\""},
		{"/x?%73ignature=secret&a=b", "\"/x?%73ignature=*&a=b\""},
		{"/x?SIGNATURE=secret&signature=secret", "\"/x?SIGNATURE=*&signature=*\""},
		{"/x?X-Amz-Date=1&X-Amz-Signature=secret", "\"/x?X-Amz-Date=1&X-Amz-Signature=*\""},
		{"/x?a=signature", "\"/x?a=signature\""},
		{"/x?signature&b=%22", "\"/x?signature&b=%22\""},
		{"/x?&&=&a", "\"/x?&&=&a\""},
	};
	struct mfs_gateway g;
	char path[PATH_MAX];
	uint8_t *text;
	size_t len;

	snprintf(path, sizeof(path), "%s/access", unit_tmpdir());
	open_gateway(&g, NULL, NULL);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		g.access_log = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		ask(&g, MFS_METHOD_GET, cases[i].target, NULL);
		close(g.access_log);
		text = unit_slurp(path, &len);
		ck_assert_msg(memmem(text, len, cases[i].logged, strlen(cases[i].logged)),
			      "no %s in %.*s", cases[i].logged, (int)len, (char *)text);
		ck_assert_ptr_null(memmem(text, len, "secret", 6));
		free(text);
	}
	close_gateway(&g);
}
END_TEST

START_TEST(a_data_node_is_a_plain_address)
{
	static const char *const bad[] = {"node:8443",	     "ftp://node",  "https://",
					  "https:///x",	     "https://a b", "https://a?b",
					  "https://u@node/", "https://a#b", "http://:80",
					  "https://a\"b",    "https://a\nb"};
	struct mfs_serve_config c;

	mfs_serve_config_init(&c);
	unit_fails(mfs_serve_config_check(&c, &err), &err, -EINVAL, "SOURCE");
	unit_ok(mfs_serve_config_add(&c, "lab/a", "/x", NULL, &err), &err);
	unit_ok(mfs_serve_config_check(&c, &err), &err);
	c.data_node = "https://node:8443";
	unit_fails(mfs_serve_config_check(&c, &err), &err, -EINVAL, "needs url_secret");
	c.url_secret = "/secret";
	unit_ok(mfs_serve_config_check(&c, &err), &err);
	c.data_node = "http://[::1]:8080/behind/";
	unit_ok(mfs_serve_config_check(&c, &err), &err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++) {
		c.data_node = bad[i];
		unit_fails(mfs_serve_config_check(&c, &err), &err, -EINVAL, "data_node");
	}
	mfs_serve_config_release(&c);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gateway_signed");
	TCase *c = unit_case(s, "signed", a_signature_is_of_all_parts_of_an_address);

	tcase_add_test(c, times_are_plain_numbers);
	tcase_add_test(c, secrets_are_long_lines_of_a_private_file);
	tcase_add_test(c, a_node_sends_what_a_gateway_signed);
	tcase_add_test(c, an_older_secret_holds_until_it_goes);
	tcase_add_test(c, signatures_are_not_in_the_log);
	tcase_add_test(c, a_data_node_is_a_plain_address);
	return s;
}
