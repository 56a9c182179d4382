/* Growable buffer and JSON strings: formats/base/buf.h. */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "formats/base/buf.h"

START_TEST(grows_and_stays_terminated)
{
	struct mfs_buf b = {0};

	for (int i = 0; i < 5000; i++)
		mfs_buf_printf(&b, "%04d", i);
	ck_assert(!b.failed);
	ck_assert_uint_eq(b.len, 20000);
	ck_assert_uint_eq(strlen(b.data), 20000);
	ck_assert(!memcmp(b.data + 4 * 4321, "4321", 4));
	mfs_buf_release(&b);
	ck_assert_ptr_null(b.data);
}
END_TEST

START_TEST(bytes_with_nul)
{
	struct mfs_buf b = {0};

	mfs_buf_add(&b, "a\0b", 3);
	mfs_buf_add(&b, NULL, 0);
	mfs_buf_adds(&b, "c");
	ck_assert_uint_eq(b.len, 4);
	ck_assert(!memcmp(b.data, "a\0bc", 5));
	mfs_buf_release(&b);
}
END_TEST

START_TEST(failure_is_sticky)
{
	struct mfs_buf b = {0};

	mfs_buf_adds(&b, "before");
	mfs_buf_add(&b, "x", SIZE_MAX - 3);
	ck_assert(b.failed);
	mfs_buf_adds(&b, "after");
	mfs_buf_printf(&b, "%d", 1);
	ck_assert_str_eq(b.data, "before");
	mfs_buf_release(&b);
}
END_TEST

/* Every string of one to three bytes of a nasty alphabet comes back from a JSON parser. */
START_TEST(json_strings_read_back)
{
	static const char alphabet[] = "a\"\\/\b\f\n\r\t\x01\x1f\x7f{";
	char text[4] = "";

	for (size_t i = 0; i < sizeof alphabet * sizeof alphabet * sizeof alphabet; i++) {
		struct mfs_buf b = {0};
		json_t *value;

		text[0] = alphabet[i % sizeof alphabet];
		text[1] = alphabet[i / sizeof alphabet % sizeof alphabet];
		text[2] = alphabet[i / sizeof alphabet / sizeof alphabet];
		mfs_buf_add_json(&b, text);
		value = json_loadb(b.data, b.len, JSON_DECODE_ANY, NULL);
		ck_assert_msg(value != NULL, "no JSON: %s", b.data);
		ck_assert_str_eq(json_string_value(value), text);
		json_decref(value);
		mfs_buf_release(&b);
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("buf");
	TCase *c = unit_case(s, "buf", grows_and_stays_terminated);

	tcase_add_test(c, bytes_with_nul);
	tcase_add_test(c, failure_is_sticky);
	tcase_add_test(c, json_strings_read_back);
	return s;
}
