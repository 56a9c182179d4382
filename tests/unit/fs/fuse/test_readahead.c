/* Read-ahead of one open file: fs/fuse/readahead.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "fs/fuse/readahead.h"

#define MIB (1ull << 20)

static struct mfs_vfile *new_file(uint64_t size)
{
	struct mfs_error err;
	struct mfs_vfile *f;

	unit_ok(mfs_vfile_new(&f, &err), &err);
	unit_ok(mfs_vfile_add_literal(f, calloc(1, size), size, &err), &err);
	return f;
}

START_TEST(sequence_is_followed)
{
	struct mfs_vfile *f = new_file(256 * MIB);
	struct mfs_readahead ra = {0};

	for (uint64_t off = 0; off < 200 * MIB; off += MIB) {
		mfs_readahead_next(&ra, f, off, MIB);
		ck_assert_uint_ge(ra.front, off + MIB + ra.window / 2);
		ck_assert_uint_le(ra.window, 32 * MIB);
	}
	ck_assert_uint_eq(ra.window, 32 * MIB);
	mfs_vfile_free(f);
}
END_TEST

/* What the kernel has in flight arrives in any order. */
START_TEST(disorder_is_a_sequence)
{
	struct mfs_vfile *f = new_file(64 * MIB);
	struct mfs_readahead ra = {0};

	for (uint64_t off = 0; off < 60 * MIB; off += 2 * MIB) {
		mfs_readahead_next(&ra, f, off + MIB, MIB);
		mfs_readahead_next(&ra, f, off, MIB);
	}
	ck_assert_uint_ge(ra.window, 16 * MIB);
	mfs_vfile_free(f);
}
END_TEST

START_TEST(random_is_not)
{
	struct mfs_vfile *f = new_file(256 * MIB);
	struct mfs_readahead ra = {0};

	for (uint64_t i = 1; i < 50; i++) {
		uint64_t off = i * 37 % 25 * 10 * MIB;

		mfs_readahead_next(&ra, f, off, 4096);
		ck_assert_uint_le(ra.front, off + 4096 + 4 * MIB);
	}
	mfs_readahead_next(&ra, f, 100 * MIB, 4096);
	mfs_readahead_next(&ra, f, 200 * MIB, 4096);
	ck_assert_uint_eq(ra.window, 0);
	mfs_vfile_free(f);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("readahead");
	TCase *c = unit_case(s, "window", sequence_is_followed);

	tcase_add_test(c, disorder_is_a_sequence);
	tcase_add_test(c, random_is_not);
	return s;
}
