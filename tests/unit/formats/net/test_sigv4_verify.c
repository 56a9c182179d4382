/* A server's check of AWS signatures (formats/net/sigv4_verify.h), with the examples that AWS
 * publishes on S3's "Authenticating Requests: Using the Authorization Header". */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "formats/base/array.h"
#include "formats/net/sigv4_verify.h"

#define SECRET	   "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define CREDENTIAL "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
#define NOW	   1369353600ll /* 2013-05-24 00:00:00 */
#define OBJECT	   "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
#define SIGNED	   ",SignedHeaders=host,Signature=" OBJECT
#define LIFECYCLE  "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
#define LIST	   "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"

static struct mfs_error err;

struct sent {
	const char *name, *value;
};

static const char *get(const void *arg, const char *name)
{
	for (const struct sent *s = arg; s->name; s++)
		if (!strcasecmp(s->name, name))
			return s->value;
	return NULL;
}

static const struct sent headers[] = {{"Host", "examplebucket.s3.amazonaws.com"},
				      {"Range", "bytes=0-9"},
				      {"x-amz-content-sha256", MFS_SIGV4_EMPTY},
				      {"x-amz-date", "20130524T000000Z"},
				      {0}};

static int verify_at(const char *authorization, const char *method, const char *target,
		     const struct sent *sent, const char *secret, int64_t now)
{
	const struct mfs_sigv4_arrived r = {method, target, get, sent};
	struct mfs_sigv4_claim c;
	int rc;

	unit_ok(mfs_sigv4_claim_parse(authorization, &c, &err), &err);
	ck_assert_str_eq(c.access, "AKIAIOSFODNN7EXAMPLE");
	rc = mfs_sigv4_verify(&c, &r, secret, now, &err);
	mfs_sigv4_claim_release(&c);
	return rc;
}

#define GET_OBJECT                                                                                 \
	"AWS4-HMAC-SHA256 " CREDENTIAL                                                             \
	",SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=" OBJECT
#define GET_BUCKET(signature)                                                                      \
	"AWS4-HMAC-SHA256 " CREDENTIAL                                                             \
	", SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=" signature

START_TEST(the_examples_of_the_documentation_hold)
{
	unit_ok(verify_at(GET_OBJECT, "GET", "/test.txt", headers, SECRET, NOW), &err);
	unit_ok(verify_at(GET_BUCKET(LIFECYCLE), "GET", "/?lifecycle", headers, SECRET, NOW), &err);
	unit_ok(verify_at(GET_BUCKET(LIST), "GET", "/?max-keys=2&prefix=J", headers, SECRET, NOW),
		&err);
	unit_ok(verify_at(GET_BUCKET(LIST), "GET", "/?prefix=J&max-keys=2", headers, SECRET, NOW),
		&err);
}
END_TEST

START_TEST(anything_else_that_is_sent_breaks_the_signature)
{
	static const struct sent range[] = {{"Host", "examplebucket.s3.amazonaws.com"},
					    {"Range", "bytes=0-8"},
					    {"x-amz-content-sha256", MFS_SIGV4_EMPTY},
					    {"x-amz-date", "20130524T000000Z"},
					    {0}};
	static const struct sent unsigned_payload[] = {{"Host", "examplebucket.s3.amazonaws.com"},
						       {"Range", "bytes=0-9"},
						       {"x-amz-content-sha256", MFS_SIGV4_UNSIGNED},
						       {"x-amz-date", "20130524T000000Z"},
						       {0}};
	const struct {
		const char *method, *target, *secret;
		const struct sent *sent;
	} bad[] = {
		{"HEAD", "/test.txt", SECRET, headers},
		{"GET", "/test.tx", SECRET, headers},
		{"GET", "/test.txt?a", SECRET, headers},
		{"GET", "/test.txt", SECRET "x", headers},
		{"GET", "/test.txt", "", headers},
		{"GET", "/test.txt", SECRET, range},
		{"GET", "/test.txt", SECRET, unsigned_payload},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(verify_at(GET_OBJECT, bad[i].method, bad[i].target, bad[i].sent,
				     bad[i].secret, NOW),
			   &err, -EKEYREJECTED, "signature");
}
END_TEST

/* The payload may be left unsigned: the signature is of that, then. */
START_TEST(a_payload_may_be_unsigned)
{
	static const struct sent sent[] = {{"Host", "gw"},
					   {"x-amz-content-sha256", MFS_SIGV4_UNSIGNED},
					   {"x-amz-date", "20130524T000000Z"},
					   {0}};
	static const struct mfs_sigv4_key key = {"AKIAIOSFODNN7EXAMPLE", SECRET, "x", "s3"};
	static const struct mfs_sigv4_header signed_headers[] = {
		{"Host", "gw"}, {"x-amz-date", "20130524T000000Z"}};
	const struct mfs_sigv4_request r = {.method = "GET",
					    .path = "/lab/a",
					    .headers = signed_headers,
					    .header_count = 2,
					    .payload = MFS_SIGV4_UNSIGNED,
					    .time = "20130524T000000Z"};
	char *text;

	unit_ok(mfs_sigv4_authorization(&key, &r, &text, &err), &err);
	unit_ok(verify_at(text, "GET", "/lab/a", sent, SECRET, NOW), &err);
	free(text);
}
END_TEST

START_TEST(times_beyond_15_minutes_are_refused)
{
	static const struct sent dateless[] = {{"Host", "examplebucket.s3.amazonaws.com"}, {0}};
	static const struct sent bad[] = {{"Host", "x"}, {"x-amz-date", "2013-05-24"}, {0}};
	static const struct sent day[] = {{"Host", "x"}, {"x-amz-date", "20130525T000000Z"}, {0}};

	unit_ok(verify_at(GET_OBJECT, "GET", "/test.txt", headers, SECRET, NOW + 900), &err);
	unit_ok(verify_at(GET_OBJECT, "GET", "/test.txt", headers, SECRET, NOW - 900), &err);
	unit_fails(verify_at(GET_OBJECT, "GET", "/test.txt", headers, SECRET, NOW + 901), &err,
		   -ETIME, "900 s");
	unit_fails(verify_at(GET_OBJECT, "GET", "/test.txt", headers, SECRET, NOW - 901), &err,
		   -ETIME, "900 s");
	unit_fails(verify_at(GET_OBJECT, "GET", "/test.txt", dateless, SECRET, NOW), &err, -EINVAL,
		   "x-amz-date");
	unit_fails(verify_at(GET_OBJECT, "GET", "/test.txt", bad, SECRET, NOW), &err, -EINVAL,
		   "x-amz-date");
	unit_fails(verify_at(GET_OBJECT, "GET", "/test.txt", day, SECRET, NOW), &err, -EINVAL,
		   "day");
	unit_fails(verify_at(GET_OBJECT, "GET", "/test.txt", headers + 2, SECRET, NOW), &err,
		   -EINVAL, "'host' is signed");
}
END_TEST

/* ---- presigned addresses ---- */

/* AWS's example, "Authenticating Requests: Using Query Parameters". */
#define PRESIGNED "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
#define QUERY                                                                                      \
	"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2F"     \
	"us-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&"           \
	"X-Amz-SignedHeaders=host&X-Amz-Signature=" PRESIGNED

static int verify_query(const char *method, const char *path, const char *query,
			const struct sent *sent, const char *secret, int64_t now)
{
	char target[1024];
	const struct mfs_sigv4_arrived r = {method, target, get, sent};
	struct mfs_sigv4_claim c;
	int rc;

	snprintf(target, sizeof(target), "%s?%s", path, query);
	ck_assert(mfs_sigv4_is_presigned(query));
	unit_ok(mfs_sigv4_claim_parse_query(query, &c, &err), &err);
	ck_assert_str_eq(c.access, "AKIAIOSFODNN7EXAMPLE");
	rc = mfs_sigv4_verify(&c, &r, secret, now, &err);
	mfs_sigv4_claim_release(&c);
	return rc;
}

START_TEST(an_address_holds_until_it_expires)
{
	static const struct sent host[] = {{"Host", "examplebucket.s3.amazonaws.com"}, {0}};
	static const struct sent other[] = {{"Host", "examplebucket.s3.example.com"}, {0}};

	unit_ok(verify_query("GET", "/test.txt", QUERY, host, SECRET, NOW), &err);
	unit_ok(verify_query("GET", "/test.txt", QUERY, headers, SECRET, NOW + 86400), &err);
	unit_ok(verify_query("GET", "/test.txt", QUERY, host, SECRET, NOW - 900), &err);
	unit_fails(verify_query("GET", "/test.txt", QUERY, host, SECRET, NOW + 86401), &err,
		   -EKEYEXPIRED, "86400 s");
	unit_fails(verify_query("GET", "/test.txt", QUERY, host, SECRET, NOW - 901), &err, -ETIME,
		   "900 s");
	unit_fails(verify_query("GET", "/test.txt", QUERY, other, SECRET, NOW), &err, -EKEYREJECTED,
		   "signature");
	unit_fails(verify_query("GET", "/test.txt", QUERY, host + 1, SECRET, NOW), &err, -EINVAL,
		   "'host' is signed");
	unit_fails(verify_query("HEAD", "/test.txt", QUERY, host, SECRET, NOW), &err, -EKEYREJECTED,
		   NULL);
	unit_fails(verify_query("GET", "/test.tx", QUERY, host, SECRET, NOW), &err, -EKEYREJECTED,
		   NULL);
	unit_fails(verify_query("GET", "/test.txt", QUERY, host, "x", NOW), &err, -EKEYREJECTED,
		   NULL);
	unit_fails(verify_query("GET", "/test.txt", QUERY "&a=b", host, SECRET, NOW), &err,
		   -EKEYREJECTED, NULL);
	unit_fails(verify_query("GET", "/test.txt", "versionId=1&" QUERY, host, SECRET, NOW), &err,
		   -EKEYREJECTED, NULL);
}
END_TEST

/* QUERY with one of its texts replaced. */
static int parse_changed(const char *from, const char *to)
{
	const char *at = strstr(QUERY, from);
	struct mfs_sigv4_claim c;
	char query[1024];

	snprintf(query, sizeof(query), "%.*s%s%s", (int)(at - QUERY), QUERY, to, at + strlen(from));
	return mfs_sigv4_claim_parse_query(query, &c, &err);
}

START_TEST(presigned_forms)
{
	static const char *const bad[][3] = {
		{"X-Amz-Algorithm=AWS4-HMAC-SHA256&", "", "each once"},
		{"AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1", "Algorithm"},
		{"&X-Amz-Expires=86400", "", "each once"},
		{"=86400", "=604801", "seven days"},
		{"=86400", "=0", "X-Amz-Expires"},
		{"=86400", "=-1", "X-Amz-Expires"},
		{"=86400", "=", "X-Amz-Expires"},
		{"=86400", "=1s", "X-Amz-Expires"},
		{"=86400", "=99999999999999999999", "X-Amz-Expires"},
		{"=86400", "=1&X-Amz-Expires=2", "each once"},
		{"X-Amz-Date", "X-Amz-Dato", "each once"},
		{"%2Faws4_request", "", "Credential"},
		{"aws4_request", "aws4_request%", "each once"},
		{"=host", "=range", "'host'"},
		{"=host", "=host%3Bhost", "'host'"},
		{"f604d404", "f604d40", "64"},
		{"f604d404", "F604D404", "64"},
	};
	struct mfs_sigv4_claim c;
	char *longer;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(parse_changed(bad[i][0], bad[i][1]), &err, -EINVAL, bad[i][2]);
	unit_ok(mfs_sigv4_claim_parse_query("a&&b=&" QUERY, &c, &err), &err);
	ck_assert(c.presigned);
	ck_assert_uint_eq(c.expires, 86400);
	ck_assert_str_eq(c.time, "20130524T000000Z");
	ck_assert_str_eq(c.signature, PRESIGNED);
	mfs_sigv4_claim_release(&c);
	ck_assert(!mfs_sigv4_is_presigned(NULL));
	ck_assert(!mfs_sigv4_is_presigned("X-Amz-Date=1&aX-Amz-Signature=1&X-Amz-Signatures"));
	ck_assert(mfs_sigv4_is_presigned("a&X-Amz-Signature"));
	longer = calloc(1, MFS_SIGV4_BYTES + 2);
	ck_assert_ptr_nonnull(longer);
	memset(longer, 'a', MFS_SIGV4_BYTES + 1);
	unit_fails(mfs_sigv4_claim_parse_query(longer, &c, &err), &err, -EINVAL, "4096");
	free(longer);
}
END_TEST

START_TEST(headers_of_another_form_are_refused)
{
	static const char *const bad[] = {
		"",
		"Bearer x",
		"AWS4-HMAC-SHA256",
		"AWS4-HMAC-SHA256x " CREDENTIAL SIGNED,
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=host",
		"AWS4-HMAC-SHA256 " CREDENTIAL ",Signature=" OBJECT,
		"AWS4-HMAC-SHA256 SignedHeaders=host,Signature=" OBJECT,
		"AWS4-HMAC-SHA256 " CREDENTIAL "," CREDENTIAL SIGNED,
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=x-amz-date,Signature=" OBJECT,
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=host;host,Signature=" OBJECT,
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=range;host,Signature=" OBJECT,
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=Host;host,Signature=" OBJECT,
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=host;,Signature=" OBJECT,
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=host,Signature=" OBJECT "0",
		"AWS4-HMAC-SHA256 " CREDENTIAL ",SignedHeaders=host,Signature=0",
		"AWS4-HMAC-SHA256 Credential=a/20130524/x/s3/aws3" SIGNED,
		"AWS4-HMAC-SHA256 Credential=20130524/x/s3/aws4_request" SIGNED,
		"AWS4-HMAC-SHA256 Credential=/20130524/x/s3/aws4_request" SIGNED,
	};
	struct mfs_sigv4_claim c;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(mfs_sigv4_claim_parse(bad[i], &c, &err), &err, -EINVAL, "Authorization");
	unit_ok(mfs_sigv4_claim_parse("AWS4-HMAC-SHA256 Credential=a/b/20130524/x/s3/aws4_request,"
				      "SignedHeaders=host,Signature=" OBJECT,
				      &c, &err),
		&err);
	ck_assert_str_eq(c.access, "a/b");
	mfs_sigv4_claim_release(&c);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sigv4_verify");
	TCase *c = unit_case(s, "sigv4_verify", the_examples_of_the_documentation_hold);

	tcase_add_test(c, anything_else_that_is_sent_breaks_the_signature);
	tcase_add_test(c, a_payload_may_be_unsigned);
	tcase_add_test(c, times_beyond_15_minutes_are_refused);
	tcase_add_test(c, an_address_holds_until_it_expires);
	tcase_add_test(c, presigned_forms);
	tcase_add_test(c, headers_of_another_form_are_refused);
	return s;
}
