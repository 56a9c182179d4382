/* Names beneath a directory: formats/io/beneath.h. Links are never followed, no matter who puts
 * them there and when. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/io/beneath.h"

static char base[300], victim[310];
static int dir; /* of base */

static const char *at(const char *name)
{
	static char paths[4][700];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", base, name);
	return path;
}

static void set_up(void)
{
	snprintf(base, sizeof(base), "%s/base", unit_tmpdir());
	snprintf(victim, sizeof(victim), "%s/victim", unit_tmpdir());
	ck_assert_int_eq(mkdir(base, 0755), 0);
	ck_assert_int_eq(mkdir(victim, 0755), 0);
	unit_write(victim, "file", "mine", 4);
	dir = open(base, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dir, 0);
}

static void tear_down(void)
{
	close(dir);
}

static unsigned count_names(const char *path)
{
	DIR *d = opendir(path);
	unsigned count = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		count++;
	closedir(d);
	return count - 2;
}

static void check_victim(void)
{
	size_t len;
	char path[400];
	void *bytes;

	ck_assert_uint_eq(count_names(victim), 1);
	snprintf(path, sizeof(path), "%s/file", victim);
	bytes = unit_slurp(path, &len);
	ck_assert(len == 4 && !memcmp(bytes, "mine", 4));
	free(bytes);
}

static void put_link(const char *name, const char *to)
{
	char target[400];

	snprintf(target, sizeof(target), "%s%s", victim, to);
	ck_assert_int_eq(symlink(target, at(name)), 0);
}

static void writes(int fd, const char *name)
{
	size_t len;
	void *bytes;

	ck_assert_msg(fd >= 0, "%s: %s", name, strerror(-fd));
	ck_assert_int_eq(write(fd, "new", 3), 3);
	close(fd);
	bytes = unit_slurp(at(name), &len);
	ck_assert_msg(len == 3 && !memcmp(bytes, "new", 3), "%s has %zu bytes", name, len);
	free(bytes);
	check_victim();
}

START_TEST(what_is_created_replaces_links)
{
	int fd = mfs_beneath_make_dirs(dir, "a/b", 0755);

	ck_assert_int_ge(fd, 0);
	close(fd);
	writes(mfs_beneath_create(dir, "a/b/c", O_WRONLY, 0644), "a/b/c");
	writes(mfs_beneath_create(dir, "a/b/c", O_WRONLY, 0644), "a/b/c");
	put_link("link", "/file");
	writes(mfs_beneath_create(dir, "link", O_WRONLY, 0644), "link");
	put_link("a/gone", "/none");
	writes(mfs_beneath_create(dir, "a/gone", O_WRONLY, 0644), "a/gone");
	ck_assert_int_eq(link(at("../victim/file"), at("a/second")), 0);
	writes(mfs_beneath_create(dir, "a/second", O_WRONLY, 0644), "a/second");
	ck_assert_int_eq(mfs_beneath_create(dir, "a/b", O_WRONLY, 0644), -EISDIR);
	ck_assert_int_eq(mfs_beneath_create(dir, "none/c", O_WRONLY, 0644), -ENOENT);
}
END_TEST

START_TEST(links_on_the_way)
{
	static const char *const out[] = {"way/file", "way/new", "a/way/new", "a/../way/new",
					  "../victim/file"};

	ck_assert_int_eq(mkdir(at("a"), 0755), 0);
	put_link("way", "");
	put_link("a/way", "");
	for (size_t i = 0; i < MFS_ARRAY_SIZE(out); i++) {
		bool is_new;

		ck_assert_int_lt(mfs_beneath_open(dir, out[i], O_RDONLY, 0), 0);
		ck_assert_int_lt(mfs_beneath_open(dir, out[i], O_WRONLY | O_CREAT, 0644), 0);
		ck_assert_int_lt(mfs_beneath_create(dir, out[i], O_WRONLY, 0644), 0);
		ck_assert_int_lt(mfs_beneath_continue(dir, out[i], O_WRONLY, 0644, &is_new), 0);
		ck_assert_int_lt(mfs_beneath_make_dirs(dir, out[i], 0755), 0);
	}
	ck_assert_int_lt(mfs_beneath_make_dirs(dir, "way", 0755), 0);
	ck_assert_int_lt(mfs_beneath_open(dir, "/etc/passwd", O_RDONLY, 0), 0);
	ck_assert_int_lt(mfs_beneath_make_dirs(dir, "", 0755), 0);
	check_victim();
}
END_TEST

/* What an earlier run has begun goes on; nothing else is written into. */
START_TEST(what_was_begun_goes_on_and_nothing_else)
{
	bool is_new = false;
	int fd = mfs_beneath_continue(dir, "file", O_WRONLY, 0644, &is_new);

	ck_assert(is_new);
	writes(fd, "file");
	fd = mfs_beneath_continue(dir, "file", O_WRONLY, 0644, &is_new);
	ck_assert(!is_new && fd >= 0);
	close(fd);
	put_link("link", "/file");
	ck_assert_int_eq(link(at("../victim/file"), at("second")), 0);
	ck_assert_int_eq(mkfifo(at("fifo"), 0644), 0);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = {"link", "second", "fifo"};

		fd = mfs_beneath_continue(dir, names[i], O_WRONLY, 0644, &is_new);
		ck_assert(is_new);
		writes(fd, names[i]);
	}
}
END_TEST

START_TEST(a_tree_is_removed_and_links_are_not_followed)
{
	ck_assert_int_eq(mfs_beneath_remove(dir, "none", NULL, NULL), 0);
	put_link("link", "");
	ck_assert_int_eq(mfs_beneath_remove(dir, "link", NULL, NULL), 0);
	close(mfs_beneath_make_dirs(dir, "tree/a/b", 0755));
	put_link("tree/a/link", "");
	put_link("tree/a/b/link", "/file");
	unit_write(at("tree/a"), "file", "x", 1);
	ck_assert_int_eq(mkfifo(at("tree/fifo"), 0644), 0);
	ck_assert_int_eq(mfs_beneath_remove(dir, "tree", NULL, NULL), 0);
	ck_assert_uint_eq(count_names(base), 0);
	check_victim();
}
END_TEST

/* arg: how many may go. */
static int some(void *arg, int dirfd, const char *name, int flags)
{
	int *left = arg;

	if (!flags && (*left)-- <= 0)
		return -EIO;
	return unlinkat(dirfd, name, flags) ? -errno : 0;
}

/* Where the same file system is mounted again, the device tells nothing. */
START_TEST(what_is_mounted_stays)
{
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return unit_skip("beneath: mounts are not allowed here");
	close(dir);
	dir = open(base, O_RDONLY | O_DIRECTORY); /* in this namespace */
	close(mfs_beneath_make_dirs(dir, "tree/a", 0755));
	close(mfs_beneath_make_dirs(dir, "other", 0755));
	unit_write(at("other"), "file", "x", 1);
	ck_assert(!mount(at("other"), at("tree/a"), NULL, MS_BIND, NULL));
	ck_assert_int_eq(mfs_beneath_remove(dir, "tree", NULL, NULL), -EBUSY);
	ck_assert_int_eq(access(at("other/file"), F_OK), 0);
	ck_assert(!umount(at("tree/a")));
	ck_assert_int_eq(mfs_beneath_remove(dir, "tree", NULL, NULL), 0);
	ck_assert_int_eq(mfs_beneath_remove(dir, "other", NULL, NULL), 0);
}
END_TEST

START_TEST(remove_has_a_depth)
{
	int fd = mfs_beneath_make_dirs(dir, "tree", 0755), next;

	for (int i = 0; i < MFS_BENEATH_DEPTH; i++, fd = next) {
		next = mfs_beneath_make_dirs(fd, "d", 0755);
		ck_assert_int_ge(next, 0);
		close(fd);
	}
	close(fd);
	ck_assert_int_eq(mfs_beneath_remove(dir, "tree", NULL, NULL), -E2BIG);
	fd = mfs_beneath_parent(dir, "tree/d/d/d", &(const char *){NULL});
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(mfs_beneath_remove(fd, "d", NULL, NULL), 0);
	close(fd);
	ck_assert_int_eq(mfs_beneath_remove(dir, "tree", NULL, NULL), 0);
}
END_TEST

START_TEST(what_cannot_be_removed_stays)
{
	int left = 2;

	close(mfs_beneath_make_dirs(dir, "tree/a", 0755));
	for (int i = 0; i < 4; i++)
		unit_write(at("tree/a"), (char[]){(char)('0' + i), 0}, "x", 1);
	ck_assert_int_lt(mfs_beneath_remove(dir, "tree", some, &left), 0);
	ck_assert_int_eq(access(at("tree/a"), F_OK), 0);
	left = 10;
	ck_assert_int_eq(mfs_beneath_remove(dir, "tree", some, &left), 0);
	ck_assert_uint_eq(count_names(base), 0);
}
END_TEST

/* ---- somebody else is at it ---- */

static atomic_bool done;
static atomic_uint swaps;

/* A directory and a link change places as fast as they can. */
static void *swap(void *arg)
{
	(void)arg;
	while (!atomic_load(&done)) {
		renameat2(dir, "tree", dir, "other", RENAME_EXCHANGE);
		atomic_fetch_add(&swaps, 1);
	}
	return NULL;
}

START_TEST(a_link_that_is_swapped_in_leads_nowhere)
{
	pthread_t thread;
	unsigned made = 0, removed = 0;

	put_link("other", "");
	close(mfs_beneath_make_dirs(dir, "tree", 0755));
	ck_assert_int_eq(pthread_create(&thread, NULL, swap, NULL), 0);
	for (unsigned i = 0; i < 3000 || !made || atomic_load(&swaps) < 3000; i++) {
		int fd = mfs_beneath_create(dir, "tree/a", O_WRONLY, 0644);

		made += fd >= 0;
		if (fd >= 0)
			close(fd);
		fd = mfs_beneath_make_dirs(dir, "tree/b", 0755);
		if (fd >= 0)
			close(fd);
		fd = mfs_beneath_open(dir, "tree/file", O_WRONLY | O_TRUNC, 0);
		ck_assert_int_lt(fd, 0);
		removed += i % 16 == 15 && !mfs_beneath_remove(dir, "tree", NULL, NULL);
		/* What went comes back for the next round. */
		if (symlinkat(victim, dir, "other") && mkdirat(dir, "tree", 0755))
			mkdirat(dir, "other", 0755);
	}
	atomic_store(&done, true);
	pthread_join(thread, NULL);
	check_victim();
	ck_assert_uint_gt(removed, 0);
}
END_TEST

START_TEST(directories_of_a_path_are_made)
{
	char path[400];
	int fd;

	ck_assert_int_eq(mfs_make_path(at("x/y/z"), 0755, 0700), 0);
	ck_assert_int_eq(mfs_make_path(at("x/y/z"), 0755, 0700), 0);
	/* A person's links are followed. */
	put_link("link", "");
	snprintf(path, sizeof(path), "%s/below", at("link"));
	fd = mfs_open_path(path, 0755, 0700);
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(mfs_make_path("/proc/none/at/all", 0755, 0700), -ENOENT);
	unit_write(base, "file", "x", 1);
	ck_assert_int_eq(mfs_make_path(at("file/x"), 0755, 0700), -ENOTDIR);
	ck_assert_int_lt(mfs_open_path(at("file"), 0755, 0700), 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("beneath");
	TCase *c = unit_case(s, "core", what_is_created_replaces_links);

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, links_on_the_way);
	tcase_add_test(c, what_was_begun_goes_on_and_nothing_else);
	tcase_add_test(c, a_tree_is_removed_and_links_are_not_followed);
	tcase_add_test(c, what_is_mounted_stays);
	tcase_add_test(c, remove_has_a_depth);
	tcase_add_test(c, what_cannot_be_removed_stays);
	tcase_add_test(c, a_link_that_is_swapped_in_leads_nowhere);
	tcase_add_test(c, directories_of_a_path_are_made);
	return s;
}
