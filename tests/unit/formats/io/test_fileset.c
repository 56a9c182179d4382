/* Source files, their identity and their mappings: formats/io/fileset.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/io/backing.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"
#include "formats/io/source.h"

#define LEN 20000

static struct mfs_fileset *set;
static struct mfs_error err;
static uint32_t file;
static uint8_t bytes[LEN];

static void setup(void)
{
	for (int i = 0; i < LEN; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 256);
	unit_write(unit_tmpdir(), "data", bytes, LEN);
	unit_ok(mfs_guard_install(), &err);
	unit_ok(mfs_fileset_new(unit_tmpdir(), &set, &err), &err);
	unit_ok(mfs_fileset_add(set, "data", &file, &err), &err);
}

static void teardown(void)
{
	mfs_fileset_free(set);
}

static const char *path(const char *name)
{
	static char text[400];

	snprintf(text, sizeof text, "%s/%s", unit_tmpdir(), name);
	return text;
}

START_TEST(says_what_it_found)
{
	struct stat st;

	ck_assert_int_eq(chmod(unit_tmpdir(), 0755), 0);
	ck_assert_int_eq(chmod(path("data"), 0640), 0);
	unit_ok(mfs_fileset_add(set, "data", &file, &err), &err);
	ck_assert_int_eq(stat(path("data"), &st), 0);
	ck_assert_uint_eq(mfs_fileset_count(set), 2);
	ck_assert_str_eq(mfs_fileset_dir(set), unit_tmpdir());
	ck_assert_str_eq(mfs_fileset_name(set, file), "data");
	ck_assert_uint_eq(mfs_fileset_size(set, file), LEN);
	ck_assert_uint_eq(mfs_fileset_granted(set), MFS_ACCESS_OWNER | MFS_ACCESS_GROUP);
	ck_assert_int_eq(mfs_fileset_mtime(set, file),
			 st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec);
}
END_TEST

START_TEST(names_that_are_refused)
{
	static const char *const names[] = {"",	      "/etc/hostname", "..",	   "../x",
					    "a/../b", "a/..",	       "a/../../b"};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		unit_fails(mfs_fileset_add(set, names[i], &file, &err), &err, -EINVAL, NULL);
	ck_assert_int_eq(mkdir(path("dir"), 0755), 0);
	ck_assert_int_eq(mkfifo(path("fifo"), 0644), 0);
	unit_fails(mfs_fileset_add(set, "dir", &file, &err), &err, -EINVAL, "dir");
	unit_fails(mfs_fileset_add(set, "fifo", &file, &err), &err, -EINVAL, "fifo");
	unit_fails(mfs_fileset_add(set, "none", &file, &err), &err, -ENOENT, "none");
	unit_write(unit_tmpdir(), "..data", bytes, 1);
	unit_ok(mfs_fileset_add(set, "..data", &file, &err), &err);
}
END_TEST

START_TEST(no_directory)
{
	struct mfs_fileset *other = NULL;

	unit_fails(mfs_fileset_new(path("none"), &other, &err), &err, -ENOENT, "none");
	unit_fails(mfs_fileset_new(path("data"), &other, &err), &err, -ENOTDIR, "data");
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(reads_and_maps)
{
	struct mfs_source src = mfs_source_file(set, file);
	const uint8_t *map;
	uint8_t buf[LEN];

	unit_ok(mfs_fileset_read(set, file, 0, buf, LEN, &err), &err);
	ck_assert(!memcmp(buf, bytes, LEN));
	unit_ok(mfs_source_read(&src, 12345, buf, 100, &err), &err);
	ck_assert(!memcmp(buf, bytes + 12345, 100));
	unit_ok(mfs_fileset_map(set, file, &map, &err), &err);
	unit_ok(mfs_guard_copy(buf, map + 1, LEN - 1), &err);
	ck_assert(!memcmp(buf, bytes + 1, LEN - 1));
	unit_fails(mfs_fileset_read(set, file, LEN, buf, 1, &err), &err, -EINVAL, "data");
	mfs_fileset_willneed(set, file, 0, UINT64_MAX);
	mfs_fileset_willneed(set, file, UINT64_MAX, UINT64_MAX);
	mfs_fileset_served(set, 1ull << 40);
	unit_ok(mfs_fileset_read(set, file, 5, buf, 5, &err), &err);
}
END_TEST

START_TEST(empty_file)
{
	const uint8_t *map;
	char buf[1];

	unit_write(unit_tmpdir(), "empty", "", 0);
	unit_ok(mfs_fileset_add(set, "empty", &file, &err), &err);
	unit_ok(mfs_fileset_map(set, file, &map, &err), &err);
	unit_ok(mfs_fileset_read(set, file, 0, buf, 0, &err), &err);
	mfs_fileset_willneed(set, file, 0, 1);
}
END_TEST

/* Of a file whose bytes are elsewhere. */
static void read_version(uint64_t version, uint64_t *ret_stamp, uint64_t *ret_identity)
{
	const struct mfs_backing backing = {.version = version};
	struct stat st;

	ck_assert_int_eq(stat(path("data"), &st), 0);
	ck_assert_int_eq(mfs_backing_add(&st, &backing), 0);
	mfs_fileset_free(set);
	unit_ok(mfs_fileset_new(unit_tmpdir(), &set, &err), &err);
	unit_ok(mfs_fileset_add(set, "data", &file, &err), &err);
	*ret_stamp = mfs_fileset_stamp(set);
	*ret_identity = mfs_fileset_identity(set);
	mfs_backing_remove(&st);
}

START_TEST(versions_of_one_size_and_time_differ)
{
	uint64_t stamps[2], identities[2];

	for (int i = 0; i < 2; i++)
		read_version((uint64_t)i, &stamps[i], &identities[i]);
	ck_assert_uint_ne(stamps[0], stamps[1]);
	ck_assert_uint_ne(identities[0], identities[1]);
}
END_TEST

/* A web server gives a file that was changed in this second no time, and one a second later. */
START_TEST(a_version_is_one_whatever_time_the_server_gives)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {0}};
	uint64_t stamp, identities[2];

	read_version(1, &stamp, &identities[0]);
	ck_assert_int_eq(utimensat(AT_FDCWD, path("data"), times, 0), 0);
	read_version(1, &stamp, &identities[1]);
	ck_assert_uint_eq(identities[0], identities[1]);
}
END_TEST

/* Ways in which a file stops being the one that was opened. */
static void cut(void)
{
	ck_assert_int_eq(truncate(path("data"), LEN / 2), 0);
}

static void grow(void)
{
	ck_assert_int_eq(truncate(path("data"), LEN * 2), 0);
}

static void touch(void)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};

	ck_assert_int_eq(utimensat(AT_FDCWD, path("data"), times, 0), 0);
}

static void replace(void)
{
	char target[400];

	unit_write(unit_tmpdir(), "other", bytes, LEN);
	strcpy(target, path("data"));
	ck_assert_int_eq(rename(path("other"), target), 0);
}

static void delete (void)
{
	ck_assert_int_eq(unlink(path("data")), 0);
}

static void (*const changes[])(void) = {cut, grow, touch, replace, delete};

START_TEST(change_before_first_use_is_stale)
{
	const uint8_t *map = NULL;
	char buf[16];

	unit_ok(mfs_fileset_check(set, file, &err), &err);
	unit_ok(mfs_filesets_check(&set, 1, &err), &err);
	changes[_i]();
	unit_fails(mfs_fileset_check(set, file, &err), &err, -ESTALE, "data");
	unit_fails(mfs_filesets_check(&set, 1, &err), &err, -ESTALE, "data");
	unit_ok(mfs_filesets_check(&set, 0, &err), &err);
	unit_fails(mfs_fileset_read(set, file, 0, buf, 16, &err), &err, -ESTALE, "data");
	ck_assert_int_lt(mfs_fileset_map(set, file, &map, &err), 0);
	ck_assert_ptr_null(map);
}
END_TEST

START_TEST(change_after_mapping_is_stale)
{
	const uint8_t *map;
	char buf[16];

	unit_ok(mfs_fileset_map(set, file, &map, &err), &err);
	changes[_i]();
	unit_fails(mfs_fileset_check(set, file, &err), &err, -ESTALE, "data");
	unit_fails(mfs_fileset_read(set, file, 0, buf, 16, &err), &err, -ESTALE, "data");
}
END_TEST

static void check_right(void)
{
	const uint8_t *map;
	char buf[16];

	unit_ok(mfs_fileset_check(set, file, &err), &err);
	unit_ok(mfs_fileset_read(set, file, 5, buf, 16, &err), &err);
	ck_assert_mem_eq(buf, bytes + 5, 16);
	unit_ok(mfs_fileset_map(set, file, &map, &err), &err);
	ck_assert_mem_eq(map, bytes, LEN);
}

static void check_stale(void)
{
	char buf[16];

	unit_fails(mfs_fileset_check(set, file, &err), &err, -ESTALE, "data");
	unit_fails(mfs_fileset_read(set, file, 0, buf, 16, &err), &err, -ESTALE, "data");
}

/* Who holds a set reads files that were deleted or replaced to their end, and none that was
 * changed. */
START_TEST(change_while_held)
{
	const bool gone = changes[_i] == replace || changes[_i] == delete;

	mfs_fileset_hold(set);
	changes[_i]();
	mfs_fileset_hold(set);
	mfs_fileset_drop(set);
	if (gone)
		check_right();
	else
		check_stale();
	mfs_fileset_drop(set);
	check_stale();
	mfs_fileset_hold(set); /* too late */
	check_stale();
	mfs_fileset_drop(set);
}
END_TEST

START_TEST(change_and_deletion_while_held)
{
	mfs_fileset_hold(set);
	changes[_i]();
	delete ();
	check_stale();
	mfs_fileset_drop(set);
}
END_TEST

static unsigned descriptors(void)
{
	unsigned count = 0;
	DIR *dir = opendir("/proc/self/fd");

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

START_TEST(the_last_one_closes)
{
	const unsigned before = descriptors();

	mfs_fileset_hold(set);
	mfs_fileset_hold(set);
	ck_assert_uint_eq(descriptors(), before + 1);
	mfs_fileset_drop(set);
	ck_assert_uint_eq(descriptors(), before + 1);
	mfs_fileset_drop(set);
	ck_assert_uint_eq(descriptors(), before);
}
END_TEST

/* One descriptor for all reads, until the set is freed: what it was opened for is read to its end,
 * unless it was changed. */
START_TEST(kept_open)
{
	const unsigned before = descriptors();
	uint8_t buf[64];

	mfs_fileset_keep_open(set, true);
	ck_assert_uint_eq(descriptors(), before);
	for (int i = 0; i < 3; i++) {
		unit_ok(mfs_fileset_read(set, file, 7, buf, sizeof(buf), &err), &err);
		ck_assert_mem_eq(buf, bytes + 7, sizeof(buf));
		ck_assert_uint_eq(descriptors(), before + 1);
	}
	mfs_fileset_keep_open(set, false);
	ck_assert_uint_eq(descriptors(), before);
	mfs_fileset_keep_open(set, true);
	unit_ok(mfs_fileset_read(set, file, 7, buf, sizeof(buf), &err), &err);
	changes[_i]();
	if (changes[_i] == replace || changes[_i] == delete) {
		unit_ok(mfs_fileset_read(set, file, 7, buf, sizeof(buf), &err), &err);
		ck_assert_mem_eq(buf, bytes + 7, sizeof(buf));
	} else {
		check_stale();
	}
	mfs_fileset_free(set);
	ck_assert_uint_eq(descriptors(), before - 1); /* and the directory's */
	setup();
}
END_TEST

static _Atomic bool deleted;

static void *hold_and_read(void *arg)
{
	struct mfs_error mine = {0};
	uint8_t buf[64];

	(void)arg;
	for (int i = 0; i < 2000; i++) {
		const bool before = !atomic_load(&deleted);
		int rc;

		mfs_fileset_hold(set);
		rc = mfs_fileset_read(set, file, 7, buf, sizeof(buf), &mine);
		mfs_fileset_drop(set);
		if ((rc && rc != -ESTALE) || (rc && before && !atomic_load(&deleted)) ||
		    (!rc && memcmp(buf, bytes + 7, sizeof(buf))))
			return (void *)1;
	}
	return NULL;
}

START_TEST(threads_that_hold_and_drop)
{
	pthread_t threads[6];

	mfs_fileset_hold(set);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, hold_and_read, NULL), 0);
	atomic_store(&deleted, true);
	delete ();
	check_right();
	mfs_fileset_drop(set);
	for (int i = 0; i < 6; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	check_stale();
}
END_TEST

static uint32_t many[300];

static void *read_all(void *seed)
{
	unsigned state = (unsigned)(uintptr_t)seed;
	struct mfs_error mine = {0};
	uint8_t buf[64];

	for (int i = 0; i < 3000; i++) {
		uint32_t f = many[rand_r(&state) % 300];
		uint64_t off = (uint64_t)rand_r(&state) % (LEN - sizeof buf);

		if (mfs_fileset_read(set, f, off, buf, sizeof buf, &mine) ||
		    memcmp(buf, bytes + off, sizeof buf))
			return (void *)1;
		mfs_fileset_willneed(set, f, off, 1 << 20);
		mfs_fileset_served(set, 64 << 10);
	}
	return NULL;
}

/* Eight readers map 300 files at once while 40 descriptors are allowed. */
START_TEST(many_files_many_threads_few_descriptors)
{
	struct rlimit limit = {40, 40};
	pthread_t threads[8];
	char name[32];

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof name, "f%03d", i);
		unit_write(unit_tmpdir(), name, bytes, LEN);
		unit_ok(mfs_fileset_add(set, name, &many[i], &err), &err);
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (_i)
		mfs_fileset_keep_open(set, true);
	else
		mfs_fileset_hold(set); /* some of them, which leaves enough for all else */
	for (uintptr_t i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, (void *)i), 0);
	for (int i = 0; i < 8; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		ck_assert_ptr_null(failed);
	}
	if (!_i)
		mfs_fileset_drop(set);
}
END_TEST

static TCase *prepared(Suite *s, const char *name)
{
	TCase *c = tcase_create(name);

	tcase_add_checked_fixture(c, setup, teardown);
	suite_add_tcase(s, c);
	return c;
}

Suite *mfs_suite(void)
{
	Suite *s = suite_create("fileset");
	TCase *c = prepared(s, "names");

	tcase_add_test(c, says_what_it_found);
	tcase_add_test(c, names_that_are_refused);
	tcase_add_test(c, no_directory);
	c = prepared(s, "reads");
	tcase_add_test(c, reads_and_maps);
	tcase_add_test(c, empty_file);
	tcase_add_test(c, versions_of_one_size_and_time_differ);
	tcase_add_test(c, a_version_is_one_whatever_time_the_server_gives);
	c = prepared(s, "changes");
	tcase_add_loop_test(c, change_before_first_use_is_stale, 0, 5);
	tcase_add_loop_test(c, change_after_mapping_is_stale, 0, 5);
	c = prepared(s, "held");
	tcase_add_loop_test(c, change_while_held, 0, 5);
	tcase_add_loop_test(c, change_and_deletion_while_held, 0, 3);
	tcase_add_test(c, the_last_one_closes);
	tcase_add_test(c, threads_that_hold_and_drop);
	tcase_add_loop_test(c, kept_open, 0, 5);
	c = prepared(s, "threads");
	tcase_add_loop_test(c, many_files_many_threads_few_descriptors, 0, 2);
	return s;
}
