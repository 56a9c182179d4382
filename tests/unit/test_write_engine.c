/* Write engines: formats/io/write_engine.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/io/write_engine.h"

#define DEPTH  4
#define CHUNK  10007 /* odd on purpose */
#define CHUNKS 64

/* An engine that writes at most so many bytes per call, and fails when told. */
struct awkward {
	size_t most;
	int fail_at, calls, failure; /* failure at call number fail_at; 0: never */
	struct mfs_write *queue[DEPTH];
	ssize_t done[DEPTH];
	unsigned count;
};

static int awkward_start(void *state, struct mfs_write *w)
{
	struct awkward *a = state;
	struct iovec first = w->iov ? w->iov[0] : (struct iovec){0};
	ssize_t done;

	if (++a->calls == a->fail_at) {
		done = a->failure;
	} else {
		first.iov_len = first.iov_len < a->most ? first.iov_len : a->most;
		done = pwritev(w->fd, &first, 1, (off_t)w->off);
	}
	a->queue[a->count] = w;
	a->done[a->count++] = done;
	return 0;
}

/* Last in, first out: completions come in any order. */
static int awkward_reap(void *state, struct mfs_write **ret, ssize_t *ret_done)
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

static struct mfs_write_engine *awkward_engine(struct awkward *a)
{
	static const struct mfs_write_engine_ops ops = {
		.name = "awkward",
		.start = awkward_start,
		.reap = awkward_reap,
		.free = awkward_free,
	};
	struct mfs_write_engine *e;
	struct mfs_error err;

	unit_ok(mfs_write_engine_with(&ops, a, DEPTH, &e, &err), &err);
	return e;
}

/* io_uring may be forbidden where tests run; then there is nothing to test about it. */
static struct mfs_write_engine *real_engine(int i)
{
	struct mfs_write_engine *e = NULL;
	struct mfs_error err;
	int rc = i ? mfs_write_uring(DEPTH, &e, &err) : mfs_write_pwrite(DEPTH, &e, &err);

	ck_assert(!rc || i);
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
static void write_pattern(struct mfs_write_engine *e, int fd, uint8_t *bytes)
{
	struct iovec iov[CHUNKS][3];
	struct mfs_write w[CHUNKS], *done;
	unsigned next = 0, finished = 0;

	while (finished < CHUNKS) {
		while (next < CHUNKS && mfs_write_in_flight(e) < DEPTH) {
			uint8_t *at = bytes + (size_t)next * CHUNK;

			iov[next][0] = (struct iovec){at, 1};
			iov[next][1] = (struct iovec){at + 1, 5000};
			iov[next][2] = (struct iovec){at + 5001, CHUNK - 5001};
			w[next] = (struct mfs_write){
				.fd = fd,
				.off = (uint64_t)next * CHUNK,
				.iov = iov[next],
				.iov_count = 3,
			};
			ck_assert_int_eq(mfs_write_submit(e, &w[next++]), 0);
		}
		ck_assert_int_eq(mfs_write_wait(e, &done), 0);
		ck_assert_int_eq(done->result, 0);
		finished++;
	}
}

START_TEST(test_all_bytes_arrive)
{
	struct mfs_write_engine *e = real_engine(_i);
	uint8_t *bytes = pattern((size_t)CHUNK * CHUNKS);
	int fd = open_file();

	if (e) {
		write_pattern(e, fd, bytes);
		check_file(fd, bytes, (size_t)CHUNK * CHUNKS);
		ck_assert_uint_eq(mfs_write_in_flight(e), 0);
	}
	mfs_write_engine_free(e);
	free(bytes);
	close(fd);
}
END_TEST

START_TEST(test_short_writes_go_on)
{
	struct awkward a = {.most = 777};
	struct mfs_write_engine *e = awkward_engine(&a);
	uint8_t *bytes = pattern((size_t)CHUNK * CHUNKS);
	int fd = open_file();

	write_pattern(e, fd, bytes);
	check_file(fd, bytes, (size_t)CHUNK * CHUNKS);
	ck_assert_int_gt(a.calls, CHUNKS * 10);
	mfs_write_engine_free(e);
	free(bytes);
	close(fd);
}
END_TEST

/* The result of one write of 100 bytes when call number at ends with that result. */
static int one_write(int at, int failure)
{
	struct awkward a = {.most = 30, .fail_at = at, .failure = failure};
	struct mfs_write_engine *e = awkward_engine(&a);
	char bytes[100] = "bytes";
	struct iovec iov = {bytes, sizeof(bytes)};
	int fd = open_file();
	struct mfs_write w = {.fd = fd, .iov = &iov, .iov_count = 1}, *done;

	ck_assert_int_eq(mfs_write_submit(e, &w), 0);
	ck_assert_int_eq(mfs_write_wait(e, &done), 0);
	ck_assert_ptr_eq(done, &w);
	ck_assert_uint_eq(mfs_write_in_flight(e), 0);
	mfs_write_engine_free(e);
	close(fd);
	return w.result;
}

START_TEST(test_errors_are_reported)
{
	ck_assert_int_eq(one_write(1, -ENOSPC), -ENOSPC);
	ck_assert_int_eq(one_write(3, -EIO), -EIO);
	ck_assert_int_eq(one_write(1, -EINTR), 0);
	ck_assert_int_eq(one_write(2, -EAGAIN), 0);
	/* Writing nothing without an error must not go on for ever. */
	ck_assert_int_eq(one_write(2, 0), -EIO);
}
END_TEST

START_TEST(test_kernel_errors)
{
	struct mfs_write_engine *e = real_engine(_i);
	struct iovec iov = {(void *)8, 4096};
	int fd = open_file();
	struct mfs_write w = {.fd = -1, .iov = &iov, .iov_count = 1}, *done;

	if (!e)
		goto out;
	ck_assert_int_eq(mfs_write_submit(e, &w), 0);
	ck_assert_int_eq(mfs_write_wait(e, &done), 0);
	ck_assert_int_eq(w.result, -EBADF);
	/* A page that is not there: how a source that was cut shows. */
	w.fd = fd;
	ck_assert_int_eq(mfs_write_submit(e, &w), 0);
	ck_assert_int_eq(mfs_write_wait(e, &done), 0);
	ck_assert_int_eq(w.result, -EFAULT);
	mfs_write_engine_free(e);
out:
	close(fd);
}
END_TEST

START_TEST(test_sync_and_limits)
{
	struct mfs_write_engine *e = real_engine(_i);
	struct mfs_write w[DEPTH + 1], *done;
	int fd = open_file();

	if (!e)
		goto out;
	ck_assert_int_eq(mfs_write_wait(e, &done), -ENOENT);
	for (int i = 0; i < DEPTH; i++) {
		w[i] = (struct mfs_write){.kind = MFS_WRITE_SYNC, .fd = fd};
		ck_assert_int_eq(mfs_write_submit(e, &w[i]), 0);
	}
	ck_assert_int_eq(mfs_write_submit(e, &w[DEPTH]), -EBUSY);
	for (int i = 0; i < DEPTH; i++) {
		ck_assert_int_eq(mfs_write_wait(e, &done), 0);
		ck_assert_int_eq(done->result, 0);
	}
	ck_assert_int_eq(mfs_write_wait(e, &done), -ENOENT);
	mfs_write_engine_free(e);
out:
	close(fd);
}
END_TEST

START_TEST(test_some_engine_is_always_there)
{
	struct mfs_write_engine *e;
	struct mfs_error err;

	unit_ok(mfs_write_engine_new(DEPTH, &e, &err), &err);
	ck_assert(!strcmp(mfs_write_engine_name(e), "io_uring") ||
		  !strcmp(mfs_write_engine_name(e), "pwrite"));
	mfs_write_engine_free(e);
	mfs_write_engine_free(NULL);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("write_engine");
	TCase *c = unit_case(s, "core", test_short_writes_go_on);

	tcase_add_test(c, test_errors_are_reported);
	tcase_add_test(c, test_some_engine_is_always_there);
	tcase_add_loop_test(c, test_all_bytes_arrive, 0, 2);
	tcase_add_loop_test(c, test_kernel_errors, 0, 2);
	tcase_add_loop_test(c, test_sync_and_limits, 0, 2);
	return s;
}
