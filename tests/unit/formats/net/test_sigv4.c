/* Signatures of AWS (formats/net/sigv4.h) against the examples that AWS publishes: the "Signature
 * Version 4 test suite", and S3's "Authenticating Requests" pages. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/net/sigv4.h"
#include "formats/net/uri.h"

/* ---- the test suite: "service" in us-east-1 ---- */

static const struct mfs_sigv4_key suite_key = {
	"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service"};

#define HOST                                                                                       \
	{                                                                                          \
		"Host", "example.amazonaws.com"                                                    \
	}
#define DATE                                                                                       \
	{                                                                                          \
		"X-Amz-Date", "20150830T123600Z"                                                   \
	}
static const struct mfs_sigv4_header plain[] = {HOST, DATE};
static const struct mfs_sigv4_header doubled[] = {
	HOST, {"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}, DATE};
static const struct mfs_sigv4_header spaces[] = {
	HOST, {"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}, DATE};

static const struct suite_case {
	const char *name, *method, *path, *query;
	const struct mfs_sigv4_header *headers;
	size_t count;
	const char *signature;
} cases[] = {
	{"get-vanilla", "GET", "/", NULL, plain, MFS_ARRAY_SIZE(plain),
	 "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
	{"post-vanilla", "POST", "/", "", plain, MFS_ARRAY_SIZE(plain),
	 "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
	{"get-vanilla-query-order-key-case", "GET", "/", "Param2=value2&Param1=value1", plain,
	 MFS_ARRAY_SIZE(plain), "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
	{"get-vanilla-query-unreserved", "GET", "/",
	 "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz="
	 "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
	 plain, MFS_ARRAY_SIZE(plain),
	 "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
	{"get-vanilla-utf8-query", "GET", "/", "\xe1\x88\xb4=bar", plain, MFS_ARRAY_SIZE(plain),
	 "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
	{"get-unreserved", "GET",
	 "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "", plain,
	 MFS_ARRAY_SIZE(plain), "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
	{"get-header-key-duplicate", "GET", "/", "", doubled, MFS_ARRAY_SIZE(doubled),
	 "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
	{"get-header-value-trim", "GET", "/", "", spaces, MFS_ARRAY_SIZE(spaces),
	 "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
};

START_TEST(signatures_are_those_of_the_test_suite)
{
	const struct suite_case *c = &cases[_i];
	const struct mfs_sigv4_request r = {.method = c->method,
					    .path = c->path,
					    .query = c->query,
					    .headers = c->headers,
					    .header_count = c->count,
					    .payload = MFS_SIGV4_EMPTY,
					    .time = "20150830T123600Z"};
	char got[MFS_SIGV4_SIGNATURE];
	struct mfs_error err;

	unit_ok(mfs_sigv4_sign(&suite_key, &r, got, &err), &err);
	ck_assert_msg(!strcmp(got, c->signature), "%s: %s", c->name, got);
}
END_TEST

/* ---- S3's examples ---- */

static const struct mfs_sigv4_key s3_key = {
	"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "us-east-1", "s3"};

START_TEST(s3_get_object)
{
	const struct mfs_sigv4_header headers[] = {{"x-amz-date", "20130524T000000Z"},
						   {"host", "examplebucket.s3.amazonaws.com"},
						   {"x-amz-content-sha256", MFS_SIGV4_EMPTY},
						   {"range", "bytes=0-9"}};
	const struct mfs_sigv4_request r = {.method = "GET",
					    .path = "/test.txt",
					    .headers = headers,
					    .header_count = MFS_ARRAY_SIZE(headers),
					    .payload = MFS_SIGV4_EMPTY,
					    .time = "20130524T000000Z"};
	struct mfs_error err;
	char *text;

	unit_ok(mfs_sigv4_authorization(&s3_key, &r, &text, &err), &err);
	ck_assert_str_eq(text, "AWS4-HMAC-SHA256 "
			       "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
			       "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature="
			       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
	free(text);
}
END_TEST

/* One signature is of one meaning: '+' is a space, and its code is a plus. */
START_TEST(a_plus_is_a_space_and_its_code_a_plus)
{
	struct mfs_sigv4_request r = {.method = "GET", .payload = MFS_SIGV4_EMPTY};
	static const char *const queries[] = {"prefix=a+b", "prefix=a%20b", "prefix=a%2Bb"};
	struct mfs_error err;
	char *text[3];

	for (int i = 0; i < 3; i++) {
		r.query = queries[i];
		unit_ok(mfs_sigv4_canonical(&r, &text[i], &err), &err);
	}
	ck_assert_str_eq(text[0], text[1]);
	ck_assert_str_ne(text[0], text[2]);
	for (int i = 0; i < 3; i++)
		free(text[i]);
}
END_TEST

static const struct s3_query {
	const char *query, *signature;
} queries[] = {
	{"lifecycle", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
	{"max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	{"prefix=J&max-keys=2", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

START_TEST(s3_queries)
{
	const struct mfs_sigv4_header headers[] = {{"Host", "examplebucket.s3.amazonaws.com"},
						   {"x-amz-date", "20130524T000000Z"},
						   {"x-amz-content-sha256", MFS_SIGV4_EMPTY}};
	const struct mfs_sigv4_request r = {.method = "GET",
					    .query = queries[_i].query,
					    .headers = headers,
					    .header_count = MFS_ARRAY_SIZE(headers),
					    .payload = MFS_SIGV4_EMPTY,
					    .time = "20130524T000000Z"};
	char got[MFS_SIGV4_SIGNATURE];
	struct mfs_error err;

	unit_ok(mfs_sigv4_sign(&s3_key, &r, got, &err), &err);
	ck_assert_str_eq(got, queries[_i].signature);
}
END_TEST

/* A signed URL: the signature itself, which stands in the query, is not signed. */
START_TEST(s3_presigned)
{
	const struct mfs_sigv4_header host = {"host", "examplebucket.s3.amazonaws.com"};
	const struct mfs_sigv4_request r = {
		.method = "GET",
		.path = "/test.txt",
		.query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F"
			 "20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z&"
			 "X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=00",
		.headers = &host,
		.header_count = 1,
		.payload = MFS_SIGV4_UNSIGNED,
		.time = "20130524T000000Z",
		.presigned = true};
	char got[MFS_SIGV4_SIGNATURE];
	struct mfs_error err;

	unit_ok(mfs_sigv4_sign(&s3_key, &r, got, &err), &err);
	ck_assert_str_eq(got, "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
}
END_TEST

START_TEST(times_and_queries_that_are_malformed_are_refused)
{
	struct mfs_sigv4_request r = {
		.method = "GET", .payload = MFS_SIGV4_EMPTY, .time = "20130524T000000"};
	char got[MFS_SIGV4_SIGNATURE];
	struct mfs_error err;

	ck_assert_int_eq(mfs_sigv4_sign(&s3_key, &r, got, &err), -EINVAL);
	r.time = "20130524T000000Z";
	r.query = "a=%4";
	ck_assert_int_eq(mfs_sigv4_sign(&s3_key, &r, got, &err), -EINVAL);
	ck_assert(mfs_sigv4_same("ab", "ab"));
	ck_assert(!mfs_sigv4_same("ab", "ac"));
	ck_assert(!mfs_sigv4_same("ab", "abc"));
}
END_TEST

START_TEST(paths_are_encoded_and_decoded)
{
	struct mfs_buf b = {0};

	mfs_uri_encode(&b, "a b/c~\xff", 7, true);
	ck_assert_str_eq(b.data, "a%20b/c~%FF");
	b.len = 0;
	mfs_uri_encode(&b, "a/b", 3, false);
	ck_assert_str_eq(b.data, "a%2Fb");
	b.len = 0;
	ck_assert_int_eq(mfs_uri_decode(&b, "a%20b+c", 7, false), 0);
	ck_assert_str_eq(b.data, "a b+c");
	b.len = 0;
	ck_assert_int_eq(mfs_uri_decode(&b, "a+%2f", 5, true), 0);
	ck_assert_str_eq(b.data, "a /");
	ck_assert_int_eq(mfs_uri_decode(&b, "%0", 2, true), -EINVAL);
	ck_assert_int_eq(mfs_uri_decode(&b, "%zz", 3, true), -EINVAL);
	ck_assert_int_eq(mfs_uri_decode(&b, "%00", 3, true), -EINVAL);
	mfs_buf_release(&b);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("sigv4");
	TCase *c = tcase_create("vectors");

	tcase_add_loop_test(c, signatures_are_those_of_the_test_suite, 0, MFS_ARRAY_SIZE(cases));
	tcase_add_test(c, s3_get_object);
	tcase_add_test(c, a_plus_is_a_space_and_its_code_a_plus);
	tcase_add_loop_test(c, s3_queries, 0, MFS_ARRAY_SIZE(queries));
	tcase_add_test(c, s3_presigned);
	suite_add_tcase(s, c);
	unit_case(s, "refusals", times_and_queries_that_are_malformed_are_refused);
	unit_case(s, "uri", paths_are_encoded_and_decoded);
	return s;
}
