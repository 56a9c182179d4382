/* Byte sources of memory and of parts: formats/io/source.h. Files: test_fileset.c. */
#include "tests/unit/unit.h"

#include <stdbool.h>
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

/* Counts who reads where the bytes are. */
static int count_read(const struct mfs_source *s, uint64_t off, void *buf, size_t len,
		      struct mfs_error *err)
{
	(void)err;
	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = (uint8_t)((off + i) % 251);
	++*(unsigned *)(uintptr_t)s->object;
	return 0;
}

START_TEST(ends_are_read_once)
{
	static const struct mfs_source_ops ops = {.read = count_read};
	static const uint64_t sizes[] = {0,
					 1,
					 MFS_SOURCE_END,
					 2 * MFS_SOURCE_END,
					 2 * MFS_SOURCE_END + 1,
					 5 * MFS_SOURCE_END};
	const uint64_t size = sizes[_i];
	unsigned reads = 0;
	const struct mfs_source all = {
		.ops = &ops, .name = "counted", .base = 7, .size = size, .object = &reads};
	struct mfs_source_ends ends;
	struct mfs_source s;
	struct mfs_error err = {0};
	const unsigned most = size > 2 * MFS_SOURCE_END ? 2 : size != 0;
	uint8_t buf[MFS_SOURCE_END];

	unit_ok(mfs_source_ends_init(&ends, &all, &s, &err), &err);
	for (uint64_t at = 0; at < size; at += 5) {
		const size_t len = size - at < 100 ? size - at : 100;
		const bool inside = size <= 2 * MFS_SOURCE_END || at + len <= MFS_SOURCE_END ||
				    at >= size - MFS_SOURCE_END;
		const unsigned before = reads;

		unit_ok(mfs_source_read(&s, at, buf, len, &err), &err);
		for (size_t i = 0; i < len; i++)
			ck_assert_uint_eq(buf[i], (7 + at + i) % 251);
		ck_assert_uint_eq(reads, before + !inside);
	}
	ck_assert_uint_ge(reads, most);
	unit_fails(mfs_source_read(&s, size, buf, 1, &err), &err, -EINVAL, "counted");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("source");
	TCase *c = unit_case(s, "memory", reads_inside);

	tcase_add_test(c, refuses_outside);
	tcase_add_test(c, part_of_a_part);
	tcase_add_loop_test(c, ends_are_read_once, 0, 6);
	return s;
}
