/* Byte sources of memory and of parts: formats/io/source.h. Files: test_fileset.c. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/io/source.h"

static const char text[] = "0123456789";

START_TEST(reads_inside)
{
	struct mfs_source s = mfs_source_memory(text, 10, "text");
	struct mfs_error err = {0};
	char buf[11] = "";

	unit_ok(mfs_source_read(&s, 0, buf, 10, &err), &err);
	ck_assert_str_eq(buf, text);
	unit_ok(mfs_source_read(&s, 9, buf, 1, &err), &err);
	ck_assert_int_eq(buf[0], '9');
	unit_ok(mfs_source_read(&s, 10, buf, 0, &err), &err);
}
END_TEST

START_TEST(refuses_outside)
{
	struct mfs_source s = mfs_source_memory(text, 10, "text");
	struct mfs_error err = {0};
	void *bytes = NULL;
	char buf[16];

	unit_fails(mfs_source_read(&s, 1, buf, 10, &err), &err, -EINVAL, "text");
	unit_fails(mfs_source_read(&s, UINT64_MAX, buf, 2, &err), &err, -EINVAL, "text");
	unit_fails(mfs_source_slurp(&s, 0, 1ull << 60, &bytes, &err), &err, -EINVAL, "text");
	unit_fails(mfs_source_slurp(&s, 11, 0, &bytes, &err), &err, -EINVAL, "text");
	ck_assert_ptr_null(bytes);
}
END_TEST

START_TEST(part_of_a_part)
{
	struct mfs_source s = mfs_source_memory(text, 10, "text"), part, inner;
	struct mfs_error err = {0};
	void *bytes;

	part = mfs_source_range(&s, 2, 6);
	inner = mfs_source_range(&part, 1, 3);
	unit_ok(mfs_source_slurp(&inner, 0, 3, &bytes, &err), &err);
	ck_assert(!memcmp(bytes, "345", 3));
	free(bytes);
	unit_fails(mfs_source_slurp(&inner, 1, 3, &bytes, &err), &err, -EINVAL, NULL);
	unit_ok(mfs_source_slurp(&part, 6, 0, &bytes, &err), &err);
	free(bytes);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("source");
	TCase *c = unit_case(s, "memory", reads_inside);

	tcase_add_test(c, refuses_outside);
	tcase_add_test(c, part_of_a_part);
	return s;
}
