/* Files written next to a dataset: fs/overlay/overlay.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "fs/overlay/overlay.h"

#define HF "tales/hf"

static const struct mfs_overlay_new by_tempfile = {O_RDWR | O_CREAT | O_EXCL, 0600, 0, 0, NULL};
static const struct mfs_overlay_new by_open = {O_WRONLY | O_CREAT | O_TRUNC, 0644, 0, 0, NULL};

static const char *below(const char *name)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", unit_tmpdir(), name);
	return path;
}

/* Of a DIR that is empty when a test begins: tests run in processes of their own. */
static struct mfs_overlay *open_overlay(void)
{
	struct mfs_error err = {0};
	struct mfs_overlay *o;

	unit_ok(mfs_overlay_open(below("dir"), false, &o, &err), &err);
	return o;
}

static struct mfs_overlay_file *write_file(struct mfs_overlay *o, const char *path,
					   const char *name, const char *text)
{
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;
	int fd;

	unit_ok(mfs_overlay_create(o, path, name, &by_open, &f, &fd, &err), &err);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	return f;
}

static struct mfs_overlay_file *look_up(struct mfs_overlay *o, const char *path, const char *name)
{
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;

	unit_ok(mfs_overlay_lookup(o, path, name, &f, &err), &err);
	return f;
}

static void expect_text(struct mfs_overlay *o, struct mfs_overlay_file *f, const char *text)
{
	char buf[64] = "";
	bool same;
	int fd;

	ck_assert_int_eq(mfs_overlay_file_open(o, f, O_RDONLY, &fd, &same), 0);
	ck_assert_int_ge(read(fd, buf, sizeof(buf) - 1), 0);
	close(fd);
	ck_assert_str_eq(buf, text);
}

static void expect_stored(const char *name, const char *text)
{
	size_t len;
	uint8_t *bytes = unit_slurp(below(name), &len);

	ck_assert_uint_eq(len, strlen(text));
	ck_assert_mem_eq(bytes, text, len);
	free(bytes);
}

static unsigned open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

/* Names that datasets and Python's tempfile make, and others. */
START_TEST(only_cache_files_are_taken)
{
	ck_assert(mfs_overlay_takes("cache-6f0a1b2c3d4e5f60.arrow"));
	ck_assert(mfs_overlay_takes("cache-6f0a1b2c3d4e5f60_00001_of_00002.arrow"));
	ck_assert(mfs_overlay_takes("tmp_8x3kq0z"));
	ck_assert(!mfs_overlay_takes("tmp"));
	ck_assert(!mfs_overlay_takes("cache"));
	ck_assert(!mfs_overlay_takes("state.json"));
	ck_assert(!mfs_overlay_takes("data-00000-of-00001.arrow"));
	ck_assert(!mfs_overlay_takes(".tmp1"));
}
END_TEST

START_TEST(what_datasets_does)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_error err = {0};
	struct mfs_overlay_file *f, *g;
	struct stat st;
	int fd;

	umask(077);
	unit_ok(mfs_overlay_create(o, HF, "tmpabcdefgh", &by_tempfile, &f, &fd, &err), &err);
	ck_assert_int_eq(mfs_overlay_file_stat(f, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	g = write_file(o, HF, "tmpabcdefgh", "arrow"); /* is there by now */
	ck_assert_ptr_eq(f, g);
	close(fd);
	ck_assert_int_eq(mfs_overlay_rename(o, HF, "tmpabcdefgh", HF, "cache-1.arrow", NULL, 0), 0);
	ck_assert_int_eq(mfs_overlay_file_chmod(f, 0644), 0);
	g = look_up(o, HF, "cache-1.arrow");
	ck_assert_ptr_eq(f, g);
	ck_assert_int_eq(mfs_overlay_file_stat(f, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0644);
	mfs_overlay_forget(o, f, 3);
	expect_stored("dir/tales/hf/cache-1.arrow", "arrow");
	ck_assert_int_eq(access(below("dir/tales/hf/tmpabcdefgh"), F_OK), -1);
	mfs_overlay_free(o);
}
END_TEST

START_TEST(modes_do_not_depend_on_the_umask)
{
	struct mfs_overlay_new how = {O_RDWR | O_CREAT, S_IFREG | 04666, 0, 0, NULL};
	struct mfs_overlay *o = open_overlay();
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;
	struct stat st;
	int fd;

	if (geteuid() == 0)
		how.uid = how.gid = 12345;
	umask(077);
	unit_ok(mfs_overlay_create(o, HF, "tmp1", &how, &f, &fd, &err), &err);
	ck_assert_int_eq(mfs_overlay_file_stat(f, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0666);
	ck_assert_uint_eq(st.st_uid, geteuid() ? geteuid() : 12345);
	close(fd);
	mfs_overlay_free(o);
}
END_TEST

START_TEST(directories_are_like_the_one_above)
{
	struct mfs_overlay *o = open_overlay();
	struct stat st;

	umask(077);
	ck_assert_int_eq(chmod(below("dir"), 01775), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(chown(below("dir"), 12345, 54321), 0);
	write_file(o, HF, "tmp1", "");
	ck_assert_int_eq(stat(below("dir/tales/hf"), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 01775);
	ck_assert_uint_eq(st.st_uid, geteuid() ? geteuid() : 12345);
	ck_assert_uint_eq(st.st_gid, geteuid() ? getegid() : 54321);
	mfs_overlay_free(o);
}
END_TEST

START_TEST(stays_for_the_next_mount)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;

	write_file(o, HF, "cache-1.arrow", "one");
	mfs_overlay_free(o);
	o = open_overlay();
	f = look_up(o, HF, "cache-1.arrow");
	expect_text(o, f, "one");
	unit_fails(mfs_overlay_lookup(o, "notes/hf", "cache-1.arrow", &f, &err), &err, -ENOENT,
		   "notes/hf");
	unit_fails(mfs_overlay_lookup(o, HF "/train", "cache-1.arrow", &f, &err), &err, -ENOENT,
		   "train");
	mfs_overlay_free(o);
}
END_TEST

/* A process that has a file open, or mapped, goes on with it. */
START_TEST(a_file_is_not_its_name)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_overlay_file *old = write_file(o, HF, "cache-1.arrow", "old");
	struct mfs_overlay_file *new = write_file(o, HF, "tmp1", "new");
	struct stat st;

	ck_assert_int_eq(mfs_overlay_rename(o, HF, "tmp1", HF, "cache-1.arrow", NULL, 0), 0);
	expect_text(o, old, "old");
	expect_text(o, new, "new");
	ck_assert_ptr_eq(look_up(o, HF, "cache-1.arrow"), new);
	ck_assert_int_eq(mfs_overlay_file_stat(old, &st), 0);
	ck_assert_uint_eq(st.st_nlink, 0);
	ck_assert_int_eq(mfs_overlay_unlink(o, HF, "cache-1.arrow"), 0);
	ck_assert_int_eq(mfs_overlay_unlink(o, HF, "cache-1.arrow"), -ENOENT);
	ck_assert_int_eq(mfs_overlay_file_truncate(new, 2), 0);
	expect_text(o, new, "ne");
	mfs_overlay_free(o);
}
END_TEST

START_TEST(an_exclusive_create_does_not_replace)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;
	int fd;

	write_file(o, HF, "tmp1", "text");
	write_file(o, HF, "cache-1.arrow", "kept");
	unit_fails(mfs_overlay_create(o, HF, "tmp1", &by_tempfile, &f, &fd, &err), &err, -EEXIST,
		   "tmp1");
	ck_assert_int_eq(
		mfs_overlay_rename(o, HF, "tmp1", HF, "cache-1.arrow", NULL, RENAME_NOREPLACE),
		-EEXIST);
	expect_stored("dir/tales/hf/tmp1", "text");
	expect_stored("dir/tales/hf/cache-1.arrow", "kept");
	mfs_overlay_free(o);
}
END_TEST

START_TEST(attributes_are_kept)
{
	const struct timespec times[2] = {{100, 1}, {200, 2}};
	const struct timespec later[2] = {{.tv_nsec = UTIME_OMIT}, {300, 3}};
	struct mfs_overlay *o = open_overlay();
	struct mfs_overlay_file *f = write_file(o, HF, "tmp1", "0123456789");
	struct stat st;

	ck_assert_int_eq(mfs_overlay_file_truncate(f, 4), 0);
	ck_assert_int_eq(mfs_overlay_file_utimens(f, times), 0);
	ck_assert_int_eq(mfs_overlay_file_utimens(f, later), 0);
	ck_assert_int_eq(mfs_overlay_file_chmod(f, 06640), 0);
	ck_assert_int_eq(mfs_overlay_file_chown(f, (uid_t)-1, (gid_t)-1), 0);
	ck_assert_int_eq(mfs_overlay_file_access(f, R_OK | W_OK), 0);
	ck_assert_int_eq(mfs_overlay_file_access(f, X_OK), -EACCES);
	ck_assert_int_eq(mfs_overlay_file_stat(f, &st), 0);
	ck_assert_int_eq(st.st_size, 4);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0640);
	ck_assert_int_eq(st.st_atim.tv_sec, 100);
	ck_assert_int_eq(st.st_mtim.tv_sec, 300);
	ck_assert_int_eq(st.st_mtim.tv_nsec, 3);
	mfs_overlay_free(o);
}
END_TEST

/* What a page cache may keep from one open to the next. */
START_TEST(same_bytes_as_before)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_overlay_file *f = write_file(o, HF, "cache-1.arrow", "one");
	const bool expected[] = {false, true, false, true};
	bool same;
	int fd;

	for (unsigned i = 0; i < 4; i++) {
		if (i == 2)
			unit_write(below("dir/tales/hf"), "cache-1.arrow", "other", 5);
		ck_assert_int_eq(mfs_overlay_file_open(o, f, O_RDONLY, &fd, &same), 0);
		ck_assert_msg(same == expected[i], "open number %u", i);
		close(fd);
	}
	mfs_overlay_free(o);
}
END_TEST

START_TEST(names_are_listed_in_order)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_overlay_names names;
	struct mfs_error err = {0};

	unit_ok(mfs_overlay_list(o, HF, &names, &err), &err);
	ck_assert_uint_eq(names.count, 0);
	write_file(o, HF, "tmp1", "");
	write_file(o, HF, "cache-2.arrow", "");
	write_file(o, HF, "cache-1.arrow", "");
	write_file(o, HF "/train", "cache-3.arrow", "");
	unit_write(below("dir/tales/hf"), "other", "", 0);
	ck_assert_int_eq(symlink("other", below("dir/tales/hf/cache-link")), 0);
	ck_assert_int_eq(mkdir(below("dir/tales/hf/cache-dir"), 0700), 0);
	ck_assert_int_eq(mkfifo(below("dir/tales/hf/tmp-pipe"), 0600), 0);
	unit_ok(mfs_overlay_list(o, HF, &names, &err), &err);
	ck_assert_uint_eq(names.count, 3);
	ck_assert_str_eq(names.entries[0].name, "cache-1.arrow");
	ck_assert_str_eq(names.entries[1].name, "cache-2.arrow");
	ck_assert_str_eq(names.entries[2].name, "tmp1");
	mfs_overlay_names_release(&names);
	mfs_overlay_free(o);
}
END_TEST

START_TEST(symbolic_links_are_not_followed)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_overlay_names names;
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;
	int fd;

	write_file(o, HF, "tmp1", "text");
	ck_assert_int_eq(mkdir(below("victim"), 0700), 0);
	unit_write(below("victim"), "secret", "secret", 6);
	ck_assert_int_eq(symlink(below("victim/secret"), below("dir/tales/hf/cache-1")), 0);
	ck_assert_int_eq(symlink(below("victim"), below("dir/notes")), 0);
	unit_fails(mfs_overlay_lookup(o, HF, "cache-1", &f, &err), &err, -ELOOP, "symbolic link");
	unit_fails(mfs_overlay_create(o, HF, "cache-1", &by_open, &f, &fd, &err), &err, -ELOOP,
		   "cache-1");
	unit_fails(mfs_overlay_create(o, "notes", "tmp1", &by_open, &f, &fd, &err), &err, -ENOTDIR,
		   "notes");
	unit_fails(mfs_overlay_create(o, "notes/hf", "tmp1", &by_open, &f, &fd, &err), &err,
		   -ENOTDIR, "notes");
	unit_fails(mfs_overlay_list(o, "notes", &names, &err), &err, -ENOTDIR, "notes");
	ck_assert_int_eq(mfs_overlay_rename(o, HF, "tmp1", "notes", "tmp1", NULL, 0), -ENOTDIR);
	ck_assert_int_eq(access(below("victim/tmp1"), F_OK), -1);
	/* A name is replaced, not what it points to. */
	ck_assert_int_eq(mfs_overlay_rename(o, HF, "tmp1", HF, "cache-1", NULL, 0), 0);
	expect_stored("victim/secret", "secret");
	expect_stored("dir/tales/hf/cache-1", "text");
	mfs_overlay_free(o);
}
END_TEST

START_TEST(nothing_but_files)
{
	struct mfs_overlay *o = open_overlay();
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;
	int fd;

	write_file(o, HF, "tmp1", "");
	ck_assert_int_eq(mkfifo(below("dir/tales/hf/cache-pipe"), 0600), 0);
	ck_assert_int_eq(mkdir(below("dir/tales/hf/cache-dir"), 0700), 0);
	unit_fails(mfs_overlay_lookup(o, HF, "cache-pipe", &f, &err), &err, -EACCES, "cache-pipe");
	unit_fails(mfs_overlay_create(o, HF, "cache-pipe", &by_open, &f, &fd, &err), &err, -EACCES,
		   "cache-pipe");
	unit_fails(mfs_overlay_lookup(o, HF, "cache-dir", &f, &err), &err, -EACCES, "cache-dir");
	ck_assert_int_eq(mfs_overlay_unlink(o, HF, "cache-dir"), -EISDIR);
	mfs_overlay_free(o);
}
END_TEST

START_TEST(no_way_out)
{
	const char *const paths[] = {"..", "../x", "a/../..", "./a", "a/.", "/a", "a//b"};
	struct mfs_overlay *o = open_overlay();
	struct mfs_error err = {0};
	struct mfs_overlay_file *f;
	int fd;

	for (unsigned i = 0; i < MFS_ARRAY_SIZE(paths); i++)
		unit_fails(mfs_overlay_create(o, paths[i], "tmp1", &by_open, &f, &fd, &err), &err,
			   -EINVAL, paths[i]);
	unit_fails(mfs_overlay_create(o, HF, "state.json", &by_open, &f, &fd, &err), &err, -EROFS,
		   "state.json");
	unit_fails(mfs_overlay_lookup(o, HF, "state.json", &f, &err), &err, -ENOENT, "state.json");
	write_file(o, HF, "tmp1", "");
	unit_write(below("dir/tales/hf"), "other", "", 0);
	ck_assert_int_eq(mfs_overlay_rename(o, HF, "tmp1", HF, "state.json", NULL, 0), -EROFS);
	ck_assert_int_eq(mfs_overlay_rename(o, HF, "other", HF, "tmp1", NULL, 0), -EROFS);
	/* It would leave a device. */
	ck_assert_int_eq(mfs_overlay_rename(o, HF, "tmp1", HF, "tmp2", NULL, RENAME_WHITEOUT),
			 -EINVAL);
	ck_assert_int_eq(mfs_overlay_unlink(o, HF, "other"), -EROFS);
	expect_stored("dir/tales/hf/other", "");
	mfs_overlay_free(o);
}
END_TEST

START_TEST(the_directory_is_made_or_refused)
{
	struct mfs_error err = {0};
	struct mfs_overlay *o;
	struct stat st;

	unit_fails(mfs_overlay_open(below("none"), true, &o, &err), &err, -ENOENT, "none");
	unit_fails(mfs_overlay_open(below("none/dir"), false, &o, &err), &err, -ENOENT, "none/dir");
	unit_write(unit_tmpdir(), "file", "", 0);
	unit_fails(mfs_overlay_open(below("file"), false, &o, &err), &err, -ENOTDIR, "file");
	unit_ok(mfs_overlay_open(below("made"), false, &o, &err), &err);
	mfs_overlay_free(o);
	ck_assert_int_eq(stat(below("made"), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	ck_assert_int_eq(chmod(below("made"), 0555), 0);
	unit_ok(mfs_overlay_open(below("made"), true, &o, &err), &err);
	mfs_overlay_free(o);
	if (geteuid())
		unit_fails(mfs_overlay_open(below("made"), false, &o, &err), &err, -EACCES, "made");
	mfs_overlay_free(NULL);
}
END_TEST

START_TEST(attributes_of_a_directory)
{
	struct stat shown = {.st_mode = S_IFDIR | 0500, .st_mtim = {1000, 0}}, st;
	struct mfs_overlay *o = open_overlay();

	ck_assert_int_eq(chmod(below("dir"), 01733), 0);
	mfs_overlay_dir_stat(o, HF, NULL, &shown);
	ck_assert_uint_eq(shown.st_mode, S_IFDIR | (geteuid() ? 0755 : 01777));
	ck_assert_uint_eq(shown.st_uid, geteuid());
	ck_assert_int_eq(shown.st_mtim.tv_sec, 1000);
	write_file(o, HF, "tmp1", "");
	mfs_overlay_dir_stat(o, HF, NULL, &shown);
	ck_assert_int_eq(stat(below("dir/tales/hf"), &st), 0);
	ck_assert_int_eq(shown.st_mtim.tv_sec, st.st_mtim.tv_sec);
	ck_assert_int_eq(shown.st_mtim.tv_nsec, st.st_mtim.tv_nsec);
	mfs_overlay_free(o);
}
END_TEST

START_TEST(forgotten_files_hold_nothing)
{
	unsigned before = open_descriptors();
	struct mfs_overlay *o = open_overlay();
	struct mfs_overlay_file *f;
	char name[32];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "tmp%d", i);
		f = write_file(o, HF, name, "");
		look_up(o, HF, name);
		mfs_overlay_forget(o, f, 1);
		if (i % 2)
			mfs_overlay_forget(o, f, 1);
	}
	ck_assert_uint_eq(open_descriptors(), before + 1 + 50);
	mfs_overlay_free(o);
	ck_assert_uint_eq(open_descriptors(), before);
}
END_TEST

/* ---- several at once ---- */

enum { WRITERS = 4, ROUNDS = 300, SHARED = 3, TEXT = 4096 };

struct writer {
	struct mfs_overlay *o;
	pthread_t thread;
	int number;
};

static void fill(struct mfs_overlay *o, const char *name, int letter)
{
	char text[TEXT + 1] = "";
	struct mfs_overlay_file *f;

	memset(text, letter, TEXT);
	f = write_file(o, HF, name, text);
	mfs_overlay_forget(o, f, 1);
}

static bool is_of_one_letter(const char *text)
{
	for (int i = 1; i < TEXT; i++) {
		if (text[i] != text[0])
			return false;
	}
	return true;
}

/* Whatever stands at a name is one writer's, whole. */
static void check(struct mfs_overlay *o, const char *name)
{
	struct mfs_overlay_file *f;
	struct mfs_error err;
	char text[TEXT + 1];
	bool same;
	int fd;

	if (mfs_overlay_lookup(o, HF, name, &f, &err)) {
		ck_assert_int_eq(err.code, -ENOENT);
		return;
	}
	ck_assert_int_eq(mfs_overlay_file_open(o, f, O_RDONLY, &fd, &same), 0);
	ck_assert_int_eq(read(fd, text, sizeof(text)), TEXT);
	ck_assert(is_of_one_letter(text));
	close(fd);
	mfs_overlay_forget(o, f, 1);
}

static void *write_and_read(void *arg)
{
	struct writer *w = arg;
	char name[32], shared[32];

	snprintf(name, sizeof(name), "tmp%d", w->number);
	for (int i = 0; i < ROUNDS; i++) {
		snprintf(shared, sizeof(shared), "cache-%d", i % SHARED);
		fill(w->o, name, 'a' + w->number);
		ck_assert_int_eq(mfs_overlay_rename(w->o, HF, name, HF, shared, NULL, 0), 0);
		check(w->o, shared);
		snprintf(shared, sizeof(shared), "cache-%d", (i + 1) % SHARED);
		check(w->o, shared);
		if (i % 7 == 0)
			mfs_overlay_unlink(w->o, HF, shared);
	}
	return NULL;
}

START_TEST(several_at_once)
{
	struct mfs_overlay *o = open_overlay();
	struct writer writers[WRITERS];
	unsigned before = open_descriptors();

	for (int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){.o = o, .number = i};
		ck_assert_int_eq(
			pthread_create(&writers[i].thread, NULL, write_and_read, &writers[i]), 0);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i].thread, NULL);
	ck_assert_uint_eq(open_descriptors(), before);
	mfs_overlay_free(o);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("overlay");
	TCase *c = unit_case(s, "files", only_cache_files_are_taken);

	tcase_add_test(c, what_datasets_does);
	tcase_add_test(c, modes_do_not_depend_on_the_umask);
	tcase_add_test(c, stays_for_the_next_mount);
	tcase_add_test(c, a_file_is_not_its_name);
	tcase_add_test(c, an_exclusive_create_does_not_replace);
	tcase_add_test(c, attributes_are_kept);
	tcase_add_test(c, same_bytes_as_before);
	tcase_add_test(c, forgotten_files_hold_nothing);

	c = unit_case(s, "directories", names_are_listed_in_order);
	tcase_add_test(c, directories_are_like_the_one_above);
	tcase_add_test(c, the_directory_is_made_or_refused);
	tcase_add_test(c, attributes_of_a_directory);

	c = unit_case(s, "attacks", symbolic_links_are_not_followed);
	tcase_add_test(c, nothing_but_files);
	tcase_add_test(c, no_way_out);

	unit_case(s, "threads", several_at_once);
	return s;
}
