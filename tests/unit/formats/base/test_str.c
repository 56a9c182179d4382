/* Texts, paths and times: formats/base/str.h, path.h, clock.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "formats/base/array.h"
#include "formats/base/clock.h"
#include "formats/base/path.h"
#include "formats/base/str.h"

START_TEST(null_is_equal_to_no_text)
{
	ck_assert(mfs_str_is("rope", "rope"));
	ck_assert(!mfs_str_is("rope", "rop"));
	ck_assert(!mfs_str_is(NULL, "rope"));
}
END_TEST

START_TEST(a_suffix_is_found_at_the_end_alone)
{
	ck_assert(mfs_str_ends("layer.bias", ".bias"));
	ck_assert(mfs_str_ends(".bias", ".bias"));
	ck_assert(mfs_str_ends("a", ""));
	ck_assert(!mfs_str_ends("bias", ".bias"));
	ck_assert(!mfs_str_ends("layer.biases", ".bias"));
}
END_TEST

START_TEST(order_is_that_of_bytes)
{
	const char *names[] = {"b", "", "a10", "a2", "B"};
	static const char *const sorted[] = {"", "B", "a10", "a2", "b"};

	qsort(names, 5, sizeof(*names), mfs_str_order);
	for (int i = 0; i < 5; i++)
		ck_assert_str_eq(names[i], sorted[i]);
}
END_TEST

START_TEST(bytes_are_hexadecimal_digits_and_back)
{
	static const uint8_t bytes[] = {0x00, 0x0f, 0x10, 0x9a, 0xff};
	char text[11] = "..........";

	mfs_str_hex(bytes, sizeof(bytes), text);
	ck_assert_str_eq(text, "000f109aff");
	mfs_str_hex(bytes, 0, text);
	ck_assert_str_eq(text, "");
	for (int c = 0; c < 256; c++) {
		const char *at = c ? strchr("0123456789abcdefABCDEF", c) : NULL;
		ck_assert_int_eq(mfs_str_digit((char)c),
				 at ? (int)strtol((char[]){(char)c, 0}, NULL, 16) : -1);
	}
}
END_TEST

START_TEST(base_and_parent)
{
	static const struct {
		const char *path, *base, *parent;
	} cases[] = {
		{"name", "name", "."},	   {"/name", "name", "/"}, {"a/b/name", "name", "a/b"},
		{"/a/name", "name", "/a"}, {"a/", "", "a"},	   {"/", "", "/"},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		char *parent = mfs_path_parent(cases[i].path);

		ck_assert_str_eq(parent, cases[i].parent);
		ck_assert_str_eq(mfs_path_base(cases[i].path), cases[i].base);
		free(parent);
	}
}
END_TEST

START_TEST(a_path_contains_what_is_below_it)
{
	ck_assert(mfs_path_contains("/a", "/a"));
	ck_assert(mfs_path_contains("/a", "/a/b"));
	ck_assert(!mfs_path_contains("/a", "/ab"));
	ck_assert(!mfs_path_contains("/a/b", "/a"));
	ck_assert(mfs_path_contains("/", "/a"));
	ck_assert(mfs_path_contains("/", "/"));
}
END_TEST

static const struct {
	const char *text, *shown;
} names[] = {
	{"plain name-1.txt", "plain name-1.txt"},
	{"\x1b[31mred\n\x7f", "?[31mred??"},
	{"\xff\x9b"
	 "2J",
	 "??2J"},
	{"\xc2\x9b"
	 "2J",
	 "??2J"}, /* U+009B */
	{"\xc2\xa0\xc3\xa9 \xe2\x94\x82 \xf0\x9f\x98\x80",
	 "\xc2\xa0\xc3\xa9 \xe2\x94\x82 \xf0\x9f\x98\x80"},
	{"\xc3", "?"},
	{"\xe2\x94", "??"},
	{"\xc0\x9b", "??"}, /* too long a form */
	{"", ""},
};

START_TEST(control_characters_are_not_printed)
{
	char text[64];

	snprintf(text, sizeof(text), "%s", names[_i].text);
	mfs_str_printable(text);
	ck_assert_str_eq(text, names[_i].shown);
}
END_TEST

START_TEST(times_are_nanoseconds_that_do_not_go_back)
{
	const int64_t before = mfs_now_ns();

	ck_assert(mfs_ns((struct timespec){3, 7}) == 3000000007);
	ck_assert(mfs_ns((struct timespec){-1, 999999999}) == -1);
	ck_assert(before > 0 && mfs_now_ns() >= before);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("str");
	TCase *path = unit_case(s, "path", base_and_parent);
	TCase *str = unit_case(s, "str", null_is_equal_to_no_text);

	tcase_add_test(path, a_path_contains_what_is_below_it);
	tcase_add_test(str, a_suffix_is_found_at_the_end_alone);
	tcase_add_test(str, order_is_that_of_bytes);
	tcase_add_test(str, bytes_are_hexadecimal_digits_and_back);
	tcase_add_loop_test(str, control_characters_are_not_printed, 0, MFS_ARRAY_SIZE(names));
	unit_case(s, "clock", times_are_nanoseconds_that_do_not_go_back);
	return s;
}
