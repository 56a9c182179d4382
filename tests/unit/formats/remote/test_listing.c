/* What servers say that they have: formats/remote/listing.h. */
#include "tests/unit/unit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "formats/base/array.h"
#include "formats/net/special.h"
#include "formats/remote/listing.h"

static struct mfs_listing list;
static struct mfs_error err;

static void teardown(void)
{
	mfs_listing_release(&list);
}

static void expect(const char *const *names, size_t count)
{
	ck_assert_uint_eq(list.count, count);
	for (size_t i = 0; i < count; i++)
		ck_assert_str_eq(list.items[i].name, names[i]);
}

/* Tensors of two files in turns, as many indexes have them. */
START_TEST(weights_are_named_once)
{
	static const char *const names[] = {"before", "a", "b"};
	static const char text[] = "{\"weight_map\": {\"1\": \"b\", \"2\": \"a\", \"3\": \"b\", "
				   "\"4\": \"a\", \"5\": \"b\"}}";

	unit_ok(mfs_listing_add(&list, "before", 6, NULL, &err), &err);
	unit_ok(mfs_listing_read_weights(&list, text, strlen(text), &err), &err);
	expect(names, 3);
}
END_TEST

#define OBJECT(key, etag)                                                                          \
	"<Contents><Key>" key "</Key><Size>1</Size><ETag>" etag "</ETag>"                          \
	"<LastModified>2015-10-21T07:28:00.000Z</LastModified></Contents>"

static void read_s3(const char *objects)
{
	char text[4000], *next;

	snprintf(text, sizeof(text), "<ListBucketResult>%s</ListBucketResult>", objects);
	unit_ok(mfs_listing_read_s3(&list, text, strlen(text), "runs/", &next, &err), &err);
	ck_assert_ptr_null(next);
}

/* One key that no directory can show is no reason to show none. */
START_TEST(keys_that_are_no_names)
{
	static const char *const names[] = {"a", "logs/b"};

	read_s3(OBJECT("runs/a", "\"1\"") OBJECT("runs/logs//a.txt", "\"2\"") OBJECT(
		"runs/../up", "\"3\"") OBJECT("runs//etc", "\"4\"") OBJECT("runs/logs/b", "\"5\""));
	expect(names, 2);
}
END_TEST

/* What headers.c would not take from an answer either (it would differ for ever). */
START_TEST(etags_that_are_none)
{
	read_s3(OBJECT("runs/a", "\"1\"") OBJECT("runs/b", "\"1\"2\"") OBJECT("runs/c", "1"));
	ck_assert_uint_eq(list.count, 3);
	ck_assert_str_eq(list.items[0].etag, "\"1\"");
	ck_assert_ptr_null(list.items[1].etag);
	ck_assert_ptr_null(list.items[2].etag);
	ck_assert_str_eq(list.items[1].last_modified, "Wed, 21 Oct 2015 07:28:00 GMT");
}
END_TEST

/* Where a redirect may not lead: whatever an address is written as. */
START_TEST(special_addresses)
{
	static const struct {
		const char *text;
		bool special;
	} cases[] = {
		{"0.0.0.0", true},
		{"10.0.0.1", true},
		{"9.255.255.255", false},
		{"11.0.0.0", false},
		{"100.64.0.1", true},
		{"100.127.255.255", true},
		{"100.63.0.1", false},
		{"100.128.0.0", false},
		{"127.0.0.1", true},
		{"127.255.255.255", true},
		{"169.254.169.254", true},
		{"169.253.0.1", false},
		{"172.16.0.1", true},
		{"172.31.255.255", true},
		{"172.32.0.1", false},
		{"172.15.0.1", false},
		{"192.168.1.1", true},
		{"192.169.1.1", false},
		{"198.18.0.1", true},
		{"198.19.255.255", true},
		{"198.20.0.1", false},
		{"224.0.0.1", true},
		{"255.255.255.255", true},
		{"223.255.255.255", false},
		{"8.8.8.8", false},
		{"::", true},
		{"::1", true},
		{"fc00::1", true},
		{"fdff::1", true},
		{"fe80::1", true},
		{"febf::1", true},
		{"fec0::1", true},
		{"ff02::1", true},
		{"2606:4700::1111", false},
		{"::ffff:127.0.0.1", true},
		{"::ffff:8.8.8.8", false},
		{"::127.0.0.1", true},
		{"64:ff9b::a00:1", true},
		{"64:ff9b::808:808", false},
		{"2002:7f00:1::1", true},
		{"2002:808:808::1", false},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		struct sockaddr_in6 six = {.sin6_family = AF_INET6};
		struct sockaddr_in four = {.sin_family = AF_INET};
		const bool old = inet_pton(AF_INET, cases[i].text, &four.sin_addr) == 1;
		const struct sockaddr *a = old ? (const void *)&four : (const void *)&six;
		char text[MFS_ADDRESS_TEXT];

		ck_assert(old || inet_pton(AF_INET6, cases[i].text, &six.sin6_addr) == 1);
		ck_assert_msg(mfs_address_is_special(a) == cases[i].special, "%s", cases[i].text);
		ck_assert(mfs_address_is_same(a, a));
		ck_assert(!mfs_address_is_same((const void *)&four, (const void *)&six));
		mfs_address_host(a, text);
		ck_assert_str_eq(text, cases[i].text);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("listing");
	TCase *c = tcase_create("listings");

	tcase_add_checked_fixture(c, NULL, teardown);
	tcase_add_test(c, weights_are_named_once);
	tcase_add_test(c, keys_that_are_no_names);
	tcase_add_test(c, etags_that_are_none);
	tcase_add_test(c, special_addresses);
	suite_add_tcase(s, c);
	return s;
}
