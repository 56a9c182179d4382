/* Error records: formats/base/error.h. */
#include "tests/unit/unit.h"

#include <string.h>

#include "formats/base/error.h"

START_TEST(fills_code_and_sentence)
{
	struct mfs_error err = {0};

	ck_assert_int_eq(mfs_fail(&err, -EINVAL, "\"%s\" has %d axes", "w", 9), -EINVAL);
	ck_assert_int_eq(err.code, -EINVAL);
	ck_assert_str_eq(err.msg, "\"w\" has 9 axes");
}
END_TEST

START_TEST(null_record_is_allowed)
{
	ck_assert_int_eq(mfs_fail(NULL, -EIO, "unseen"), -EIO);
	ck_assert_int_lt(mfs_fail_in(NULL, "unseen"), 0);
	ck_assert_int_eq(mfs_fail_nomem(NULL), -ENOMEM);
}
END_TEST

START_TEST(errno_is_code_and_sentence)
{
	struct mfs_error err = {0};

	errno = ENOENT;
	ck_assert_int_eq(mfs_fail_errno(&err, "cannot open '%s%d'", "x", 7), -ENOENT);
	ck_assert_int_eq(err.code, -ENOENT);
	ck_assert_str_eq(err.msg, "cannot open 'x7': No such file or directory");
	errno = EACCES;
	ck_assert_int_eq(mfs_fail_errno(&err, "cannot start"), -EACCES);
	ck_assert_str_eq(err.msg, "cannot start: Permission denied");
	ck_assert_int_eq(mfs_fail_errno(NULL, "unseen"), -EACCES);
}
END_TEST

START_TEST(prefix_keeps_code_and_order)
{
	struct mfs_error err = {0};

	mfs_error_set(&err, -ESTALE, "changed");
	ck_assert_int_eq(mfs_fail_in(&err, "rank %d", 3), -ESTALE);
	ck_assert_str_eq(err.msg, "rank 3: changed");
	ck_assert_int_eq(mfs_fail_in(&err, "iter_7"), -ESTALE);
	ck_assert_str_eq(err.msg, "iter_7: rank 3: changed");
}
END_TEST

START_TEST(prefix_without_message_is_eio)
{
	struct mfs_error err = {0};

	ck_assert_int_eq(mfs_fail_in(&err, "a file"), -EIO);
}
END_TEST

START_TEST(long_messages_are_cut)
{
	struct mfs_error err = {0};
	char text[2000];

	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	mfs_error_set(&err, -EINVAL, "%s", text);
	ck_assert_uint_lt(strlen(err.msg), sizeof err.msg);
	mfs_fail_in(&err, "%s", text);
	ck_assert_uint_lt(strlen(err.msg), sizeof err.msg);
	ck_assert_int_eq(err.code, -EINVAL);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("error");
	TCase *c = unit_case(s, "record", fills_code_and_sentence);

	tcase_add_test(c, null_record_is_allowed);
	tcase_add_test(c, errno_is_code_and_sentence);
	tcase_add_test(c, prefix_keeps_code_and_order);
	tcase_add_test(c, prefix_without_message_is_eio);
	tcase_add_test(c, long_messages_are_cut);
	return s;
}
