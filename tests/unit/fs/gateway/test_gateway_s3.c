/* S3 of the gateway, without a socket: fs/gateway/s3/s3.c. */
#include "tests/unit/unit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

#include "formats/base/array.h"
#include "formats/net/sigv4.h"
#include "fs/gateway/gateway.h"
#include "fs/gateway/s3/s3_i.h"
#include "fs/view/view.h"

static struct mfs_error err;
static const struct mfs_view_options options = {.vocab_size = 1000};
static struct mfs_gateway gateway;
static struct mfs_reply reply;

struct headers {
	const char *name, *value;
};

static const char *header(const struct mfs_request *q, const char *name)
{
	for (const struct headers *h = q->headers; h && h->name; h++)
		if (!strcasecmp(h->name, name))
			return h->value;
	return NULL;
}

/* Asks; the text of the reply. */
static const char *ask(const char *method, const char *target, const struct headers *headers,
		       unsigned status)
{
	struct mfs_request q = {.method_name = method,
				.target = target,
				.header = header,
				.headers = headers,
				.method = !strcmp(method, "GET")    ? MFS_METHOD_GET
					  : !strcmp(method, "HEAD") ? MFS_METHOD_HEAD
								    : MFS_METHOD_OTHER};

	mfs_reply_release(&reply);
	reply = (struct mfs_reply){0};
	unit_ok(mfs_url_parse(target, &q.url, &err), &err);
	mfs_gateway_answer(&gateway, MFS_LISTENER_S3, &q, &reply);
	mfs_url_release(&q.url);
	ck_assert(!reply.failed);
	ck_assert_msg(reply.status == status, "%s %s: %u instead of %u: %s", method, target,
		      reply.status, status, reply.text.len ? reply.text.data : "");
	return reply.text.len ? reply.text.data : "";
}

static void has(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "no '%s' in %s", part, text);
}

static void has_not(const char *text, const char *part)
{
	ck_assert_msg(!strstr(text, part), "'%s' in %s", part, text);
}

static void begin(const char *tokens)
{
	const char *llama = unit_fixture("weights/llama-torch-tp2-pp2");

	gateway = (struct mfs_gateway){.repos = mfs_repos_new(0), .access_log = -1};
	unit_ok(mfs_repos_add(gateway.repos, "lab/a", llama, &options, &err), &err);
	unit_ok(mfs_repos_add(gateway.repos, "lab/a-b", llama, &options, &err), &err);
	unit_ok(mfs_repos_add(gateway.repos, "other/c", llama, &options, &err), &err);
	unit_ok(mfs_tokens_open(tokens, &gateway.tokens, &err), &err);
}

static void end(void)
{
	mfs_reply_release(&reply);
	reply = (struct mfs_reply){0};
	mfs_tokens_free(gateway.tokens);
	mfs_repos_free(gateway.repos);
}

START_TEST(requests_of_s3_answer)
{
	static const struct headers beyond[] = {{"Range", "bytes=99999999-"}, {0}};
	static const struct headers part[] = {{"Range", "bytes=1-2"}, {0}};
	static const struct headers match[] = {{"If-Match", "\"x\""}, {0}};
	const char *text;

	begin(NULL);
	text = ask("GET", "/", NULL, 200);
	has(text, "<Bucket><Name>lab</Name>");
	has(text, "<Bucket><Name>other</Name>");
	has_not(strstr(text, "<Name>lab<") + 1, "<Name>lab<");
	ask("HEAD", "/lab", NULL, 200);
	has(ask("GET", "/lab?location", NULL, 200), "<LocationConstraint ");
	has(ask("GET", "/nope?list-type=2", NULL, 404), "<Code>NoSuchBucket<");
	has(ask("GET", "/nope/a/main/config.json", NULL, 404), "<Code>NoSuchBucket<");
	has(ask("GET", "/lab?acl", NULL, 501), "<Code>NotImplemented<");
	has(ask("GET", "/lab/a/main/config.json?tagging", NULL, 501), "<Code>NotImplemented<");
	ask("GET", "/lab/a/main/config.json?x-id=GetObject", NULL, 200);
	ck_assert_ptr_nonnull(reply.stream);
	ask("GET", "/lab/a/main/config.json", part, 206);
	ck_assert_uint_eq(reply.length, 2);
	has(ask("GET", "/lab/a/main/config.json", beyond, 416), "<Code>InvalidRange<");
	has(ask("GET", "/lab/a/main/config.json", match, 412), "<Code>PreconditionFailed<");
	has(ask("GET", "/lab/a/main/nope%3C%26", NULL, 404), "<Code>NoSuchKey<");
	has(reply.text.data, "<Resource>/lab/a/main/nope&#60;&#38;</Resource>");
	has(ask("GET", "/lab/a/main/config.json/", NULL, 404), "<Code>NoSuchKey<");
	has(ask("GET", "/lab/a/99/config.json", NULL, 404), "<Code>NoSuchKey<");
	has(ask("PUT", "/lab/a/main/config.json", NULL, 403), "<Code>AccessDenied<");
	has(ask("DELETE", "/lab", NULL, 403), "<Code>AccessDenied<");
	end();
}
END_TEST

/* ---- listings ---- */

/* Appends all pages of a listing, entries alone, with '\n' after each. */
static void list_all(const char *query, unsigned most, struct mfs_buf *ret)
{
	char target[1024], token[512] = "";
	unsigned pages = 0;

	for (;;) {
		const char *text, *at;

		snprintf(target, sizeof(target), "/lab?list-type=2&max-keys=%u&%s%s%s", most, query,
			 *token ? "&continuation-token=" : "", token);
		text = ask("GET", target, NULL, 200);
		for (at = strstr(text, "<KeyCount>"); at && *at; at++) {
			if (!strncmp(at, "<Key>", 5) ||
			    !strncmp(at, "<CommonPrefixes><Prefix>", 24)) {
				at = strchr(at + (at[1] == 'C' ? 16 : 0), '>') + 1;
				mfs_buf_printf(ret, "%.*s\n", (int)strcspn(at, "<"), at);
			}
		}
		ck_assert_uint_lt(++pages, 200);
		at = strstr(text, "<NextContinuationToken>");
		if (!at) {
			has(text, "<IsTruncated>false<");
			return;
		}
		has(text, "<IsTruncated>true<");
		at += strlen("<NextContinuationToken>");
		token[0] = '\0'; /* '%' is encoded once more, as a client does */
		for (size_t n = 0; *at != '<'; at++)
			n += (size_t)snprintf(token + n, sizeof(token) - n,
					      *at == '%' ? "%%25" : "%c", *at);
	}
}

static void same_by_pages(const char *query, const char *expected)
{
	static const unsigned sizes[] = {1, 2, 3, 1000};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(sizes); i++) {
		struct mfs_buf got = {0};

		mfs_buf_adds(&got, "");
		list_all(query, sizes[i], &got);
		ck_assert_msg(!strcmp(got.len ? got.data : "", expected),
			      "%s by %u: '%s' instead of '%s'", query, sizes[i],
			      got.len ? got.data : "", expected);
		mfs_buf_release(&got);
	}
}

START_TEST(pages_of_a_list_are_the_whole_list)
{
	struct mfs_buf all = {0}, a = {0};

	begin(NULL);
	same_by_pages("delimiter=/", "a-b/\na/\n");
	ck_assert_uint_eq(mfs_repos_state(gateway.repos).users, 0);
	same_by_pages("delimiter=/&prefix=a", "a-b/\na/\n");
	same_by_pages("delimiter=/&prefix=a/", "a/iter_0000040/\na/main/\n");
	same_by_pages("delimiter=/&prefix=a/&start-after=a/iter_0000040/zzz", "a/main/\n");
	same_by_pages("delimiter=/&prefix=nope/", "");
	same_by_pages("prefix=a/main/config", "a/main/config.json\n");
	same_by_pages("prefix=a/40/config", "a/40/config.json\n");
	same_by_pages("prefix=a__megatron.torch.tp1-pp1/main/&delimiter=/",
		      "a__megatron.torch.tp1-pp1/main/iter_0000040/\n"
		      "a__megatron.torch.tp1-pp1/main/latest_checkpointed_iteration.txt\n");
	same_by_pages("prefix=a/main/c&delimiter=fig&encoding-type=url", "a/main/config\n");
	list_all("prefix=a/", 1000, &a);
	same_by_pages("prefix=a/", a.data);
	has(a.data, "a/iter_0000040/config.json\n");
	list_all("prefix=", 1000, &all);
	has(all.data, "a-b/iter_0000040/config.json\n");
	has(all.data, a.data);
	ck_assert_int_lt(strstr(all.data, "a-b/") - all.data, strstr(all.data, a.data) - all.data);
	same_by_pages("", all.data);
	has(ask("GET", "/lab?list-type=2&max-keys=0", NULL, 200), "<IsTruncated>false<");
	ask("GET", "/lab?list-type=2&max-keys=x", NULL, 400);
	ask("GET", "/lab?list-type=2&continuation-token=%25zz", NULL, 400);
	has(ask("GET", "/lab?list-type=2&prefix=%3C%26%22x", NULL, 200),
	    "<Prefix>&#60;&#38;&#34;x</Prefix>");
	/* What XML cannot hold is not made a page that nobody can read; coded it is exact. */
	has(ask("GET", "/lab?list-type=2&prefix=a%1B%ff%c3%a9%ed%a0%80%09", NULL, 200),
	    "<Prefix>a\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd&#9;"
	    "</Prefix>");
	has(ask("GET", "/lab?list-type=2&encoding-type=url&prefix=a%1B%ff", NULL, 200),
	    "<Prefix>a%1B%FF</Prefix>");
	has(ask("GET", "/lab?list-type=2&prefix=a/&prefix=b/", NULL, 400),
	    "<Code>InvalidArgument<");
	has(ask("GET", "/lab?list-type=2&prefix=a/&%70refix=b/", NULL, 400),
	    "<Code>InvalidArgument<");
	has(ask("GET", "/lab?list-type=2&encoding-type=url&prefix=%3C+x/", NULL, 200),
	    "<Prefix>%3C%20x/</Prefix>");
	mfs_buf_release(&a);
	mfs_buf_release(&all);
	end();
}
END_TEST

/* ---- who asks ---- */

/* Asks with a signature of the path, by another target; time: seconds from now. */
static const char *ask_by(const char *target, const char *access, const char *secret, int64_t when,
			  const char *path, unsigned status)
{
	const struct mfs_sigv4_key key = {access, secret, "us-east-1", "s3"};
	const time_t t = time(NULL) + when;
	char date[40], *authorization;
	const char *text;
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &tm);
	{
		const struct mfs_sigv4_header sent[] = {{"Host", "gw"}, {"x-amz-date", date}};
		const struct mfs_sigv4_request r = {.method = "GET",
						    .path = path,
						    .headers = sent,
						    .header_count = 2,
						    .payload = MFS_SIGV4_EMPTY,
						    .time = date};

		unit_ok(mfs_sigv4_authorization(&key, &r, &authorization, &err), &err);
	}
	const struct headers headers[] = {
		{"Host", "gw"}, {"x-amz-date", date}, {"Authorization", authorization}, {0}};

	text = ask("GET", target, headers, status);
	free(authorization);
	return text;
}

static const char *ask_as(const char *access, const char *secret, int64_t when, const char *path,
			  unsigned status)
{
	return ask_by(path, access, secret, when, path, status);
}

/* Asks by an address that holds for a minute; more: what follows the signature. */
static const char *ask_presigned(const char *access, const char *secret, int64_t when,
				 const char *path, const char *more, unsigned status)
{
	static const struct headers headers[] = {{"Host", "gw"}, {0}};
	static const struct mfs_sigv4_header sent[] = {{"Host", "gw"}};
	const struct mfs_sigv4_key key = {access, secret, "us-east-1", "s3"};
	struct mfs_sigv4_request r = {.method = "GET",
				      .path = path,
				      .headers = sent,
				      .header_count = 1,
				      .payload = MFS_SIGV4_UNSIGNED,
				      .presigned = true};
	char signature[MFS_SIGV4_SIGNATURE], date[40], query[512], target[1024];
	const time_t t = time(NULL) + when;
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(date, sizeof(date), "%Y%m%dT%H%M%SZ", &tm);
	snprintf(query, sizeof(query),
		 "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s%%2F%.8s%%2Fus-east-1%%2Fs3"
		 "%%2Faws4_request&X-Amz-Date=%s&X-Amz-Expires=60&X-Amz-SignedHeaders=host",
		 access, date, date);
	r.query = query;
	r.time = date;
	unit_ok(mfs_sigv4_sign(&key, &r, signature, &err), &err);
	snprintf(target, sizeof(target), "%s?%s&X-Amz-Signature=%s%s", path, query, signature,
		 more);
	return ask("GET", target, headers, status);
}

START_TEST(rules_hold_for_s3)
{
	static const struct headers bearer[] = {{"Authorization", "Bearer hf_alice_1"}, {0}};
	static const char rules[] = "alice hf_alice_1 lab/a\n"
				    "alice hf_alice_2 lab/*\n"
				    "sum sha256:5994471abb01112afcc18159f6cc74b4"
				    "f511b99806da59b3caf5a9c173cacfc5 lab/*\n"
				    "- - other/*\n";
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/tokens", unit_tmpdir());
	unit_write(unit_tmpdir(), "tokens", rules, sizeof(rules) - 1);
	chmod(path, 0600);
	begin(path);
	ask_as("alice", "hf_alice_1", 0, "/lab/a/main/config.json", 200);
	ck_assert_str_eq(reply.who, "alice");
	/* AWS's C client asks so (run:ai's streamer has it); what it signs is the path. */
	ask_by("http://gw:9000/lab/a/main/config.json", "alice", "hf_alice_1", 0,
	       "/lab/a/main/config.json", 200);
	has(ask_as("alice", "hf_alice_1", 0, "/lab/a-b/main/config.json", 404), "NoSuchKey");
	ask_as("alice", "hf_alice_2", 0, "/lab/a-b/main/config.json", 200);
	ask_as("alice", "hf_alice_1", 0, "/other/c/main/config.json", 200);
	has(ask_as("alice", "hf_alice_3", 0, "/lab/a/main/config.json", 403),
	    "<Code>SignatureDoesNotMatch<");
	has(ask_as("alice", "hf_alice_1", 1000, "/lab/a/main/config.json", 403),
	    "<Code>RequestTimeTooSkewed<");
	has(ask_as("alice", "hf_alice_1", -1000, "/lab/a/main/config.json", 403),
	    "<Code>RequestTimeTooSkewed<");
	has(ask_as("bob", "hf_alice_1", 0, "/lab/a/main/config.json", 403), "InvalidAccessKeyId");
	has(ask_as("sum", "12345", 0, "/lab/a/main/config.json", 403), "only a sum");
	has(ask_as("-", "-", 0, "/other/c/main/config.json", 403), "InvalidAccessKeyId");
	has(ask("GET", "/lab/a/main/config.json", bearer, 400), "AuthorizationHeaderMalformed");
	ask_presigned("alice", "hf_alice_1", 0, "/lab/a/main/config.json", "", 200);
	ck_assert_str_eq(reply.who, "alice");
	ck_assert_ptr_nonnull(reply.stream);
	has(ask_presigned("alice", "hf_alice_1", 0, "/lab/a-b/main/config.json", "", 404),
	    "NoSuchKey");
	has(ask_presigned("alice", "hf_alice_1", -61, "/lab/a/main/config.json", "", 403),
	    "expired");
	has(ask_presigned("alice", "hf_alice_1", 0, "/lab/a/main/config.json", "&versionId=1", 403),
	    "<Code>SignatureDoesNotMatch<");
	has(ask_presigned("alice", "hf_alice_3", 0, "/lab/a/main/config.json", "", 403),
	    "<Code>SignatureDoesNotMatch<");
	has(ask("GET", "/lab/a/main/config.json?X-Amz-Signature=0", NULL, 400),
	    "<Code>AuthorizationQueryParametersError<");
	has(ask("GET", "/other/c/main/config.json?X-Amz-Algorithm", bearer, 400),
	    "<Code>InvalidArgument<");
	has(ask("GET", "/lab/a/main/config.json?AWSAccessKeyId=a&Signature=b&Expires=1", NULL, 400),
	    "s3v4");
	ask("GET", "/other/c/main/config.json", NULL, 200);
	has(ask("GET", "/lab/a/main/config.json", NULL, 403), "<Code>AccessDenied<");
	has(ask("GET", "/lab?list-type=2", NULL, 403), "<Code>AccessDenied<");
	has_not(ask("GET", "/", NULL, 200), "<Name>lab<");
	has(ask_as("alice", "hf_alice_1", 0, "/", 200), "<Name>lab<");
	end();
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("gateway_s3");
	TCase *c = unit_case(s, "gateway_s3", requests_of_s3_answer);

	tcase_add_test(c, pages_of_a_list_are_the_whole_list);
	tcase_add_test(c, rules_hold_for_s3);
	return s;
}
