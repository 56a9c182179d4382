/* Walking a path, and counting what stands on it: formats/io/walk.h, census.h; where root, against
 * the kernel. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/io/census.h"
#include "formats/io/directory.h"
#include "formats/io/fence.h"
#include "formats/io/fileset.h"
#include "formats/io/regular.h"
#include "formats/io/walk.h"

static struct mfs_error err;

static const char *path(const char *name)
{
	static char text[4][400];
	static unsigned next;
	char *p = text[next++ % 4];

	snprintf(p, sizeof text[0], "%s/%s", unit_tmpdir(), name);
	return p;
}

static void make_dir(const char *name, mode_t mode)
{
	ck_assert_msg(!mkdir(path(name), 0700) && !chmod(path(name), mode), "%s: %m", name);
}

static void make_file(const char *name, mode_t mode)
{
	unit_write(unit_tmpdir(), name, "bytes", 5);
	ck_assert_int_eq(chmod(path(name), mode), 0);
}

static void make_link(const char *target, const char *name)
{
	ck_assert_msg(!symlink(target, path(name)), "%s: %m", name);
}

static void setup(void)
{
	ck_assert_int_eq(chmod(unit_tmpdir(), 0755), 0);
}

/* ---- where a path leads ---- */

/* The same file as stat(2) finds, or the same error. */
static void agrees(const char *name)
{
	struct mfs_access_fold fold = {0};
	struct stat want, st;
	int fd, rc = mfs_walk(AT_FDCWD, name, &fold, &fd, &st);

	if (stat(name, &want)) {
		ck_assert_msg(rc == -errno, "%s: %d (%s) instead of %s", name, rc, strerror(-rc),
			      strerror(errno));
		return;
	}
	ck_assert_msg(!rc, "%s: %s", name, strerror(-rc));
	ck_assert_msg(st.st_ino == want.st_ino && st.st_dev == want.st_dev, "%s: another file",
		      name);
	close(fd);
}

START_TEST(leads_where_the_kernel_goes)
{
	static const char *const names[] = {
		"d/f",	     "d",	    "d/",	"d//f",	    "./d/./f",	  "d/../d/f",
		"d/f/",	     "d/f/x",	    "d/none",	"none/f",   "up/f",	  "up",
		"up/",	     "abs/f",	    "tofile",	"tofile/",  "loop",	  "loop/x",
		"chain0",    "chain39",	    "chain40",	"dangling", "d/back/d/f", "slashes",
		"slashes/f", "d/back/../x", "d/f/../f", "up/../d/f"};
	char name[300], far[2 * 4096];

	make_dir("d", 0755);
	make_file("d/f", 0644);
	make_link("d", "up");
	make_link(path("d"), "abs");
	make_link("d/f", "tofile");
	make_link("loop", "loop");
	make_link("none", "dangling");
	make_link("..", "d/back");
	make_link("d///", "slashes");
	make_link("d/f", "chain0");
	for (int i = 1; i <= 40; i++) {
		char target[20], link[20];

		snprintf(target, sizeof target, "chain%d", i - 1);
		snprintf(link, sizeof link, "chain%d", i);
		make_link(target, link);
	}
	for (size_t i = 0; i < MFS_ARRAY_SIZE(names); i++)
		agrees(path(names[i]));
	agrees("/");
	agrees(".");
	agrees("");
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	agrees(path(name));
	for (size_t i = 0; i + 2 < sizeof far; i += 2)
		memcpy(far + i, "./", 3);
	agrees(far);
}
END_TEST

START_TEST(below_a_directory)
{
	int dirfd = open(unit_tmpdir(), O_PATH | O_DIRECTORY), fd;
	struct mfs_access_fold fold = {0};
	struct stat st;

	make_dir("d", 0755);
	make_file("d/f", 0600);
	ck_assert_int_eq(mfs_walk(dirfd, "d/f", &fold, &fd, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0600);
	ck_assert_int_eq(fold.count, 0);
	mfs_walk_count(fd, &st, MFS_ACCESS_READ, &fold);
	ck_assert_int_eq(fold.count, 1);
	ck_assert_uint_eq(fold.rules[0].bits, MFS_ACCESS_OWNER);
	close(fd);
	close(dirfd);
}
END_TEST

/* A FIFO is found, and nobody waits for its other end. */
START_TEST(opens_nothing)
{
	struct mfs_access_fold fold = {0};
	struct stat st;
	int fd;

	ck_assert_int_eq(mkfifo(path("fifo"), 0644), 0);
	ck_assert_int_eq(mfs_walk(AT_FDCWD, path("fifo"), &fold, &fd, &st), 0);
	ck_assert(S_ISFIFO(st.st_mode));
	close(fd);
}
END_TEST

/* ---- what is counted ---- */

static struct mfs_access_fold fold_of(const char *name)
{
	struct mfs_access_fold fold = {0};
	struct stat st;
	int fd;

	ck_assert_int_eq(mfs_walk(AT_FDCWD, name, &fold, &fd, &st), 0);
	mfs_walk_count(fd, &st, MFS_ACCESS_READ, &fold);
	mfs_access_name(&fold, &st);
	close(fd);
	return fold;
}

/* Classes of files of this process's own, or no more where the directories above let fewer pass. */
static void grants(const char *name, unsigned want)
{
	const struct mfs_access_fold above = fold_of(unit_tmpdir()), fold = fold_of(path(name));
	const unsigned all = mfs_access_classes(&above, geteuid(), getegid());

	ck_assert_uint_eq(mfs_access_classes(&fold, geteuid(), getegid()), all & want);
}

START_TEST(counts_directories_through_links)
{
	make_dir("open", 0755);
	make_dir("team", 0750);
	make_dir("own", 0700);
	make_file("open/f", 0644);
	make_file("team/f", 0644);
	make_file("own/f", 0644);
	make_link("../own/f", "open/to-own");
	make_link(path("team/f"), "open/to-team");
	make_link("../open/f", "own/out");
	make_link("../own/out", "open/there-and-back");
	grants("open/f", MFS_ACCESS_ALL);
	grants("team/f", MFS_ACCESS_OWNER | MFS_ACCESS_GROUP);
	grants("own/f", MFS_ACCESS_OWNER);
	grants("open/to-own", MFS_ACCESS_OWNER);
	grants("open/to-team", MFS_ACCESS_OWNER | MFS_ACCESS_GROUP);
	grants("own/../open/f", MFS_ACCESS_OWNER);
	grants("open/there-and-back", MFS_ACCESS_OWNER);
}
END_TEST

/* A link is changed all the time: what the walk has found has the permissions that it has
 * counted. */
static atomic_bool stop;

static void *flip(void *arg)
{
	char new[400], now[400];

	snprintf(new, sizeof new, "%s/new", (const char *)arg);
	snprintf(now, sizeof now, "%s/now", (const char *)arg);
	for (unsigned i = 0; !stop; i++)
		if (symlink(i % 2 ? "own" : "open", new) || rename(new, now))
			return "cannot flip";
	return NULL;
}

START_TEST(a_link_that_is_flipped)
{
	struct stat own, open;
	pthread_t thread;
	void *failed;
	unsigned seen[2] = {0};

	make_dir("open", 0755);
	make_dir("own", 0700);
	make_file("open/f", 0644);
	make_file("own/f", 0644);
	ck_assert(!stat(path("own/f"), &own) && !stat(path("open/f"), &open));
	make_link("open", "now");
	ck_assert_int_eq(pthread_create(&thread, NULL, flip, (void *)unit_tmpdir()), 0);
	for (int i = 0; i < 20000 || (i < 2000000 && (!seen[0] || !seen[1])); i++) {
		struct mfs_access_fold fold = {0};
		struct stat st;
		int fd;

		if (mfs_walk(AT_FDCWD, path("now/f"), &fold, &fd, &st))
			continue;
		close(fd);
		seen[st.st_ino == own.st_ino]++;
		if (st.st_ino == own.st_ino)
			ck_assert_uint_eq(mfs_access_classes(&fold, geteuid(), getegid()) &
						  ~MFS_ACCESS_OWNER,
					  0);
	}
	stop = true;
	pthread_join(thread, &failed);
	ck_assert_ptr_null(failed);
	ck_assert(seen[0] && seen[1]);
}
END_TEST

/* ---- against the kernel ---- */

static unsigned seed = 7;

static unsigned draw(unsigned below)
{
	seed = seed * 1103515245u + 12345u;
	return (seed >> 16) % below;
}

#define FIRST_ID 70001 /* users and groups that nobody else is */
#define IDS	 3

static uint8_t *put(uint8_t *p, unsigned tag, unsigned bits, unsigned id)
{
	const uint8_t entry[] = {(uint8_t)tag,	      0,
				 (uint8_t)bits,	      0,
				 (uint8_t)id,	      (uint8_t)(id >> 8),
				 (uint8_t)(id >> 16), (uint8_t)(id >> 24)};

	memcpy(p, entry, sizeof entry);
	return p + sizeof entry;
}

/* False: the file system takes none. */
static bool set_acl(const char *name, unsigned owner)
{
	uint8_t acl[4 + 8 * 6] = {2}, *p = acl + 4;

	p = put(p, 0x01, owner, UINT32_MAX);
	if (draw(2))
		p = put(p, 0x02, draw(8), FIRST_ID + draw(IDS));
	p = put(p, 0x04, draw(8), UINT32_MAX);
	if (draw(2))
		p = put(p, 0x08, draw(8), FIRST_ID + draw(IDS));
	p = put(p, 0x10, draw(2) ? 7 : draw(8), UINT32_MAX);
	p = put(p, 0x20, draw(2) ? 7 : draw(8), UINT32_MAX);
	return !setxattr(name, "system.posix_acl_access", acl, (size_t)(p - acl), 0);
}

static unsigned draw_id(void)
{
	const unsigned i = draw(IDS + 1);

	return i ? FIRST_ID + i - 1 : 0;
}

static void draw_permissions(const char *name, mode_t usual, bool acls)
{
	const mode_t mode = draw(3) ? usual : draw(01000);

	ck_assert_int_eq(chown(name, draw_id(), draw_id()), 0);
	ck_assert_int_eq(chmod(name, mode), 0);
	if (acls && !draw(3))
		set_acl(name, mode >> 6);
}

/* As a user who is in some of the groups, and nobody else: which of the files can be opened, as
 * bits. */
static unsigned opened_by(unsigned user, unsigned groups, const char *const *files, unsigned count)
{
	gid_t list[IDS];
	size_t members = 0;
	int status;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child) {
		ck_assert(waitpid(child, &status, 0) == child && WIFEXITED(status));
		ck_assert_int_lt(WEXITSTATUS(status), 1 << 7);
		return (unsigned)WEXITSTATUS(status);
	}
	for (unsigned i = 0; i < IDS; i++)
		if (groups >> i & 1)
			list[members++] = FIRST_ID + i;
	status = 0;
	if (setgroups(members, list) || setresgid(65534, 65534, 65534) ||
	    setresuid(FIRST_ID + user, FIRST_ID + user, FIRST_ID + user))
		_exit(1 << 7);
	for (unsigned i = 0; i < count; i++)
		if (open(files[i], O_RDONLY) >= 0)
			status |= 1 << i;
	_exit(status);
}

static bool told_permits(const struct mfs_access *told, unsigned user, unsigned groups)
{
	const gid_t in = told->gid - FIRST_ID;

	if (told->uid == FIRST_ID + user)
		return told->mode & 0400;
	return told->mode & (in < IDS && groups >> in & 1 ? 0040 : 0004);
}

static void compare_with_kernel(const char *const *files, unsigned count, unsigned *granted)
{
	struct mfs_access told[8];

	for (unsigned i = 0; i < count; i++) {
		const struct mfs_access_fold fold = fold_of(files[i]);

		told[i] = mfs_access_told(&fold);
	}
	for (unsigned user = 0; user < IDS; user++) {
		for (unsigned groups = 0; groups < 1 << IDS; groups++) {
			const unsigned opened = opened_by(user, groups, files, count);

			for (unsigned i = 0; i < count; i++) {
				if (!told_permits(&told[i], user, groups))
					continue;
				(*granted)++;
				ck_assert_msg(opened >> i & 1, "%s: user %u with groups %x may not",
					      files[i], user, groups);
			}
		}
	}
}

START_TEST(the_kernel_agrees)
{
	static char names[6][400];
	const char *files[6];
	unsigned granted = 0;

	make_dir("a", 0755);
	if (geteuid() || chown(path("a"), FIRST_ID, FIRST_ID))
		return; /* needs several users */
	make_dir("a/b", 0755);
	make_dir("c", 0755);
	for (unsigned i = 0; i < 6; i++) {
		const char *const where[] = {"a/1",    "a/b/2",	  "c/3",
					     "c/to-b", "a/b/out", "c/home/3"};

		snprintf(names[i], sizeof names[i], "%s", path(where[i]));
		files[i] = names[i];
		if (i < 3)
			make_file(where[i], 0644);
	}
	make_link("../a/b/2", "c/to-b");
	make_link("../../c/3", "a/b/out");
	make_link("../a/../c", "c/home");
	for (int round = 0; round < 12; round++) {
		const bool acls = round % 2;

		draw_permissions(path("a"), 0755, acls);
		draw_permissions(path("a/b"), 0750, acls);
		draw_permissions(path("c"), 0755, acls);
		for (unsigned i = 0; i < 3; i++)
			draw_permissions(files[i], i ? 0644 : 0640, acls);
		compare_with_kernel(files, 6, &granted);
	}
	/* Below a directory that lets nobody pass there is nothing to compare. */
	if (fold_of(unit_tmpdir()).count == 0)
		ck_assert_uint_gt(granted, 20);
}
END_TEST

/* ---- a census ---- */

static struct mfs_fileset *new_set(const char *dir, const char *const *names, unsigned count)
{
	struct mfs_fileset *set;
	uint32_t file;

	unit_ok(mfs_fileset_new(dir, &set, &err), &err);
	for (unsigned i = 0; i < count; i++)
		unit_ok(mfs_fileset_add(set, names[i], &file, &err), &err);
	return set;
}

START_TEST(looks_again)
{
	static const char *const names[] = {"1", "sub/2"};
	const struct mfs_access_fold above = fold_of(unit_tmpdir());
	const unsigned all = mfs_access_classes(&above, geteuid(), getegid());
	struct mfs_access_fold fold;
	struct mfs_fileset *set;
	struct mfs_census *c, *same;

	make_dir("d", 0755);
	make_dir("d/sub", 0755);
	make_file("d/1", 0644);
	make_file("d/sub/2", 0644);
	set = new_set(path("d"), names, 2);
	c = mfs_fileset_census(set);
	same = mfs_fileset_census(set);
	ck_assert(c && c == same);
	mfs_census_unref(same);
	fold = *mfs_fileset_access(set);
	mfs_fileset_free(set);

#define CLASSES() (mfs_census_look(c, &fold), mfs_access_classes(&fold, geteuid(), getegid()))
	ck_assert_uint_eq(CLASSES(), all);
	ck_assert_int_eq(chmod(path("d/sub/2"), 0640), 0);
	ck_assert_uint_eq(CLASSES(), all & 6);
	ck_assert_int_eq(chmod(path("d/sub/2"), 0644), 0);
	ck_assert_uint_eq(CLASSES(), all);
	ck_assert_int_eq(chmod(path("d"), 0700), 0);
	ck_assert_uint_eq(CLASSES(), all & 4);
	ck_assert_int_eq(chmod(path("d"), 0755), 0);
	ck_assert_uint_eq(CLASSES(), all);
	/* What has gone, or is another file, is what it was when it was seen last. */
	ck_assert_int_eq(chmod(path("d/1"), 0600), 0);
	ck_assert_uint_eq(CLASSES(), all & 4);
	ck_assert_int_eq(rename(path("d/1"), path("away")), 0);
	make_file("d/1", 0644);
	ck_assert_uint_eq(CLASSES(), all & 4);
	ck_assert_int_eq(rename(path("d"), path("moved")), 0);
	ck_assert_uint_eq(CLASSES(), all & 4);
	mfs_census_unref(c);
}
END_TEST

START_TEST(a_set_says_who_may_read_it)
{
	static const char *const names[] = {"1", "2"};
	const struct mfs_access_fold above = fold_of(unit_tmpdir());
	const unsigned all = mfs_access_classes(&above, geteuid(), getegid());
	struct mfs_fileset *set;

	make_dir("d", 0711);
	make_file("d/1", 0644);
	make_file("d/2", 0640);
	set = new_set(path("d"), names, 1);
	ck_assert_uint_eq(mfs_access_classes(mfs_fileset_access(set), geteuid(), getegid()), all);
	ck_assert_uint_eq(mfs_fileset_granted(set), 7);
	mfs_fileset_free(set);
	set = new_set(path("d"), names, 2);
	ck_assert_uint_eq(mfs_access_classes(mfs_fileset_access(set), geteuid(), getegid()),
			  all & 6);
	ck_assert_uint_eq(mfs_fileset_granted(set), 6);
	mfs_fileset_free(set);
	ck_assert_int_eq(chmod(path("d"), 0700), 0);
	set = new_set(path("d"), names, 2);
	ck_assert_uint_eq(mfs_access_classes(mfs_fileset_access(set), geteuid(), getegid()),
			  all & 4);
	ck_assert_uint_eq(mfs_fileset_granted(set), 6);
	mfs_fileset_free(set);
}
END_TEST

/* ---- fences ---- */

/* Whether a path is let through, by each way of opening it, and by both names of its directory. */
static void fenced(const char *name, bool passes)
{
	const int want = passes ? 0 : -ENOLINK;
	const char *whole = path(name), *base = strrchr(name, '/');
	struct mfs_access_fold fold = {0};
	char dir[400];
	struct stat st;
	DIR *list;
	int fd, dirfd, rc = mfs_walk(AT_FDCWD, whole, &fold, &fd, &st);

	ck_assert_msg(rc == want, "walk %s: %s", name, mfs_errno_text(-rc));
	if (!rc)
		close(fd);
	ck_assert_int_eq(mfs_fence_check_path(whole), want);
	if (stat(whole, &st))
		ck_abort_msg("%s: %m", name);
	if (S_ISDIR(st.st_mode)) {
		list = mfs_opendir(whole);
		ck_assert_msg(!list == !passes, "list %s", name);
		ck_assert(list || errno == ENOLINK);
		if (list)
			closedir(list);
		return;
	}
	rc = mfs_open_regular(AT_FDCWD, whole, 0, &fd, NULL);
	ck_assert_msg(rc == want, "open %s: %s", name, mfs_open_regular_why(rc));
	if (!rc)
		close(fd);
	snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(whole) - strlen(base)), whole);
	dirfd = mfs_open_directory(dir);
	if (dirfd < 0) {
		ck_assert(!passes && errno == ENOLINK);
		return;
	}
	rc = mfs_open_regular(dirfd, base + 1, 0, &fd, NULL);
	ck_assert_msg(rc == want, "open %s below its directory: %s", name,
		      mfs_open_regular_why(rc));
	if (!rc)
		close(fd);
	close(dirfd);
}

static int check_below(int dirfd, const char *name)
{
	const int fd = openat(dirfd, name, O_PATH | O_CLOEXEC);
	const int rc = mfs_fence_check(dirfd, name, fd);

	ck_assert_int_ge(fd, 0);
	close(fd);
	return rc;
}

/* Nor do they lead farther when the directory that is open leaves its source. */
START_TEST(fences_of_what_moves)
{
	struct mfs_fence *f;
	int dir;

	make_dir("own", 0755);
	make_dir("own/iteration", 0755);
	make_file("own/iteration/f", 0644);
	make_file("secret", 0644);
	make_link(path("secret"), "own/iteration/out");
	make_link("f", "own/iteration/in");
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_DIR, path("own"), &f), 0);
	dir = open(path("own/iteration"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir, 0);
	ck_assert_int_eq(check_below(dir, "in"), 0);
	ck_assert_int_eq(check_below(dir, "out"), -ENOLINK);
	ck_assert_int_eq(rename(path("own/iteration"), path("moved")), 0);
	ck_assert_int_eq(check_below(dir, "in"), 0);
	ck_assert_int_eq(check_below(dir, "out"), -ENOLINK);
	ck_assert_int_eq(mfs_fence_check(dir, "f", -1), -ENOLINK); /* it is not known where */
	close(dir);
	mfs_fence_remove(f);
}
END_TEST

/* Links of a fenced source end in it. */
START_TEST(links_of_a_fenced_source_end_in_it)
{
	struct mfs_fence *f[7];

	make_dir("a", 0755);
	make_dir("a/sub", 0755);
	make_dir("ab", 0755);
	make_dir("runs", 0755);
	make_dir("runs/1", 0755);
	make_dir("runs/2", 0755);
	make_dir("hub", 0755);
	make_dir("hub/blobs", 0755);
	make_dir("hub/blobsx", 0755);
	make_dir("hub/snapshots", 0755);
	make_dir("hub/snapshots/1", 0755);
	make_dir("free", 0755);
	make_file("a/sub/f", 0644);
	make_file("ab/f", 0644);
	make_file("runs/1/f", 0644);
	make_file("runs/2/f", 0644);
	make_file("hub/blobs/f", 0644);
	make_file("hub/blobsx/f", 0644);
	make_file("free/f", 0644);
	make_file("free/p.bin", 0644);
	make_file("free/q.bin", 0644);
	make_link("sub/f", "a/in");
	make_link(path("a/sub/f"), "a/whole");
	make_link("../ab/f", "a/out");
	make_link("../ab", "a/dir");
	make_link("../free/f", "a/free");
	make_link("../a", "ab/back");
	make_link("2", "runs/link");
	make_link("../2/f", "runs/1/other");
	make_link("../../blobs/f", "hub/snapshots/1/f");
	make_link("../../blobsx/f", "hub/snapshots/1/x");
	make_link("q.bin", "free/p.idx");
	make_link("p.bin", "free/p.q.idx");
	make_link("a", "named");
	fenced("a/out", true); /* nobody has fenced anything in */
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_DIR, path("nothing"), &f[0]), -ENOENT);
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_DIR, path("named"), &f[0]), 0);
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_EACH, path("runs"), &f[1]), 0);
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_DIR, path("hub/snapshots/1"), &f[2]), 0);
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_PREFIX, path("free/p"), &f[3]), 0);
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_DIR, path("a"), &f[4]), 0);
	fenced("a/in", true);
	fenced("named/in", true);
	fenced("a/whole", true);
	fenced("a/sub", true);
	fenced("a", true);
	fenced("a/out", false);
	fenced("named/out", false);
	fenced("a/dir", false);
	fenced("a/dir/f", false);
	fenced("a/free", false);
	fenced("ab/f", true);
	fenced("runs", true);
	fenced("runs/1/f", true);
	fenced("runs/1/other", false);
	fenced("runs/link", false);
	fenced("runs/link/f", false);
	fenced("hub/snapshots/1/f", true);
	fenced("hub/snapshots/1/x", false);
	fenced("free/p.bin", true);
	fenced("free/p.idx", false);
	fenced("free/p.q.idx", true);
	fenced("free/q.bin", true);
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_COMMON, path("free"), &f[5]), 0);
	fenced("a/free", true);
	fenced("a/out", false);
	ck_assert_int_eq(mfs_fence_add(MFS_FENCE_DIR, "/", &f[6]), 0);
	fenced("a/out", false); /* the narrowest counts */
	fenced("ab/f", true);
	for (unsigned i = 0; i < 7; i++)
		mfs_fence_remove(f[i]);
	fenced("a/out", true);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("walk");
	TCase *c = unit_case(s, "walk", leads_where_the_kernel_goes);

	tcase_add_checked_fixture(c, setup, NULL);
	tcase_add_test(c, below_a_directory);
	tcase_add_test(c, opens_nothing);
	tcase_add_test(c, counts_directories_through_links);
	tcase_add_test(c, a_link_that_is_flipped);
	tcase_add_test(c, the_kernel_agrees);
	tcase_add_test(c, looks_again);
	tcase_add_test(c, a_set_says_who_may_read_it);
	tcase_add_test(c, links_of_a_fenced_source_end_in_it);
	tcase_add_test(c, fences_of_what_moves);
	return s;
}
