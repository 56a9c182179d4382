/* Copying a view out, stopped, failing and resumed: fs/export/copy.h, fs/export/journal.h. */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/io/commit.h"
#include "formats/io/io_engine.h"
#include "fs/export/copy.h"
#include "fs/export/dir.h"
#include "fs/export/journal.h"

#define FILES 7
#define MTIME 1700000000123456789

static const uint64_t sizes[FILES] = {
	2, 0, MFS_COPY_REQUEST, MFS_COPY_REQUEST + 1, 3 * MFS_COPY_REQUEST - 1, 12345, 1,
};

static struct mfs_view_file files[FILES];
static struct mfs_view view;
static uint8_t *contents[FILES];
static uint64_t durable[FILES], written;
static volatile sig_atomic_t stop;
static int dirfd_, records;

static uint8_t *pattern(uint64_t len, unsigned seed)
{
	uint8_t *bytes = malloc(len + 1);

	ck_assert_ptr_nonnull(bytes);
	for (uint64_t i = 0; i < len; i++)
		bytes[i] = (uint8_t)((i + seed) * 2654435761u >> 22);
	return bytes;
}

static void set_up(void)
{
	static char *const names[FILES] = {
		"file-0", "file-1", "file-2/b/2", "file-2/b/3", "file-2/c/4", "file-5", "file-6",
	};
	struct mfs_error err;

	for (unsigned i = 0; i < FILES; i++) {
		contents[i] = pattern(sizes[i], i);
		files[i].name = names[i];
		unit_ok(mfs_vfile_new(&files[i].data, &err), &err);
		if (sizes[i])
			unit_ok(mfs_vfile_add_literal(files[i].data, contents[i], sizes[i], &err),
				&err);
	}
	view = (struct mfs_view){.files = files, .count = FILES, .mtime_ns = MTIME};
	dirfd_ = open(unit_tmpdir(), O_RDONLY | O_DIRECTORY);
	unit_ok(mfs_export_make_dirs(dirfd_, &view, &err), &err);
	memset(durable, 0, sizeof(durable));
	stop = records = 0;
	written = 0;
}

static void tear_down(void)
{
	for (unsigned i = 0; i < FILES; i++) {
		mfs_vfile_free(files[i].data);
		if (!sizes[i])
			free(contents[i]);
	}
	close(dirfd_);
}

static int record(void *arg, struct mfs_error *err)
{
	(void)arg, (void)err;
	records++;
	return 0;
}

/* arg: bytes after which a person presses control-C, or NULL. */
static void wrote(void *arg, const char *name, uint64_t bytes)
{
	ck_assert_int_eq(strncmp(name, "file-", 5), 0);
	written += bytes;
	if (arg && written >= *(uint64_t *)arg)
		stop = SIGINT;
}

static int copy_with(struct mfs_io_engine *engine, uint64_t *stop_after, struct mfs_error *err)
{
	const struct mfs_copy job = {
		.view = &view,
		.mode = 0640,
		.dirfd = dirfd_,
		.durable = durable,
		.engine = engine,
		.stop = &stop,
		.arg = stop_after,
		.record = record,
		.wrote = wrote,
	};
	int rc = mfs_copy_view(&job, err);

	mfs_io_engine_free(engine);
	return rc;
}

static struct mfs_io_engine *engine_of(int i)
{
	struct mfs_io_engine *e = NULL;
	struct mfs_error err;

	if (!i || mfs_io_uring(MFS_COPY_DEPTH, &e, &err))
		unit_ok(mfs_io_calls(MFS_COPY_DEPTH, &e, &err), &err);
	return e;
}

static void check_files(void)
{
	for (unsigned i = 0; i < FILES; i++) {
		uint8_t *got = malloc(sizes[i] + 1);
		int fd = openat(dirfd_, files[i].name, O_RDONLY);
		struct stat st;

		ck_assert_int_eq(fstat(fd, &st), 0);
		ck_assert_int_eq(st.st_size, (off_t)sizes[i]);
		ck_assert_int_eq(st.st_mode & 07777, 0640);
		ck_assert_int_eq((int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
				 MTIME);
		ck_assert_int_eq(read(fd, got, sizes[i] + 1), (ssize_t)sizes[i]);
		ck_assert_int_eq(memcmp(got, contents[i], sizes[i]), 0);
		ck_assert_uint_eq(durable[i], sizes[i]);
		close(fd);
		free(got);
	}
}

static uint64_t sum(const uint64_t *list)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < FILES; i++)
		total += list[i];
	return total;
}

START_TEST(whole_copy)
{
	struct mfs_error err;

	unit_ok(copy_with(engine_of(_i), NULL, &err), &err);
	check_files();
	ck_assert_uint_eq(written, sum(sizes));
	ck_assert_int_ge(records, FILES);
}
END_TEST

START_TEST(stopped_and_resumed)
{
	uint64_t after = 2 * MFS_COPY_REQUEST, before;
	struct mfs_error err;

	unit_fails(copy_with(engine_of(_i), &after, &err), &err, -EINTR, "interrupted");
	before = sum(durable);
	ck_assert_uint_ge(before, after);
	ck_assert_uint_lt(before, sum(sizes) + 1);
	stop = 0;
	written = 0;
	unit_ok(copy_with(engine_of(_i), NULL, &err), &err);
	ck_assert_uint_eq(written, sum(sizes) - before);
	check_files();
}
END_TEST

/* A disk that fails at one call: bytes from the failure on must not count as written. */
struct failing {
	struct mfs_io *queue[MFS_COPY_DEPTH];
	int result[MFS_COPY_DEPTH], count, calls, fail_at, code;
};

static int failing_start(void *state, struct mfs_io *w)
{
	struct failing *f = state;
	ssize_t done = 0;

	if (++f->calls == f->fail_at)
		done = f->code;
	else if (w->kind == MFS_IO_SYNC)
		done = fsync(w->fd);
	else
		done = pwritev(w->fd, w->iov, (int)w->iov_count, (off_t)w->off);
	f->queue[f->count] = w;
	f->result[f->count++] = (int)done;
	return 0;
}

static int failing_reap(void *state, struct mfs_io **ret, ssize_t *ret_done)
{
	struct failing *f = state;

	*ret = f->queue[--f->count];
	*ret_done = f->result[f->count];
	return 0;
}

static void failing_free(void *state)
{
	(void)state;
}

static struct mfs_io_engine *failing_engine(struct failing *f)
{
	static const struct mfs_io_engine_ops ops = {
		.name = "failing",
		.start = failing_start,
		.reap = failing_reap,
		.free = failing_free,
	};
	struct mfs_io_engine *e;
	struct mfs_error err;

	unit_ok(mfs_io_engine_with(&ops, f, MFS_COPY_DEPTH, &e, &err), &err);
	return e;
}

/* Each call in turn fails, writes and syncs alike; then a second run must end with the right bytes.
 * What is called durable must be there: the rest is overwritten with rubbish before the second
 * run. */
START_TEST(every_failure_is_survived)
{
	static uint8_t rubbish[3 * MFS_COPY_REQUEST];
	struct mfs_error err;
	int rc = -1;

	memset(rubbish, 0xee, sizeof(rubbish));
	for (int at = 1; rc; at++) {
		struct failing f = {.fail_at = at, .code = -ENOSPC};

		memset(durable, 0, sizeof(durable));
		rc = copy_with(failing_engine(&f), NULL, &err);
		ck_assert(!rc || rc == -ENOSPC);
		if (rc)
			unit_sentence(err.msg, "No space left");
		for (unsigned i = 0; i < FILES && rc; i++) {
			int fd = openat(dirfd_, files[i].name, O_WRONLY | O_CREAT, 0644);

			ck_assert_uint_le(durable[i], sizes[i]);
			if (durable[i] < sizes[i])
				ck_assert_int_gt(pwrite(fd, rubbish, sizes[i] - durable[i],
							(off_t)durable[i]),
						 0);
			close(fd);
		}
		unit_ok(copy_with(engine_of(0), NULL, &err), &err);
		check_files();
	}
}
END_TEST

START_TEST(journal_round_trip)
{
	uint64_t again[FILES];
	struct mfs_fingerprint source, other;
	struct mfs_error err;

	unit_ok(mfs_fingerprint_view(&view, &source, &err), &err);
	ck_assert(!mfs_journal_load(dirfd_, &view, &source, again));
	unit_ok(copy_with(engine_of(0), NULL, &err), &err);
	durable[4] = 77;
	unit_ok(mfs_journal_save(dirfd_, &view, &source, durable, &err), &err);
	ck_assert(mfs_journal_load(dirfd_, &view, &source, again));
	ck_assert_int_eq(memcmp(again, durable, sizeof(durable)), 0);
	/* A file that is not what the journal says. */
	unlinkat(dirfd_, files[3].name, 0);
	ck_assert(mfs_journal_load(dirfd_, &view, &source, again));
	ck_assert_uint_eq(again[3], 0);
	ck_assert_uint_eq(again[2], durable[2]);
	/* Another source. */
	other = source;
	other.hex[0] ^= 1;
	ck_assert(!mfs_journal_load(dirfd_, &view, &other, again));
	ck_assert_uint_eq(sum(again), 0);
}
END_TEST

/* A user who may write next to DEST puts links and other files into what an export has left. It is
 * written around them, whether the export goes on or begins again. */
START_TEST(links_are_not_followed)
{
	char victim[300], path[400];
	struct mfs_error err;
	size_t len;
	void *bytes;

	snprintf(victim, sizeof(victim), "%s/victim", unit_tmpdir());
	ck_assert_int_eq(mkdir(victim, 0700), 0);
	unit_write(victim, "file", "mine", 4);
	snprintf(path, sizeof(path), "%s/file", victim);
	ck_assert_int_eq(symlinkat(path, dirfd_, "file-0"), 0);
	ck_assert_int_eq(linkat(AT_FDCWD, path, dirfd_, "file-2/b/2", 0), 0);
	ck_assert_int_eq(linkat(AT_FDCWD, path, dirfd_, "file-5", 0), 0);
	ck_assert_int_eq(mkfifoat(dirfd_, "file-6", 0600), 0);
	durable[5] = 3; /* so its journal says */
	unit_ok(copy_with(engine_of(0), NULL, &err), &err);
	check_files();
	bytes = unit_slurp(path, &len);
	ck_assert(len == 4 && !memcmp(bytes, "mine", 4));
	free(bytes);
	/* A directory on the way. */
	for (int i = 0; i < 2; i++) {
		memset(durable, 0, sizeof(durable));
		ck_assert_int_eq(renameat(dirfd_, i ? "file-2" : "file-2/b", dirfd_,
					  i ? "away" : "file-2/away"),
				 0);
		ck_assert_int_eq(symlinkat(victim, dirfd_, i ? "file-2" : "file-2/b"), 0);
		ck_assert_int_lt(mfs_export_make_dirs(dirfd_, &view, &err), 0);
		ck_assert_int_lt(copy_with(engine_of(0), NULL, &err), 0);
		ck_assert_int_lt(mfs_export_sync_dirs(dirfd_, &view, &err), 0);
		ck_assert_int_eq(unlinkat(dirfd_, i ? "file-2" : "file-2/b", 0), 0);
		ck_assert_int_eq(renameat(dirfd_, i ? "away" : "file-2/away", dirfd_,
					  i ? "file-2" : "file-2/b"),
				 0);
	}
	snprintf(path, sizeof(path), "%s/2", victim);
	ck_assert_int_ne(access(path, F_OK), 0);
	snprintf(path, sizeof(path), "%s/b", victim);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(fingerprint_tells_sources_apart)
{
	struct mfs_fingerprint a, b;
	struct mfs_error err;

	unit_ok(mfs_fingerprint_view(&view, &a, &err), &err);
	ck_assert_uint_eq(strlen(a.hex), 64);
	unit_ok(mfs_fingerprint_view(&view, &b, &err), &err);
	ck_assert_str_eq(a.hex, b.hex);
	view.mtime_ns++;
	unit_ok(mfs_fingerprint_view(&view, &b, &err), &err);
	ck_assert_str_ne(a.hex, b.hex);
	view.mtime_ns--;
	contents[5][100] ^= 1;
	unit_ok(mfs_fingerprint_view(&view, &b, &err), &err);
	ck_assert_str_ne(a.hex, b.hex);
}
END_TEST

START_TEST(damaged_journals_start_over)
{
	static const char *const damaged[] = {
		"",
		"{",
		"[]",
		"null",
		"{\"mcorefs_export\": 2}",
		"{\"mcorefs_export\": 1, \"source\": 7}",
	};
	struct mfs_fingerprint source;
	uint64_t again[FILES];
	struct mfs_error err;

	unit_ok(mfs_fingerprint_view(&view, &source, &err), &err);
	for (size_t i = 0; i < MFS_ARRAY_SIZE(damaged); i++) {
		unit_ok(mfs_commit_file(dirfd_, MFS_EXPORT_JOURNAL, damaged[i], strlen(damaged[i]),
					&err),
			&err);
		ck_assert(!mfs_journal_load(dirfd_, &view, &source, again));
	}
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("copy");
	TCase *c = unit_case(s, "copy", every_failure_is_survived);

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_loop_test(c, whole_copy, 0, 2);
	tcase_add_loop_test(c, stopped_and_resumed, 0, 2);
	tcase_add_test(c, links_are_not_followed);
	c = unit_case(s, "journal", journal_round_trip);
	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, fingerprint_tells_sources_apart);
	tcase_add_test(c, damaged_journals_start_over);
	return s;
}
