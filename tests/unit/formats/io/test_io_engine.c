/* Engines that read and write: formats/io/io_engine.h. One of them calls pthread_create(): the
 * Makefile runs this under TSan, too. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/io_engine.h"

#define DEPTH	4
#define ENGINES 3
#define CHUNK	10007 /* odd on purpose */
#define CHUNKS	64

/* An engine that reads and writes at most so many bytes per call, and fails when told. */
struct awkward {
	size_t most;
	int fail_at, calls, failure; /* failure at call number fail_at; 0: never */
	struct mfs_io *queue[DEPTH];
	ssize_t done[DEPTH];
	unsigned count;
};

static int awkward_start(void *state, struct mfs_io *w)
{
	struct awkward *a = state;
	struct iovec first = w->iov ? w->iov[0] : (struct iovec){0};
	ssize_t done;

	if (++a->calls == a->fail_at) {
		done = a->failure;
	} else {
		first.iov_len = first.iov_len < a->most ? first.iov_len : a->most;
		done = w->kind == MFS_IO_READ ? preadv(w->fd, &first, 1, (off_t)w->off)
					      : pwritev(w->fd, &first, 1, (off_t)w->off);
	}
	a->queue[a->count] = w;
	a->done[a->count++] = done;
	return 0;
}

/* Last in, first out: completions come in any order. */
static int awkward_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct awkward *a = state;

	*ret = a->queue[--a->count];
	*ret_done = a->done[a->count];
	return 0;
}

static void awkward_free(void *state)
{
	(void)state;
}

static struct mfs_io_engine *awkward_engine(struct awkward *a)
{
	static const struct mfs_io_engine_ops ops = {
		.name = "awkward",
		.start = awkward_start,
		.reap = awkward_reap,
		.free = awkward_free,
	};
	struct mfs_io_engine *e;
	struct mfs_error err;

	unit_ok(mfs_io_engine_with(&ops, a, DEPTH, &e, &err), &err);
	return e;
}

/* io_uring may be forbidden where tests run; then there is nothing to test about it. */
static struct mfs_io_engine *real_engine(int i)
{
	struct mfs_io_engine *e = NULL;
	struct mfs_error err;
	int rc = i == 0	  ? mfs_io_calls(DEPTH, &e, &err)
		 : i == 1 ? mfs_io_uring(DEPTH, &e, &err)
			  : mfs_io_threads(DEPTH, 3, &e, &err);

	ck_assert(!rc || i == 1);
	return e;
}

static int open_file(void)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/file", unit_tmpdir());
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static uint8_t *pattern(size_t len)
{
	uint8_t *bytes = malloc(len);

	ck_assert_ptr_nonnull(bytes);
	for (size_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 24);
	return bytes;
}

static void check_file(int fd, const uint8_t *want, size_t len)
{
	uint8_t *got = malloc(len + 1);

	ck_assert_int_eq(pread(fd, got, len + 1, 0), (ssize_t)len);
	ck_assert_int_eq(memcmp(got, want, len), 0);
	free(got);
}

/* Writes a pattern in requests of three iovecs each, keeping the engine full. */
static void write_pattern(struct mfs_io_engine *e, int fd, uint8_t *bytes)
{
	struct iovec iov[CHUNKS][3];
	struct mfs_io w[CHUNKS], *done;
	unsigned next = 0, finished = 0;

	while (finished < CHUNKS) {
		while (next < CHUNKS && mfs_io_in_flight(e) < DEPTH) {
			uint8_t *at = bytes + (size_t)next * CHUNK;

			iov[next][0] = (struct iovec){at, 1};
			iov[next][1] = (struct iovec){at + 1, 5000};
			iov[next][2] = (struct iovec){at + 5001, CHUNK - 5001};
			w[next] = (struct mfs_io){
				.fd = fd,
				.off = (uint64_t)next * CHUNK,
				.iov = iov[next],
				.iov_count = 3,
			};
			ck_assert_int_eq(mfs_io_submit(e, &w[next++]), 0);
		}
		ck_assert_int_eq(mfs_io_wait(e, &done), 0);
		ck_assert_int_eq(done->result, 0);
		finished++;
	}
}

/* Reads it back in requests of two iovecs, or of one, and more at a time than the engine takes. */
static void read_pattern(struct mfs_io_engine *e, int fd, const uint8_t *want)
{
	uint8_t *bytes = calloc(CHUNKS, CHUNK);
	struct iovec iov[CHUNKS][2];
	struct mfs_io w[CHUNKS], *done;
	unsigned next = 0, finished = 0;

	while (finished < CHUNKS) {
		while (next < CHUNKS && mfs_io_in_flight(e) < DEPTH) {
			uint8_t *at = bytes + (size_t)next * CHUNK;
			const size_t first = next % 2 ? CHUNK : 4000;

			iov[next][0] = (struct iovec){at, first};
			iov[next][1] = (struct iovec){at + first, CHUNK - first};
			w[next] = (struct mfs_io){
				.kind = MFS_IO_READ,
				.fd = fd,
				.off = (uint64_t)next * CHUNK,
				.iov = iov[next],
				.iov_count = next % 2 ? 1 : 2,
			};
			ck_assert_int_eq(mfs_io_submit(e, &w[next++]), 0);
		}
		ck_assert_int_eq(mfs_io_wait(e, &done), 0);
		ck_assert_int_eq(done->result, 0);
		finished++;
	}
	ck_assert_int_eq(memcmp(bytes, want, (size_t)CHUNK * CHUNKS), 0);
	free(bytes);
}

START_TEST(all_bytes_arrive)
{
	struct mfs_io_engine *e = real_engine(_i);
	uint8_t *bytes = pattern((size_t)CHUNK * CHUNKS);
	int fd = open_file();

	if (e) {
		write_pattern(e, fd, bytes);
		check_file(fd, bytes, (size_t)CHUNK * CHUNKS);
		read_pattern(e, fd, bytes);
		ck_assert_uint_eq(mfs_io_in_flight(e), 0);
	}
	mfs_io_engine_free(e);
	free(bytes);
	close(fd);
}
END_TEST

START_TEST(short_writes_go_on)
{
	struct awkward a = {.most = 777};
	struct mfs_io_engine *e = awkward_engine(&a);
	uint8_t *bytes = pattern((size_t)CHUNK * CHUNKS);
	int fd = open_file();

	write_pattern(e, fd, bytes);
	check_file(fd, bytes, (size_t)CHUNK * CHUNKS);
	ck_assert_int_gt(a.calls, CHUNKS * 10);
	read_pattern(e, fd, bytes);
	ck_assert_int_gt(a.calls, CHUNKS * 20);
	mfs_io_engine_free(e);
	free(bytes);
	close(fd);
}
END_TEST

/* The result of one write of 100 bytes when call number at ends with that result. */
static int one_write(int at, int failure)
{
	struct awkward a = {.most = 30, .fail_at = at, .failure = failure};
	struct mfs_io_engine *e = awkward_engine(&a);
	char bytes[100] = "bytes";
	struct iovec iov = {bytes, sizeof(bytes)};
	int fd = open_file();
	struct mfs_io w = {.fd = fd, .iov = &iov, .iov_count = 1}, *done;

	ck_assert_int_eq(mfs_io_submit(e, &w), 0);
	ck_assert_int_eq(mfs_io_wait(e, &done), 0);
	ck_assert_ptr_eq(done, &w);
	ck_assert_uint_eq(mfs_io_in_flight(e), 0);
	mfs_io_engine_free(e);
	close(fd);
	return w.result;
}

START_TEST(errors_are_reported)
{
	ck_assert_int_eq(one_write(1, -ENOSPC), -ENOSPC);
	ck_assert_int_eq(one_write(3, -EIO), -EIO);
	ck_assert_int_eq(one_write(1, -EINTR), 0);
	ck_assert_int_eq(one_write(2, -EAGAIN), 0);
	/* Writing nothing without an error must not go on for ever. */
	ck_assert_int_eq(one_write(2, 0), -EIO);
}
END_TEST

START_TEST(kernel_errors)
{
	struct mfs_io_engine *e = real_engine(_i);
	struct iovec iov = {(void *)8, 4096};
	int fd = open_file();
	struct mfs_io w = {.fd = -1, .iov = &iov, .iov_count = 1}, *done;

	if (!e)
		goto out;
	ck_assert_int_eq(mfs_io_submit(e, &w), 0);
	ck_assert_int_eq(mfs_io_wait(e, &done), 0);
	ck_assert_int_eq(w.result, -EBADF);
	/* A page that is not there: how a source that was cut shows. */
	w.fd = fd;
	ck_assert_int_eq(mfs_io_submit(e, &w), 0);
	ck_assert_int_eq(mfs_io_wait(e, &done), 0);
	ck_assert_int_eq(w.result, -EFAULT);
	mfs_io_engine_free(e);
out:
	close(fd);
}
END_TEST

START_TEST(a_read_beyond_the_end)
{
	struct mfs_io_engine *e = real_engine(_i);
	char bytes[100];
	struct iovec iov = {bytes, sizeof(bytes)};
	int fd = open_file();
	struct mfs_io w = {.kind = MFS_IO_READ, .fd = fd, .iov = &iov, .iov_count = 1}, *done;

	if (!e)
		goto out;
	ck_assert_int_eq(pwrite(fd, "there", 5, 0), 5);
	ck_assert_int_eq(mfs_io_submit(e, &w), 0);
	ck_assert_int_eq(mfs_io_wait(e, &done), 0);
	ck_assert_int_eq(w.result, -EIO);
	ck_assert_int_eq(memcmp(bytes, "there", 5), 0);
	mfs_io_engine_free(e);
out:
	close(fd);
}
END_TEST

START_TEST(sync_and_limits)
{
	struct mfs_io_engine *e = real_engine(_i);
	struct mfs_io w[DEPTH + 1], *done;
	int fd = open_file();

	if (!e)
		goto out;
	ck_assert_int_eq(mfs_io_wait(e, &done), -ENOENT);
	for (int i = 0; i < DEPTH; i++) {
		w[i] = (struct mfs_io){.kind = MFS_IO_SYNC, .fd = fd};
		ck_assert_int_eq(mfs_io_submit(e, &w[i]), 0);
	}
	ck_assert_int_eq(mfs_io_submit(e, &w[DEPTH]), -EBUSY);
	for (int i = 0; i < DEPTH; i++) {
		ck_assert_int_eq(mfs_io_wait(e, &done), 0);
		ck_assert_int_eq(done->result, 0);
	}
	ck_assert_int_eq(mfs_io_wait(e, &done), -ENOENT);
	mfs_io_engine_free(e);
out:
	close(fd);
}
END_TEST

START_TEST(some_engine_is_always_there)
{
	struct mfs_io_engine *e;
	struct mfs_error err;

	unit_ok(mfs_io_engine_new(DEPTH, &e, &err), &err);
	ck_assert(!strcmp(mfs_io_engine_name(e), "io_uring") ||
		  !strcmp(mfs_io_engine_name(e), "pwrite"));
	mfs_io_engine_free(e);
	mfs_io_engine_free(NULL);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("io_engine");
	TCase *c = unit_case(s, "core", short_writes_go_on);

	tcase_add_test(c, errors_are_reported);
	tcase_add_test(c, some_engine_is_always_there);
	tcase_add_loop_test(c, all_bytes_arrive, 0, ENGINES);
	tcase_add_loop_test(c, a_read_beyond_the_end, 0, ENGINES);
	tcase_add_loop_test(c, kernel_errors, 0, ENGINES);
	tcase_add_loop_test(c, sync_and_limits, 0, ENGINES);
	return s;
}
