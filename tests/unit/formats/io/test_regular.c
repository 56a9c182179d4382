/* Source files are opened without waiting, and only regular ones: formats/io/regular.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "formats/io/backing.h"
#include "formats/io/fileset.h"
#include "formats/io/regular.h"
#include "formats/io/buffered.h"
#include "formats/ckpt/read/integrity.h"
#include "formats/megatron/tracker.h"

static const char *path(const char *name)
{
	static char text[400];

	snprintf(text, sizeof(text), "%s/%s", unit_tmpdir(), name);
	return text;
}

static int open_it(const char *name)
{
	int fd = -1, rc = mfs_open_regular(AT_FDCWD, path(name), 0, &fd, NULL);

	if (!rc)
		close(fd);
	return rc;
}

START_TEST(opens_a_regular_file)
{
	struct stat st;
	char text[8] = {0};
	int dir = open(unit_tmpdir(), O_RDONLY | O_DIRECTORY), fd;

	unit_write(unit_tmpdir(), "file", "bytes", 5);
	ck_assert_int_eq(symlink("file", path("link")), 0);
	ck_assert_int_eq(mfs_open_regular(dir, "file", O_NOFOLLOW, &fd, &st), 0);
	ck_assert_int_eq(st.st_size, 5);
	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	ck_assert_int_eq(read(fd, text, sizeof(text)), 5);
	ck_assert_str_eq(text, "bytes");
	close(fd);
	ck_assert_int_eq(mfs_open_regular(dir, "link", 0, &fd, NULL), 0);
	close(fd);
	ck_assert_int_eq(mfs_open_regular(dir, "link", O_NOFOLLOW, &fd, NULL), -ELOOP);
	ck_assert_int_eq(mfs_open_regular(dir, "nothing", 0, &fd, NULL), -ENOENT);
	close(dir);
}
END_TEST

/* Where the file system has it. */
START_TEST(what_is_opened_for_o_direct_stays_so)
{
	int plain, direct, asked;

	unit_write(unit_tmpdir(), "file", "bytes", 5);
	plain = open(path("file"), O_RDONLY | O_DIRECT | O_CLOEXEC);
	asked = mfs_open_regular(AT_FDCWD, path("file"), O_DIRECT, &direct, NULL);
	ck_assert_int_eq(plain >= 0, !asked);
	if (asked)
		return;
	ck_assert_int_eq(fcntl(direct, F_GETFL) & (O_DIRECT | O_NONBLOCK), O_DIRECT);
	close(plain);
	close(direct);
}
END_TEST

START_TEST(refuses_what_is_none)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_int_eq(mkfifo(path("fifo"), 0600), 0);
	ck_assert_int_eq(mkdir(path("dir"), 0700), 0);
	snprintf(name.sun_path, sizeof(name.sun_path), "%.100s", path("socket"));
	ck_assert_int_eq(bind(s, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(symlink("/dev/zero", path("device")), 0);
	ck_assert_int_eq(open_it("fifo"), -EINVAL);
	ck_assert_int_eq(open_it("dir"), -EINVAL);
	ck_assert_int_eq(open_it("socket"), -EINVAL);
	ck_assert_int_eq(open_it("device"), -EINVAL);
	ck_assert_str_eq(mfs_open_regular_why(-EINVAL), "not a regular file");
	ck_assert_str_eq(mfs_open_regular_why(-ENOENT), strerror(ENOENT));
	close(s);
}
END_TEST

/* A file whose bytes are elsewhere, and do not come. */
static int does_not_come(void *object, struct mfs_error *err)
{
	(void)object;
	return mfs_fail(err, -ETIMEDOUT, "%s", "the server does not answer");
}

START_TEST(says_why_bytes_do_not_come)
{
	static const struct mfs_backing_ops ops = {.keep = does_not_come};
	const struct mfs_backing backing = {.ops = &ops};
	struct stat st;

	unit_write(unit_tmpdir(), "remote", "", 0);
	ck_assert_int_eq(stat(path("remote"), &st), 0);
	ck_assert_int_eq(mfs_backing_add(&st, &backing), 0);
	ck_assert_int_eq(open_it("remote"), -ETIMEDOUT);
	ck_assert_str_eq(mfs_open_regular_why(-ETIMEDOUT), "the server does not answer");
	ck_assert_int_eq(open_it("nothing"), -ENOENT);
	ck_assert_str_eq(mfs_open_regular_why(-ETIMEDOUT), strerror(ETIMEDOUT));
	mfs_backing_remove(&st);
	ck_assert_int_eq(open_it("remote"), 0);
}
END_TEST

/* Holds a lease on the file until it is told that somebody wants it. */
static int hold_lease(const char *name, int ready)
{
	sigset_t io;
	int fd = open(name, O_RDWR), told;

	sigemptyset(&io);
	sigaddset(&io, SIGIO);
	sigprocmask(SIG_BLOCK, &io, NULL);
	if (fcntl(fd, F_SETLEASE, F_WRLCK))
		return 77;
	if (write(ready, "", 1) != 1 || sigwait(&io, &told))
		return 1;
	return fcntl(fd, F_SETLEASE, F_UNLCK) ? 1 : 0;
}

START_TEST(waits_for_a_lease)
{
	int ready[2], status;
	char byte;
	pid_t child;

	unit_write(unit_tmpdir(), "leased", "bytes", 5);
	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	if (!child)
		_exit(hold_lease(path("leased"), ready[1]));
	close(ready[1]);
	if (read(ready[0], &byte, 1) == 1)
		ck_assert_int_eq(open_it("leased"), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status) % 77, 0); /* 77: this file system has no leases */
}
END_TEST

/* A file that was added as a regular one becomes a FIFO. */
START_TEST(file_becomes_a_fifo)
{
	struct mfs_fileset *set;
	struct mfs_buffered *w = malloc(sizeof(*w));
	struct mfs_error err;
	const uint8_t *map;
	uint32_t file;
	char byte;

	unit_write(unit_tmpdir(), "part", "bytes", 5);
	unit_ok(mfs_fileset_new(unit_tmpdir(), &set, &err), &err);
	unit_ok(mfs_fileset_add(set, "part", &file, &err), &err);
	ck_assert_int_eq(unlink(path("part")), 0);
	ck_assert_int_eq(mkfifo(path("part"), 0600), 0);
	unit_fails(mfs_fileset_read(set, file, 0, &byte, 1, &err), &err, -ESTALE,
		   "part: not a regular file");
	unit_fails(mfs_fileset_map(set, file, &map, &err), &err, -ESTALE, "part: not a regular");
	unit_fails(mfs_buffered_open(set, file, w, &err), &err, -ESTALE, "part: not a regular");
	mfs_fileset_free(set);
	free(w);
}
END_TEST

START_TEST(tracker_is_a_fifo)
{
	struct mfs_tracker t = {.kind = MFS_TRACKER_NUMBER, .number = 20};

	ck_assert_int_eq(mkfifo(path(MFS_TRACKER_FILE), 0600), 0);
	mfs_tracker_read(unit_tmpdir(), &t);
	ck_assert_int_eq(t.kind, MFS_TRACKER_BAD);
	ck_assert(t.no_file);
}
END_TEST

static void count_bad(void *arg, const struct mfs_error *err)
{
	unit_sentence(err->msg, "not a regular file");
	++*(int *)arg;
}

/* What a manifest names is read to its end: a device has none. */
START_TEST(manifest_names_a_device)
{
	static const char manifest[] = "{\"algorithm\": \"sha256\", \"files\": {\"f\": \"00\"}}";
	struct mfs_error err;
	uint32_t checked;
	int bad = 0;

	if (mknod(path("f"), S_IFCHR | 0600, makedev(1, 5)))
		ck_assert_int_eq(mkfifo(path("f"), 0600), 0);
	unit_write(unit_tmpdir(), "integrity.json", manifest, strlen(manifest));
	unit_ok(mfs_integrity_check(unit_tmpdir(), count_bad, &bad, &checked, &err), &err);
	ck_assert_int_eq(bad, 1);
	ck_assert_int_eq(unlink(path("integrity.json")), 0);
	ck_assert_int_eq(mkfifo(path("integrity.json"), 0600), 0);
	unit_fails(mfs_integrity_check(unit_tmpdir(), count_bad, &bad, &checked, &err), &err,
		   -EINVAL, "not a regular file");
}
END_TEST

/* A hole of it would be read into memory. */
START_TEST(manifest_is_too_large)
{
	static const char manifest[] = "{\"algorithm\": \"sha256\", \"files\": {}}";
	struct mfs_error err;
	uint32_t checked, bad = 0;

	unit_write(unit_tmpdir(), "integrity.json", manifest, strlen(manifest));
	ck_assert_int_eq(truncate(path("integrity.json"), (64 << 20) + 1), 0);
	unit_fails(mfs_integrity_check(unit_tmpdir(), count_bad, &bad, &checked, &err), &err,
		   -EFBIG, "integrity.json: its size is not known, or above the 67108864 bytes");
}
END_TEST

static void note_sentence(void *arg, const struct mfs_error *err)
{
	unit_sentence(err->msg, arg);
}

/* A file of the checkpoint whose sum nobody knows. */
START_TEST(manifest_lacks_a_file)
{
	static const char manifest[] = "{\"algorithm\": \"sha256\", \"files\": {}}";
	struct mfs_error err;
	uint32_t checked = 1;

	unit_write(unit_tmpdir(), "integrity.json", manifest, strlen(manifest));
	unit_write(unit_tmpdir(), "__0_0.distcp", "x", 1);
	unit_write(unit_tmpdir(), "notes.txt", "x", 1);
	unit_ok(mfs_integrity_check(unit_tmpdir(), note_sentence, "does not name '__0_0.distcp'",
				    &checked, &err),
		&err);
	ck_assert_uint_eq(checked, 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("regular");
	TCase *c = unit_case(s, "opener", opens_a_regular_file);

	tcase_add_test(c, what_is_opened_for_o_direct_stays_so);
	tcase_add_test(c, refuses_what_is_none);
	tcase_add_test(c, says_why_bytes_do_not_come);
	tcase_add_test(c, waits_for_a_lease);
	c = unit_case(s, "sources", file_becomes_a_fifo);
	tcase_add_test(c, tracker_is_a_fifo);
	tcase_add_test(c, manifest_names_a_device);
	tcase_add_test(c, manifest_is_too_large);
	tcase_add_test(c, manifest_lacks_a_file);
	return s;
}
