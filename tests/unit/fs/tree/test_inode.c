/* Inode numbers: fs/tree/inode.h. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fs/tree/inode.h"

/* A number that a mount has shown once is a promise: backups and caches hold it. */
START_TEST(numbers_are_fixed)
{
	ck_assert_uint_eq(mfs_inode_number("/"), MFS_INODE_ROOT);
	ck_assert_uint_eq(mfs_inode_number("/iter_0000040/hf/config.json"),
			  12982334438197048425ull);
	ck_assert_uint_ne(mfs_inode_number("/latest"), mfs_inode_number("/latesu"));
}
END_TEST

START_TEST(a_number_is_of_one_name)
{
	struct mfs_inode_set set = {0};
	char again[] = "/a";

	ck_assert_int_eq(mfs_inode_claim(&set, 7, "/a"), 0);
	ck_assert_int_eq(mfs_inode_claim(&set, 7, again), 0);
	ck_assert_int_eq(mfs_inode_claim(&set, 7, "/b"), -EEXIST);
	ck_assert_int_eq(mfs_inode_claim(&set, 8, "/b"), 0);
	ck_assert_uint_eq(set.count, 2);
	mfs_inode_set_release(&set);
	ck_assert_uint_eq(set.count, 0);
}
END_TEST

START_TEST(many_claims)
{
	enum { COUNT = 20000 };
	char(*paths)[32] = calloc(COUNT, sizeof(*paths));
	struct mfs_inode_set set = {0};

	for (int i = 0; i < COUNT; i++) {
		snprintf(paths[i], sizeof(paths[i]), "/iter/hf/model-%05d", i);
		ck_assert_int_eq(mfs_inode_claim(&set, mfs_inode_number(paths[i]), paths[i]), 0);
	}
	for (int i = 0; i < COUNT; i++)
		ck_assert_int_eq(mfs_inode_claim(&set, mfs_inode_number(paths[i]), "/other"),
				 -EEXIST);
	ck_assert_uint_eq(set.count, COUNT);
	mfs_inode_set_release(&set);
	free(paths);
}
END_TEST

/* Numbers that are given back leave all others where they are found. */
START_TEST(released_claims)
{
	enum { COUNT = 3000 };
	struct mfs_inode_set set = {0};
	char path[32];

	ck_assert_int_eq(mfs_inode_claim(&set, 7, "/a"), 0);
	ck_assert_int_eq(mfs_inode_claim(&set, 7, "/a"), 0);
	mfs_inode_release(&set, 7);
	ck_assert_int_eq(mfs_inode_claim(&set, 7, "/b"), -EEXIST);
	mfs_inode_release(&set, 7);
	mfs_inode_release(&set, 7);
	ck_assert_int_eq(mfs_inode_claim(&set, 7, "/b"), 0);
	mfs_inode_release(&set, 7);
	ck_assert_uint_eq(set.count, 0);
	for (unsigned i = 0; i < COUNT; i++) {
		snprintf(path, sizeof(path), "/%u", i);
		/* Many of one place, and across the end of the table. */
		ck_assert_int_eq(mfs_inode_claim(&set, i % 5 ? ~0ull - i : 8192 * i + 8190, path),
				 0);
	}
	for (unsigned i = 0; i < COUNT; i += 2)
		mfs_inode_release(&set, i % 5 ? ~0ull - i : 8192 * i + 8190);
	ck_assert_uint_eq(set.count, COUNT / 2);
	for (unsigned i = 1; i < COUNT; i += 2)
		ck_assert_int_eq(mfs_inode_claim(&set, i % 5 ? ~0ull - i : 8192 * i + 8190, "/x"),
				 -EEXIST);
	for (unsigned i = 0; i < COUNT; i += 2)
		ck_assert_int_eq(mfs_inode_claim(&set, i % 5 ? ~0ull - i : 8192 * i + 8190, "/x"),
				 0);
	mfs_inode_set_release(&set);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("inode");
	TCase *c = unit_case(s, "numbers", numbers_are_fixed);

	tcase_add_test(c, a_number_is_of_one_name);
	tcase_add_test(c, many_claims);
	tcase_add_test(c, released_claims);
	return s;
}
