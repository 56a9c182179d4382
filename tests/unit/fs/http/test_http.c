/* Requests without a socket: fs/http/url.h, range.h, message.h. */
#include "tests/unit/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "fs/http/listen.h"
#include "fs/http/message.h"
#include "fs/http/range.h"
#include "fs/http/url.h"

static struct mfs_error err;

START_TEST(paths_and_queries_are_decoded)
{
	struct mfs_url u;

	unit_ok(mfs_url_parse("/org/model/resolve/refs%2Fpr%2F1/a/b%20c.json?x=1&y=a%2Bb+c&x=2&z",
			      &u, &err),
		&err);
	ck_assert_uint_eq(u.count, 6);
	ck_assert_str_eq(u.parts[3], "refs/pr/1");
	ck_assert_str_eq(u.parts[5], "b c.json");
	ck_assert_str_eq(u.path, "/org/model/resolve/refs/pr/1/a/b c.json");
	ck_assert_str_eq(mfs_url_rest(&u, 4), "a/b c.json");
	ck_assert_str_eq(mfs_url_rest(&u, 6), "");
	ck_assert_str_eq(mfs_url_query(&u, "x"), "1");
	ck_assert_str_eq(mfs_url_query(&u, "y"), "a+b c");
	ck_assert_str_eq(mfs_url_query(&u, "z"), "");
	ck_assert_ptr_null(mfs_url_query(&u, "q"));
	ck_assert(!u.slash);
	mfs_url_release(&u);

	unit_ok(mfs_url_parse("/", &u, &err), &err);
	ck_assert(u.slash && !u.count);
	ck_assert_str_eq(u.path, "/");
	mfs_url_release(&u);
	unit_ok(mfs_url_parse("http://gw:8080/a/?b=True&c=false&d=1", &u, &err), &err);
	ck_assert(u.slash && u.count == 1);
	ck_assert(mfs_url_truth(&u, "b") && !mfs_url_truth(&u, "c") && mfs_url_truth(&u, "d"));
	mfs_url_release(&u);
}
END_TEST

START_TEST(bad_paths)
{
	static const char *const bad[] = {
		"",	  "a",	     "*",	"/..",	  "/a/../b", "/a/.",	  "/a//b",
		"//",	  "/%2e%2e", "/a%2f..", "/%2F",	  "/a%2F",   "/a%2F%2Fb", "/%00",
		"/a%0ab", "/%zz",    "/%2",	"/%",	  "/a\tb",   "/a#b",	  "/a?x=%00",
		"/?%g=1", "/a%7f",   "/.%2e/a", "/a?b=%", "/%2e",
	};
	char many[3 * MFS_URL_PARTS + 8] = "", pairs[8 * MFS_URL_QUERY + 8] = "/?";
	static char deep[MFS_URL_BYTES + 8];
	struct mfs_url u;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++)
		unit_fails(mfs_url_parse(bad[i], &u, &err), &err, -EINVAL, NULL);
	for (int i = 0; i <= MFS_URL_PARTS; i++)
		strcat(many, "/a");
	unit_fails(mfs_url_parse(many, &u, &err), &err, -E2BIG, "parts");
	for (int i = 0; i <= MFS_URL_QUERY; i++)
		strcat(pairs, "a=b&");
	unit_fails(mfs_url_parse(pairs, &u, &err), &err, -E2BIG, "pairs");
	memset(deep, 'a', sizeof(deep) - 1);
	*deep = '/';
	unit_fails(mfs_url_parse(deep, &u, &err), &err, -E2BIG, "longer");
}
END_TEST

START_TEST(one_range_is_honoured_as_the_rfc_says)
{
	static const struct {
		const char *header;
		uint64_t size;
		enum mfs_range_kind want;
		uint64_t off, len;
	} cases[] = {
		{NULL, 10, MFS_RANGE_WHOLE, 0, 10},
		{"bytes=0-0", 10, MFS_RANGE_PART, 0, 1},
		{"bytes=2-5", 10, MFS_RANGE_PART, 2, 4},
		{"bytes=2-", 10, MFS_RANGE_PART, 2, 8},
		{"bytes=2-99999999999999999999999", 10, MFS_RANGE_PART, 2, 8},
		{"bytes=-3", 10, MFS_RANGE_PART, 7, 3},
		{"bytes=-30", 10, MFS_RANGE_PART, 0, 10},
		{"bytes= 1-2 ", 10, MFS_RANGE_PART, 1, 2},
		{"Bytes=9-9", 10, MFS_RANGE_PART, 9, 1},
		{"bytes=10-", 10, MFS_RANGE_BEYOND, 0, 0},
		{"bytes=18446744073709551616-", 10, MFS_RANGE_BEYOND, 0, 0},
		{"bytes=-0", 10, MFS_RANGE_BEYOND, 0, 0},
		{"bytes=0-", 0, MFS_RANGE_BEYOND, 0, 0},
		{"bytes=-1", 0, MFS_RANGE_BEYOND, 0, 0},
		{"bytes=5-2", 10, MFS_RANGE_WHOLE, 0, 10},
		{"bytes=0-1,3-4", 10, MFS_RANGE_WHOLE, 0, 10},
		{"bytes=a-b", 10, MFS_RANGE_WHOLE, 0, 10},
		{"bytes=-", 10, MFS_RANGE_WHOLE, 0, 10},
		{"bytes=1", 10, MFS_RANGE_WHOLE, 0, 10},
		{"bytes=1-2x", 10, MFS_RANGE_WHOLE, 0, 10},
		{"items=1-2", 10, MFS_RANGE_WHOLE, 0, 10},
		{"bytes", 10, MFS_RANGE_WHOLE, 0, 10},
		{"", 10, MFS_RANGE_WHOLE, 0, 10},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		uint64_t off = 77, len = 77;

		ck_assert_msg(mfs_range_parse(cases[i].header, cases[i].size, &off, &len) ==
				      cases[i].want,
			      "%s", cases[i].header);
		ck_assert_msg(off == cases[i].off && len == cases[i].len, "%s", cases[i].header);
	}
}
END_TEST

START_TEST(etags_are_found_in_lists)
{
	ck_assert(mfs_etag_listed("\"a\"", "a", false));
	ck_assert(mfs_etag_listed("\"x\", \"a\" ,\"y\"", "a", false));
	ck_assert(mfs_etag_listed("a", "a", false));
	ck_assert(mfs_etag_listed("*", "a", false));
	ck_assert(mfs_etag_listed("W/\"a\"", "a", true));
	ck_assert(!mfs_etag_listed("W/\"a\"", "a", false));
	ck_assert(!mfs_etag_listed("\"*\"", "a", false));
	ck_assert(!mfs_etag_listed("\"ab\"", "a", false));
	ck_assert(!mfs_etag_listed("\"", "a", false));
	ck_assert(!mfs_etag_listed("", "a", false));
	ck_assert(!mfs_etag_listed("W/", "a", true));
	ck_assert(!mfs_etag_listed(",,", "a", true));
}
END_TEST

#define DATE "Wed, 21 Oct 2026 07:28:00 GMT"

START_TEST(conditions_are_judged_in_order)
{
	static const struct {
		struct mfs_conditions c;
		unsigned status;
	} cases[] = {
		{{0}, 200},
		{{.match = "\"a\""}, 200},
		{{.match = "\"b\""}, 412},
		{{.match = "\"b\"", .none_match = "\"a\""}, 412},
		{{.none_match = "\"a\""}, 304},
		{{.none_match = "\"a\"", .range = "bytes=0-1"}, 304},
		{{.none_match = "\"b\"", .range = "bytes=0-1"}, 206},
		{{.range = "bytes=0-1", .if_range = "\"a\""}, 206},
		{{.range = "bytes=0-1", .if_range = "\"b\""}, 200},
		{{.range = "bytes=0-1", .if_range = "W/\"a\""}, 200},
		{{.range = "bytes=0-1", .if_range = "*"}, 200},
		{{.range = "bytes=0-1", .if_range = DATE}, 200},
		{{.modified_since = DATE, .modified = DATE}, 304},
		{{.modified_since = DATE, .modified = DATE, .none_match = "\"b\""}, 200},
		{{.modified_since = DATE, .modified = DATE, .match = "\"b\""}, 412},
		{{.modified_since = DATE, .modified = DATE, .range = "bytes=0-1"}, 304},
		{{.modified_since = DATE, .modified = "Wed, 21 Oct 2026 07:27:59 GMT"}, 200},
		{{.modified_since = "", .modified = ""}, 200},
		{{.modified_since = DATE}, 200},
		{{.modified = DATE}, 200},
		{{.range = "bytes=10-"}, 416},
		{{.range = "bytes=10-", .match = "\"b\""}, 412},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++)
		ck_assert_uint_eq(mfs_conditions_judge(&cases[i].c, "a", 10).status,
				  cases[i].status);
}
END_TEST

START_TEST(reply_headers)
{
	struct mfs_reply a = {0};

	mfs_reply_header(&a, "X", "a\r\nSet-Cookie: b%s", "\x7f");
	ck_assert_str_eq(a.headers[0].value, "a??Set-Cookie: b?");
	for (int i = 1; i < MFS_REPLY_HEADERS; i++)
		mfs_reply_header(&a, "X", "%d", i);
	ck_assert(!a.failed);
	mfs_reply_header(&a, "X", "one too many");
	ck_assert(a.failed);
	mfs_reply_release(&a);
}
END_TEST

/* A server's socket file is replaced when the server has ended, and nothing else is. */
START_TEST(socket_files)
{
	char address[300], told[MFS_LISTEN_TEXT], path[290];
	struct mfs_error err;
	int fd, again;

	snprintf(path, sizeof(path), "%s/s", unit_tmpdir());
	snprintf(address, sizeof(address), "unix:%s", path);
	unit_ok(mfs_listen(address, &fd, told, &err), &err);
	unit_fails(mfs_listen(address, &again, told, &err), &err, -EADDRINUSE, path);
	close(fd);
	unit_ok(mfs_listen(address, &fd, told, &err), &err);
	close(fd);
	/* A link to a dead socket, and a file of somebody's. */
	snprintf(path, sizeof(path), "%s/t", unit_tmpdir());
	ck_assert_int_eq(symlink("s", path), 0);
	snprintf(address, sizeof(address), "unix:%s", path);
	ck_assert_int_lt(mfs_listen(address, &fd, told, &err), 0);
	mfs_listen_end(address);
	ck_assert_int_eq(unlink(path), 0);
	unit_write(unit_tmpdir(), "t", "mine", 4);
	unit_fails(mfs_listen(address, &fd, told, &err), &err, -EADDRINUSE, path);
	mfs_listen_end(address);
	ck_assert_int_eq(access(path, F_OK), 0);
	mfs_listen_end(told); /* of the first */
	snprintf(path, sizeof(path), "%s/s", unit_tmpdir());
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("http");
	TCase *c = unit_case(s, "http", paths_and_queries_are_decoded);

	tcase_add_test(c, bad_paths);
	tcase_add_test(c, one_range_is_honoured_as_the_rfc_says);
	tcase_add_test(c, etags_are_found_in_lists);
	tcase_add_test(c, conditions_are_judged_in_order);
	tcase_add_test(c, reply_headers);
	tcase_add_test(c, socket_files);
	return s;
}
