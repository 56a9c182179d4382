/* Files of a view and their directories: fs/view/view.h, fs/view/build.h, fs/export/dir.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/io/fileset.h"
#include "fs/export/dir.h"
#include "fs/export/journal.h"
#include "fs/view/build.h"

static struct mfs_view *view_of(const char *const *names, size_t count)
{
	struct mfs_view *v = calloc(1, sizeof(*v));
	struct mfs_error err;

	ck_assert_ptr_nonnull(v);
	for (size_t i = 0; i < count; i++)
		unit_ok(mfs_view_add_bytes(v, names[i], strdup("x"), 1, &err), &err);
	return v;
}

#define VIEW_OF(names) view_of(names, MFS_ARRAY_SIZE(names))

static const char *const nested[] = {
	"iter_0000040/mp_rank_01/model_optim_rng.pt",
	"latest_checkpointed_iteration.txt",
	"iter_0000040/mp_rank_00/model_optim_rng.pt",
	"iter_0000040/mp_rank_00/distrib_optim.pt",
	"iter_0000040-/x",
	"iter_0000040/.metadata",
};

static int collect(void *arg, const char *dir)
{
	char *text = arg;

	strcat(strcat(text, dir), " ");
	return 0;
}

static int stop_at_second(void *arg, const char *dir)
{
	(void)dir;
	return ++*(int *)arg == 2 ? -77 : 0;
}

START_TEST(names_in_order)
{
	struct mfs_view *v = VIEW_OF(nested);
	char dirs[1000] = "";
	struct mfs_error err;
	int count = 0;

	unit_ok(mfs_view_finish(v, &err), &err);
	ck_assert_str_eq(v->files[0].name, "iter_0000040-/x");
	ck_assert_str_eq(v->files[1].name, "iter_0000040/.metadata");
	ck_assert_str_eq(v->files[5].name, "latest_checkpointed_iteration.txt");
	ck_assert_int_eq(mfs_view_each_dir(v, collect, dirs), 0);
	ck_assert_str_eq(dirs, "iter_0000040- iter_0000040 iter_0000040/mp_rank_00 "
			       "iter_0000040/mp_rank_01 ");
	ck_assert_int_eq(mfs_view_each_dir(v, stop_at_second, &count), -77);
	ck_assert_int_eq(count, 2);
	mfs_view_free(v);
}
END_TEST

START_TEST(names_that_cannot_be)
{
	static const char *const bad[] = {"",	"/",   "/a",   "a/",	 "a//b", ".",
					  "..", "a/.", "../a", "a/../b", "./a",	 "a/b/.."};
	static const char *const twice[] = {"a/b", "c", "a/b"};
	static const char *const both[] = {"a/b", "a-b", "a"};
	static const char *const fine[] = {"...", ".a", "a..", "b/...", "b/.hidden"};
	struct mfs_error err;
	struct mfs_view *v;
	char longest[400];

	for (size_t i = 0; i < MFS_ARRAY_SIZE(bad); i++) {
		v = view_of(&bad[i], 1);
		unit_fails(mfs_view_finish(v, &err), &err, -EINVAL, bad[i]);
		mfs_view_free(v);
	}
	v = VIEW_OF(twice);
	unit_fails(mfs_view_finish(v, &err), &err, -EINVAL, "a/b");
	mfs_view_free(v);
	v = VIEW_OF(both);
	unit_fails(mfs_view_finish(v, &err), &err, -EINVAL, "'a'");
	mfs_view_free(v);
	v = VIEW_OF(fine);
	unit_ok(mfs_view_finish(v, &err), &err);
	mfs_view_free(v);
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	v = view_of((const char *const[]){longest}, 1);
	unit_fails(mfs_view_finish(v, &err), &err, -EINVAL, NULL);
	mfs_view_free(v);
}
END_TEST

static int released;

static void count_release(struct mfs_view *v)
{
	released++;
	free(v);
}

START_TEST(a_view_is_released_once)
{
	struct mfs_view *v = VIEW_OF(nested);

	mfs_view_free(NULL);
	v->release = count_release;
	mfs_view_free(v);
	ck_assert_int_eq(released, 1);
}
END_TEST

/* The newest time; only what all files grant to all of their owners. */
START_TEST(a_view_has_the_newest_time_and_common_rights)
{
	const char *dir = unit_tmpdir();
	struct timespec times[2] = {{0},
				    {0}}; /* the epoch: no time at all, for who looks for zeros */
	struct mfs_fileset *set;
	struct mfs_error err;
	struct mfs_view v = {0};
	struct mfs_access told;
	struct stat st;
	uint32_t file;

	ck_assert_int_eq(chmod(dir, 0755), 0);
	unit_ok(mfs_fileset_new(dir, &set, &err), &err);
	for (int i = 0; i < 3; i++) {
		const char *name = (const char *const[]){"0", "1", "2"}[i];
		int fd = openat(open(dir, O_RDONLY), name, O_CREAT | O_WRONLY, 0600);

		times[1].tv_sec = i == 1 ? 1000 : 0;
		ck_assert_int_eq(futimens(fd, times), 0);
		ck_assert_int_eq(fchmod(fd, i ? 0444 : 0400), 0);
		close(fd);
		unit_ok(mfs_fileset_add(set, name, &file, &err), &err);
	}
	mfs_view_note_sources(&v, NULL);
	ck_assert_uint_eq(v.source_count, 0);
	mfs_view_note_sources(&v, set);
	ck_assert_uint_eq(v.source_count, 3);
	ck_assert_int_eq(v.mtime_ns, 1000 * 1000000000ll);
	ck_assert_uint_eq(v.granted, MFS_ACCESS_OWNER);
	told = mfs_access_told(&v.access);
	ck_assert_int_eq(stat(dir, &st), 0);
	ck_assert_uint_eq(told.mode, 0400);
	ck_assert_uint_eq(told.uid, st.st_uid);
	ck_assert_uint_eq(v.set_count, 1);
	ck_assert_ptr_eq(v.sets[0], set);
	free(v.sets);
	mfs_fileset_free(set);
}
END_TEST

/* ---- directories of an export ---- */

static const char *const exported[] = {"a/b/1", "a/b/2", "a/3", "4"};
static char base[300];
static struct mfs_view *view;

static void set_up(void)
{
	struct mfs_error err;

	snprintf(base, sizeof(base), "%s", unit_tmpdir());
	view = VIEW_OF(exported);
	unit_ok(mfs_view_finish(view, &err), &err);
}

static void tear_down(void)
{
	mfs_view_free(view);
}

/* Makes files, and directories, whose names end with '/'. */
static void make(const char *const *names, size_t count)
{
	char path[600];

	for (size_t i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s/%s", base, names[i]);
		if (path[strlen(path) - 1] == '/')
			ck_assert_msg(!mkdir(path, 0755) || errno == EEXIST, "%s", path);
		else
			unit_write(base, names[i], "x", 1);
	}
}

#define MAKE(...)                                                                                  \
	make((const char *const[]){__VA_ARGS__},                                                   \
	     sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static bool is_there(const char *name)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	return !access(path, F_OK);
}

START_TEST(making_directories)
{
	int dirfd = open(base, O_RDONLY | O_DIRECTORY);
	struct mfs_error err;

	unit_ok(mfs_export_make_dirs(dirfd, view, &err), &err);
	ck_assert(is_there("a/b/"));
	unit_ok(mfs_export_make_dirs(dirfd, view, &err), &err);
	unit_ok(mfs_export_sync_dirs(dirfd, view, &err), &err);
	ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_KNOWN, &err), 0);
	ck_assert(!is_there("a"));
	unit_fails(mfs_export_sync_dirs(dirfd, view, &err), &err, -ENOENT, "'a'");
	MAKE("a");
	unit_fails(mfs_export_make_dirs(dirfd, view, &err), &err, -ENOTDIR, "'a'");
	close(dirfd);
}
END_TEST

static void mark(const char *name)
{
	char path[600];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", base, name);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	mfs_export_mark(fd);
	close(fd);
}

static bool has_marks(void)
{
	return getxattr(base, MFS_EXPORT_MARK, NULL, 0) >= 0 || errno != EOPNOTSUPP;
}

/* As an export leaves what it makes; where marks cannot be, it has the view's names. */
static void mark_all(const char *const *names)
{
	while (*names)
		mark(*names++);
}

START_TEST(sweeping_what_is_foreign)
{
	MAKE("a/", "a/b/", "a/b/1", "a/b/5", "a/c/", "a/c/1", "4", "6", MFS_EXPORT_JOURNAL,
	     "a/" MFS_EXPORT_JOURNAL, "d/", "d/4");
	ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_FOREIGN, NULL), 0);
	ck_assert(is_there("a/b/1") && is_there("4") && is_there(MFS_EXPORT_JOURNAL));
	ck_assert(!is_there("a/b/5") && !is_there("a/c") && !is_there("6") && !is_there("d"));
	ck_assert(!is_there("a/" MFS_EXPORT_JOURNAL));
	ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_ALL, NULL), 0);
	ck_assert(!is_there("a") && !is_there("4") && !is_there(MFS_EXPORT_JOURNAL));
}
END_TEST

/* What is a person's stops it, and links lead nowhere. */
START_TEST(sweeping_what_is_known)
{
	char link[600], target[600];
	struct mfs_error err;

	MAKE("a/", "a/b/", "a/b/1", "4", MFS_EXPORT_JOURNAL);
	mark_all((const char *[]){"a", "a/b", "a/b/1", "4", NULL});
	unit_ok(mfs_export_check_known(AT_FDCWD, base, view, &err), &err);
	MAKE("a/x");
	unit_fails(mfs_export_check_known(AT_FDCWD, base, view, &err), &err, -EEXIST, "'a/x'");
	unit_fails(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_KNOWN, &err), &err, -EEXIST,
		   "'a/x'");
	ck_assert(is_there("a/x") && is_there("a/b/1") && is_there("4"));
	snprintf(target, sizeof(target), "%s/a/x", base);
	ck_assert_int_eq(unlink(target), 0);
	MAKE("mine/");
	unit_fails(mfs_export_check_known(AT_FDCWD, base, view, &err), &err, -EEXIST, "'mine'");
	MAKE("mine/1");
	unit_fails(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_KNOWN, &err), &err, -EEXIST,
		   "'mine'");
	ck_assert(is_there("mine/1") && is_there("4"));

	snprintf(target, sizeof(target), "%s/mine", base);
	MAKE("a/", "a/b/");
	snprintf(link, sizeof(link), "%s/a/b/link", base);
	ck_assert_int_eq(symlink(target, link), 0);
	snprintf(link, sizeof(link), "%s/a", base);
	ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, link, view, MFS_SWEEP_ALL, NULL), 0);
	ck_assert(!is_there("a/b") && is_there("mine/1"));
	ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_ALL, NULL), 0);
	ck_assert(!is_there("mine"));
	snprintf(link, sizeof(link), "%s/none", base);
	ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, link, view, MFS_SWEEP_ALL, NULL), -ENOENT);
}
END_TEST

/* What bears the mark is known, whatever its name; without marks the view's names are; links never
 * are. */
START_TEST(what_an_export_has_left)
{
	struct mfs_error err;
	char link[600];

	MAKE("a/", "a/b/", "a/b/1", "old/", "old/1", "old-4");
	if (has_marks())
		unit_fails(mfs_export_check_known(AT_FDCWD, base, view, &err), &err, -EEXIST, NULL);
	mark_all((const char *[]){"a", "a/b", "a/b/1", "old", "old/1", NULL});
	if (has_marks())
		unit_fails(mfs_export_check_known(AT_FDCWD, base, view, &err), &err, -EEXIST,
			   "'old-4'");
	else
		unit_fails(mfs_export_check_known(AT_FDCWD, base, view, &err), &err, -EEXIST,
			   "'old");
	mark("old-4");
	if (has_marks())
		unit_ok(mfs_export_check_known(AT_FDCWD, base, view, &err), &err);
	snprintf(link, sizeof(link), "%s/4", base);
	ck_assert_int_eq(symlink("old-4", link), 0);
	unit_fails(mfs_export_check_known(AT_FDCWD, base, view, &err), &err, -EEXIST,
		   has_marks() ? "'4'" : NULL);
	ck_assert_int_eq(unlink(link), 0);
	if (has_marks())
		ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_KNOWN, &err), 0);
	ck_assert(is_there("a") == !has_marks());
	ck_assert_int_eq(mfs_export_sweep(AT_FDCWD, base, view, MFS_SWEEP_ALL, &err), 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("view");
	TCase *c = unit_case(s, "files", names_in_order);

	tcase_add_test(c, names_that_cannot_be);
	tcase_add_test(c, a_view_is_released_once);
	tcase_add_test(c, a_view_has_the_newest_time_and_common_rights);
	c = unit_case(s, "export", making_directories);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, sweeping_what_is_foreign);
	tcase_add_test(c, sweeping_what_is_known);
	tcase_add_test(c, what_an_export_has_left);
	return s;
}
