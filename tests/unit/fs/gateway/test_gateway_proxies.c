/* Who is believed when he says who his client is: fs/gateway/access/proxies.h. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "fs/gateway/gateway_config.h"
#include "fs/gateway/gateway.h"
#include "fs/gateway/web/gateway_metrics.h"
#include "fs/stats/stats.h"

static struct mfs_error err;

static struct mfs_proxies some(void)
{
	static const char *const texts[] = {"10.0.0.0/8", "192.0.2.1", "fd00::/8", "172.16.0.0/12"};
	struct mfs_proxies p = {0};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(texts); i++)
		unit_ok(mfs_proxies_add(&p, texts[i], &err), &err);
	return p;
}

START_TEST(only_named_proxies_are_believed)
{
	static const char *const yes[] = {"10.255.0.1:99", "192.0.2.1:1", "[fd12::1]:80",
					  "[::ffff:10.0.0.1]:80", "172.31.255.255:1"};
	static const char *const no[] = {"11.0.0.1:99",
					 "192.0.2.2:1",
					 "[fe00::1]:80",
					 "unix",
					 "172.32.0.0:1",
					 "[::1]:80",
					 "",
					 "x"};
	struct mfs_proxies p = some();

	for (size_t i = 0; i < MFS_ARRAY_SIZE(yes); i++)
		ck_assert_msg(mfs_proxies_trust(&p, yes[i]), "%s", yes[i]);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(no); i++)
		ck_assert_msg(!mfs_proxies_trust(&p, no[i]), "%s", no[i]);
	ck_assert(!mfs_proxies_trust(NULL, "10.0.0.1:1"));
	unit_ok(mfs_proxies_add(&p, "unix", &err), &err);
	ck_assert(mfs_proxies_trust(&p, "unix"));
	mfs_proxies_release(&p);
}
END_TEST

START_TEST(bad_proxies)
{
	static const char *const bad[] = {"",
					  "localhost",
					  "10.0.0.1/8",
					  "10.0.0.0/33",
					  "10.0.0.0/",
					  "10.0.0.0/-1",
					  "fd00::/129",
					  "fd00::1/64",
					  "10.0.0.0/ 8",
					  "10.0.0/8",
					  "[fd00::]:80",
					  "*"};
	struct mfs_proxies p = {0};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(mfs_proxies_add(&p, bad[i], &err), &err, -EINVAL, bad[i]);
	ck_assert_uint_eq(p.count, 0);
}
END_TEST

/* The last address that is no proxy's: what stands before it anybody may have written. */
START_TEST(the_client_is_the_last_address_that_is_no_proxy)
{
	static const struct {
		const char *peer, *forwarded, *client;
	} cases[] = {
		{"10.0.0.1:5", "203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:5", "6.6.6.6, 203.0.113.9", "203.0.113.9"},
		{"10.0.0.1:5", "6.6.6.6,203.0.113.9 , 192.0.2.1", "203.0.113.9"},
		{"10.0.0.1:5", "10.0.0.3, 10.0.0.2", "10.0.0.3"},
		{"10.0.0.1:5", "203.0.113.9:4711", "203.0.113.9"},
		{"10.0.0.1:5", "[2001:db8::1]:4711", "2001:db8::1"},
		{"10.0.0.1:5", "2001:db8::1", "2001:db8::1"},
		{"10.0.0.1:5", "203.0.113.9, unknown", ""},
		{"10.0.0.1:5", "203.0.113.9, unknown, 10.0.0.2", "10.0.0.2"},
		{"10.0.0.1:5", "a\"b", ""},
		{"10.0.0.1:5", "", ""},
		{"10.0.0.1:5", ",", ""},
		{"10.0.0.1:5", NULL, ""},
		{"11.0.0.1:5", "203.0.113.9", ""},
		{"unix", "203.0.113.9", ""},
	};
	struct mfs_proxies p = some();
	char client[48];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		mfs_proxies_client(&p, cases[i].peer, cases[i].forwarded, client, sizeof(client));
		ck_assert_msg(!strcmp(client, cases[i].client), "%s: '%s' instead of '%s'",
			      cases[i].forwarded, client, cases[i].client);
	}
	mfs_proxies_client(NULL, "10.0.0.1:5", "203.0.113.9", client, sizeof(client));
	ck_assert_str_eq(client, "");
	mfs_proxies_release(&p);
}
END_TEST

START_TEST(proxies_are_addresses_or_networks)
{
	static const char list[] = "trusted_proxies: [10.0.0.0/8, unix]\n",
			  one[] = "trusted_proxies: 192.0.2.1\n",
			  bad[] = "\ntrusted_proxies:\n  - 10.0.0.0/8\n  - proxy7\n";
	struct mfs_serve_config c;

	mfs_serve_config_init(&c);
	unit_ok(mfs_serve_config_parse(&c, "c", list, strlen(list), &err), &err);
	ck_assert(mfs_proxies_trust(&c.proxies, "10.0.0.1:1"));
	ck_assert(mfs_proxies_trust(&c.proxies, "unix"));
	unit_ok(mfs_serve_config_parse(&c, "c", one, strlen(one), &err), &err);
	ck_assert(mfs_proxies_trust(&c.proxies, "192.0.2.1:1"));
	unit_fails(mfs_serve_config_parse(&c, "c", bad, strlen(bad), &err), &err, -EINVAL,
		   "c:4: 'proxy7'");
	mfs_serve_config_release(&c);
}
END_TEST

static const char *header(const struct mfs_request *q, const char *name)
{
	(void)q;
	if (!strcmp(name, "X-Forwarded-Proto"))
		return "https";
	if (!strcmp(name, "X-Forwarded-Host"))
		return "hub.example";
	return strcmp(name, "Host") ? NULL : "gw:8080";
}

/* What is logged of a request, and where its next part is, by who has sent it. */
static void try(const char *peer, const char *client, const char *base)
{
	static const struct mfs_view_options options = {.vocab_size = 1000};
	char path[PATH_MAX], line[1024], expected[128];
	struct mfs_proxies p = some();
	struct mfs_gateway g = {
		.repos = mfs_repos_new(0), .stats = mfs_gateway_stats_new(), .proxies = &p};
	struct mfs_request q = {.method = MFS_METHOD_GET,
				.method_name = "GET",
				.target = "/api/models?limit=1",
				.header = header,
				.forwarded = "203.0.113.9"};
	struct mfs_reply a = {0};
	ssize_t n;

	snprintf(path, sizeof(path), "%s/access", unit_tmpdir());
	g.access_log = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(g.access_log, 0);
	snprintf(q.client, sizeof(q.client), "%s", peer);
	unit_ok(mfs_tokens_open(NULL, &g.tokens, &err), &err);
	for (int i = 0; i < 2; i++)
		unit_ok(mfs_repos_add(g.repos, i ? "lab/a" : "lab/b",
				      unit_fixture("weights/llama-torch-tp2-pp2"), &options, &err),
			&err);
	unit_ok(mfs_url_parse(q.target, &q.url, &err), &err);
	mfs_gateway_answer(&g, MFS_LISTENER_WEB, &q, &a);
	mfs_gateway_done(&g, &q, &a, 0, true);
	n = pread(g.access_log, line, sizeof(line) - 1, 0);
	ck_assert_int_gt(n, 0);
	line[n] = '\0';
	snprintf(expected, sizeof(expected), "Z %s - \"GET\" ", client);
	ck_assert_msg(strstr(line, expected), "%s", line);
	snprintf(expected, sizeof(expected), "<%s/api/models?cursor=1&limit=1>; rel=\"next\"",
		 base);
	ck_assert_uint_eq(a.header_count, 1);
	ck_assert_str_eq(a.headers[0].value, expected);
	mfs_reply_release(&a);
	mfs_url_release(&q.url);
	close(g.access_log);
	mfs_tokens_free(g.tokens);
	mfs_repos_free(g.repos);
	mfs_stats_free(g.stats);
	mfs_proxies_release(&p);
}

START_TEST(requests_through_a_proxy_are_of_their_client)
{
	try("10.0.0.1:5", "203.0.113.9", "https://hub.example");
	try("11.0.0.1:5", "11.0.0.1:5", "http://gw:8080");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gateway_proxies");
	TCase *c = unit_case(s, "proxies", only_named_proxies_are_believed);

	tcase_add_test(c, bad_proxies);
	tcase_add_test(c, the_client_is_the_last_address_that_is_no_proxy);
	tcase_add_test(c, proxies_are_addresses_or_networks);
	tcase_add_test(c, requests_through_a_proxy_are_of_their_client);
	return s;
}
