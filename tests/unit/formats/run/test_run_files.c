/* What a run has written next to its checkpoints: formats/run. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/bytes.h"
#include "formats/base/crc32c.h"
#include "formats/run/curve.h"
#include "formats/run/event_file.h"
#include "formats/run/loss_table.h"
#include "formats/run/losses.h"
#include "trainer/report/events.h"

static struct mfs_error err;

/* ---- curves ---- */

START_TEST(a_later_value_of_a_step_replaces_the_earlier)
{
	struct mfs_curve c = {0};

	ck_assert_ptr_null(mfs_curve_at(&c, 1));
	ck_assert_int_eq(mfs_curve_add(&c, 3, 30), 0);
	ck_assert_int_eq(mfs_curve_add(&c, 1, 10), 0);
	ck_assert_int_eq(mfs_curve_add(&c, 3, 31), 0); /* the run was resumed */
	mfs_curve_finish(&c);
	ck_assert_uint_eq(c.count, 2);
	ck_assert(mfs_curve_at(&c, 1)->value == 10 && mfs_curve_at(&c, 3)->value == 31);
	ck_assert_ptr_null(mfs_curve_at(&c, 2));
	ck_assert_ptr_null(mfs_curve_at(&c, 0));
	mfs_curve_release(&c);
}
END_TEST

/* A long run keeps its first point and its form, and has a bound. */
START_TEST(long_curve)
{
	struct mfs_curve c = {0};

	for (int64_t i = 1; i <= 10 * MFS_CURVE_POINTS; i++)
		ck_assert_int_eq(mfs_curve_add(&c, i, (double)i), 0);
	mfs_curve_finish(&c);
	ck_assert_uint_le(c.count, MFS_CURVE_POINTS);
	ck_assert_uint_ge(c.count, MFS_CURVE_POINTS / 2);
	for (int64_t i = 1; i < 9 * MFS_CURVE_POINTS; i += 997) {
		const struct mfs_curve_point *p = mfs_curve_at(&c, i);

		ck_assert(p && p->step <= i && i - p->step < (int64_t)c.stride);
	}
	mfs_curve_release(&c);
}
END_TEST

/* ---- event files ---- */

/* What our own trainer writes is read again; a tag of another meaning is not the loss. */
START_TEST(events_of_ours)
{
	struct mft_events *e;
	struct mfs_curve c;
	char dir[PATH_MAX];

	snprintf(dir, sizeof(dir), "%s/tensorboard", unit_tmpdir());
	unit_ok(mft_events_open(dir, &e, &err), &err);
	mft_events_both(e, "lm loss", 6.5, 1, 8);
	mft_events_both(e, "lm loss", 6.25, 2, 16);
	mft_events_scalar(e, "grad norm", 1, 2);
	mft_events_close(e);
	ck_assert_uint_ne(mfs_losses_stamp(unit_tmpdir()), 0);
	ck_assert_int_eq(mfs_losses_read(unit_tmpdir(), &c, &err), 0);
	ck_assert_int_eq(err.code, 0);
	ck_assert_uint_eq(c.count, 2);
	ck_assert(mfs_curve_at(&c, 2)->value == 6.25);
	mfs_curve_release(&c);
}
END_TEST

static size_t put_record(uint8_t *to, const void *event, size_t len)
{
	mfs_put_le64(to, len);
	mfs_put_le64(to + 8, mfs_crc32c_masked(to, 8));
	memcpy(to + 12, event, len);
	mfs_put_le64(to + 12 + len, mfs_crc32c_masked(event, len));
	return 16 + len;
}

static int count_scalar(void *arg, const struct mfs_scalar *s)
{
	(void)s;
	++*(unsigned *)arg;
	return 0;
}

#define SCALAR "\x10\x07\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\x20\x40" /* step 7, 2.5 */

/* Half a record waits; a large one is passed over by its length; a wrong sum is named. */
START_TEST(half_a_record_waits_for_the_rest)
{
	uint8_t bytes[256];
	const size_t len = put_record(bytes, SCALAR, sizeof(SCALAR) - 1);
	unsigned count = 0;
	uint64_t skip;
	size_t used;

	memcpy(bytes + len, bytes, len);
	unit_ok(mfs_event_records("f", bytes, 2 * len - 1, count_scalar, &count, &used, &skip,
				  &err),
		&err);
	ck_assert_uint_eq(used, len);
	ck_assert_uint_eq(skip, 0);
	ck_assert_uint_eq(count, 1);
	mfs_put_le64(bytes + len, 1 << 20);
	mfs_put_le64(bytes + len + 8, mfs_crc32c_masked(bytes + len, 8));
	unit_ok(mfs_event_records("f", bytes, 2 * len, count_scalar, &count, &used, &skip, &err),
		&err);
	ck_assert_uint_eq(used, len);
	ck_assert_uint_eq(skip, (1 << 20) + 16);
	bytes[len] ^= 1;
	unit_fails(mfs_event_records("f", bytes, 2 * len, count_scalar, &count, &used, &skip, &err),
		   &err, -EINVAL, "f: the length of a record");
	bytes[14] ^= 1;
	unit_fails(mfs_event_records("f", bytes, len, count_scalar, &count, &used, &skip, &err),
		   &err, -EINVAL, "f: a record has not its sum");
}
END_TEST

/* ---- files of a run ---- */

static void read_table(const char *text, struct mfs_curve *ret)
{
	unit_write(unit_tmpdir(), "loss.csv", text, strlen(text));
	ck_assert_int_eq(mfs_losses_read(unit_tmpdir(), ret, &err), 0);
}

START_TEST(tables_have_losses_by_column)
{
	struct mfs_curve c;

	read_table("iteration,loss,lm_loss\n1,9,6.5\nx,1,1\n2,9\n3,9,\"6.25\"\r\n4,9,nan", &c);
	ck_assert_uint_eq(c.count, 3);
	ck_assert(mfs_curve_at(&c, 3)->value == 6.25 && isnan(mfs_curve_at(&c, 4)->value));
	mfs_curve_release(&c);
	read_table("a,b\n1,2\n", &c);
	ck_assert_uint_eq(c.count, 0);
	ck_assert_ptr_nonnull(strstr(err.msg, "names no column"));
	read_table("", &c);
	ck_assert_uint_eq(c.count, 0);
}
END_TEST

/* A file with so many records of 2 MiB, without their bytes, and a scalar after them. */
static uint32_t points_after(unsigned records)
{
	const off_t size = 2 << 20;
	uint8_t bytes[256];
	const size_t len = put_record(bytes, SCALAR, sizeof(SCALAR) - 1);
	char path[PATH_MAX];
	struct mfs_curve c;
	uint32_t count;
	int fd;

	snprintf(path, sizeof(path), "%s/events.out.tfevents.1", unit_tmpdir());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, len, records * (size + 16)), (ssize_t)len);
	mfs_put_le64(bytes, (uint64_t)size);
	mfs_put_le64(bytes + 8, mfs_crc32c_masked(bytes, 8));
	for (unsigned i = 0; i < records; i++)
		ck_assert_int_eq(pwrite(fd, bytes, 12, i * (size + 16)), 12);
	close(fd);
	ck_assert_int_eq(mfs_losses_read(unit_tmpdir(), &c, &err), 0);
	count = c.count;
	mfs_curve_release(&c);
	return count;
}

/* What is passed over has been read in part, and so there is an end to it. */
START_TEST(records_that_are_passed_over)
{
	ck_assert_uint_eq(points_after(8), 1);
	ck_assert_uint_eq(points_after(MFS_LOSSES_BYTES >> 20), 0);
}
END_TEST

/* A link leads elsewhere, a FIFO waits: neither is opened, and the stamp does not see them. */
START_TEST(links_are_not_followed)
{
	char path[PATH_MAX + 64], secret[PATH_MAX], dir[PATH_MAX];
	struct mfs_curve c;

	snprintf(dir, sizeof(dir), "%s/run", unit_tmpdir());
	snprintf(secret, sizeof(secret), "%s/secret", unit_tmpdir());
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	ck_assert_int_eq(mkdir(secret, 0700), 0);
	unit_write(secret, "loss.csv", "iteration,loss\n1,2\n", 19);
	snprintf(path, sizeof(path), "%s/tensorboard", dir);
	ck_assert_int_eq(symlink(secret, path), 0);
	snprintf(path, sizeof(path), "%s/loss.csv", dir);
	ck_assert_int_eq(symlink("../secret/loss.csv", path), 0);
	snprintf(path, sizeof(path), "%s/events.out.tfevents.1", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_uint_eq(mfs_losses_stamp(dir), 0);
	ck_assert_int_eq(mfs_losses_read(dir, &c, &err), 0);
	ck_assert_uint_eq(c.count, 0);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("run_files");
	TCase *c = unit_case(s, "run_files", a_later_value_of_a_step_replaces_the_earlier);

	tcase_add_test(c, long_curve);
	tcase_add_test(c, records_that_are_passed_over);
	tcase_add_test(c, events_of_ours);
	tcase_add_test(c, half_a_record_waits_for_the_rest);
	tcase_add_test(c, tables_have_losses_by_column);
	tcase_add_test(c, links_are_not_followed);
	return s;
}
