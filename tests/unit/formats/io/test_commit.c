/* Atomic replacement of files and directories: formats/io/commit.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/io/commit.h"

static char base[300];
static int dir; /* the same, open */

/* Path of name in a directory of this test's own, in one of four static buffers. */
static const char *at(const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", base, name);
	return path;
}

static void new_base(void)
{
	snprintf(base, sizeof(base), "%s", unit_tmpdir());
	dir = open(base, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dir, 0);
}

static void close_base(void)
{
	close(dir);
}

static void make_dir(const char *name, const char *content)
{
	ck_assert_int_eq(mkdir(at(name), 0755), 0);
	if (content)
		unit_write(at(name), "file", content, strlen(content));
}

static void check_content(const char *name, const char *want)
{
	size_t len;
	uint8_t *got = unit_slurp(at(name), &len);

	ck_assert_uint_eq(len, strlen(want));
	ck_assert_int_eq(memcmp(got, want, len), 0);
	free(got);
}

START_TEST(file_is_replaced)
{
	struct mfs_error err;

	unit_ok(mfs_commit_file(dir, "journal", "first", 5, &err), &err);
	check_content("journal", "first");
	unit_ok(mfs_commit_file(dir, "journal", "2nd", 3, &err), &err);
	check_content("journal", "2nd");
	ck_assert_int_ne(access(at("journal.tmp"), F_OK), 0);
}
END_TEST

START_TEST(file_failure_keeps_the_old_one)
{
	struct mfs_error err;

	unit_write(base, "journal", "old", 3);
	make_dir("journal.tmp", NULL);
	unit_fails(mfs_commit_file(dir, "journal", "new", 3, &err), &err, -EISDIR, "journal");
	check_content("journal", "old");
}
END_TEST

/* "journal.tmp" may be a second name of somebody's file, or lead to one. */
START_TEST(file_is_new)
{
	struct mfs_error err;

	unit_write(base, "victim", "mine", 4);
	for (int i = 0; i < 2; i++) {
		if (i)
			ck_assert_int_eq(symlink(at("victim"), at("journal.tmp")), 0);
		else
			ck_assert_int_eq(link(at("victim"), at("journal.tmp")), 0);
		unit_ok(mfs_commit_file(dir, "journal", "new", 3, &err), &err);
		check_content("journal", "new");
		check_content("victim", "mine");
	}
	unlink(at("journal"));
	ck_assert_int_eq(symlink(at("victim"), at("journal")), 0);
	unit_ok(mfs_commit_file(dir, "journal", "new", 3, &err), &err);
	check_content("journal", "new");
	check_content("victim", "mine");
}
END_TEST

/* What a link at the new name leads to is neither moved nor removed. */
START_TEST(link_is_exchanged)
{
	bool replaced = false;
	char target[8] = "";
	struct mfs_error err;

	make_dir("new", "a");
	make_dir("victim", "b");
	ck_assert_int_eq(symlink("victim", at("name")), 0);
	unit_ok(mfs_commit_dir(dir, "new", "name", true, &replaced, &err), &err);
	ck_assert(replaced);
	check_content("name/file", "a");
	check_content("victim/file", "b");
	ck_assert_int_eq(readlink(at("new"), target, sizeof(target)), 6);
}
END_TEST

START_TEST(directory_takes_its_name)
{
	bool replaced = true;
	struct mfs_error err;

	make_dir("new", "a");
	unit_ok(mfs_commit_dir(dir, "new", "name", false, &replaced, &err), &err);
	ck_assert(!replaced);
	check_content("name/file", "a");
	ck_assert_int_ne(access(at("new"), F_OK), 0);
}
END_TEST

START_TEST(empty_directory_gives_way)
{
	bool replaced = true;
	struct mfs_error err;

	make_dir("new", "a");
	make_dir("name", NULL);
	unit_ok(mfs_commit_dir(dir, "new", "name", false, &replaced, &err), &err);
	ck_assert(!replaced);
	check_content("name/file", "a");
}
END_TEST

START_TEST(full_directory_stays)
{
	bool replaced = false;
	struct mfs_error err;

	make_dir("new", "a");
	make_dir("name", "b");
	unit_fails(mfs_commit_dir(dir, "new", "name", false, &replaced, &err), &err, -EEXIST,
		   "name");
	check_content("name/file", "b");
	check_content("new/file", "a");
}
END_TEST

START_TEST(full_directory_is_exchanged)
{
	bool replaced = false;
	struct mfs_error err;

	make_dir("new", "a");
	make_dir("name", "b");
	unit_ok(mfs_commit_dir(dir, "new", "name", true, &replaced, &err), &err);
	ck_assert(replaced);
	check_content("name/file", "a");
	check_content("new/file", "b");
}
END_TEST

START_TEST(missing_names_are_told)
{
	bool replaced;
	struct mfs_error err;

	unit_fails(mfs_commit_dir(dir, "none", "name", false, &replaced, &err), &err, -ENOENT,
		   "none");
	make_dir("new", "a");
	unit_fails(mfs_commit_dir(dir, "new", "no/name", false, &replaced, &err), &err, -ENOENT,
		   "no/name");
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("commit");
	TCase *c = unit_case(s, "core", file_is_replaced);

	tcase_add_checked_fixture(c, new_base, close_base);
	tcase_add_test(c, file_failure_keeps_the_old_one);
	tcase_add_test(c, file_is_new);
	tcase_add_test(c, link_is_exchanged);
	tcase_add_test(c, directory_takes_its_name);
	tcase_add_test(c, empty_directory_gives_way);
	tcase_add_test(c, full_directory_stays);
	tcase_add_test(c, full_directory_is_exchanged);
	tcase_add_test(c, missing_names_are_told);
	return s;
}
