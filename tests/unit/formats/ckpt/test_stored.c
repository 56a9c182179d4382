/* Matrices where a reader found them: formats/ckpt/stored.h. */
#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "formats/ckpt/ckpt_build.h"
#include "formats/ckpt/stored.h"

#define ROWS	300u
#define COLUMNS 7u
#define BYTES	((size_t)ROWS * COLUMNS * 2)

static struct mfs_error err;
static struct mfs_ckpt *ckpt;
static uint8_t bytes[3 * BYTES + 1]; /* row-major, the same, column-major: at an odd offset */

static struct mfs_stored matrix(uint64_t at, uint64_t length)
{
	struct mfs_stored m = {.name = "m",
			       .dtype = MFS_BF16,
			       .ndim = 2,
			       .shape = {ROWS, COLUMNS},
			       .stride = {COLUMNS, 1}};
	struct mfs_storage s = {.dtype = MFS_BF16, .at = at, .length = length};

	unit_ok(mfs_ckpt_add_storage(ckpt, &s, &m.storage, &err), &err);
	return m;
}

static struct mfs_stored transposed(void)
{
	struct mfs_stored m = matrix(1 + 2 * BYTES, BYTES);

	m.stride[0] = 1;
	m.stride[1] = ROWS;
	return m;
}

static void write_file(void)
{
	unit_write(unit_tmpdir(), "file", bytes, sizeof(bytes));
}

static void open_file(void)
{
	uint32_t file;

	unit_ok(mfs_ckpt_new(unit_tmpdir(), 0, NULL, &ckpt, &err), &err);
	unit_ok(mfs_fileset_add(ckpt->files, "file", &file, &err), &err);
}

static void close_file(void)
{
	mfs_ckpt_free(ckpt);
}

static uint16_t element(unsigned row, unsigned column)
{
	return (uint16_t)(row * 31 + column * 7 + 3);
}

static void fill(void)
{
	for (unsigned r = 0; r < ROWS; r++)
		for (unsigned c = 0; c < COLUMNS; c++) {
			const uint16_t v = element(r, c);
			uint8_t *to = bytes + 1 + 2 * ((size_t)r * COLUMNS + c);

			memcpy(to, &v, 2);
			memcpy(to + BYTES, &v, 2);
			memcpy(bytes + 1 + 2 * BYTES + 2 * ((size_t)c * ROWS + r), &v, 2);
		}
	write_file();
	open_file();
}

static uint64_t compare(const struct mfs_stored *a, const struct mfs_stored *b)
{
	uint64_t there = 1, back = 2;

	unit_ok(mfs_stored_compare(ckpt, a, b, &there, &err), &err);
	unit_ok(mfs_stored_compare(ckpt, b, a, &back, &err), &err);
	ck_assert_uint_eq(there, back);
	return there;
}

START_TEST(the_same_in_any_order)
{
	struct mfs_stored a, b, c;

	fill();
	a = matrix(1, BYTES);
	b = matrix(1 + BYTES, BYTES);
	c = transposed();
	ck_assert_uint_eq(compare(&a, &a), MFS_SAME);
	ck_assert_uint_eq(compare(&a, &b), MFS_SAME);
	ck_assert_uint_eq(compare(&a, &c), MFS_SAME);
	ck_assert_uint_eq(compare(&c, &c), MFS_SAME);
	close_file();
}
END_TEST

START_TEST(the_first_row_that_differs)
{
	struct mfs_stored a, b, c;

	fill();
	close_file();
	bytes[1 + BYTES + 2 * (size_t)(ROWS - 1) * COLUMNS + 1] ^=
		0x80;						 /* the last row's first element */
	bytes[1 + 2 * BYTES + 2 * ((size_t)3 * ROWS + 17)] ^= 1; /* row 17, column 3 */
	write_file();
	open_file();
	a = matrix(1, BYTES);
	b = matrix(1 + BYTES, BYTES);
	c = transposed();
	ck_assert_uint_eq(compare(&a, &b), ROWS - 1);
	ck_assert_uint_eq(compare(&a, &c), 17);
	ck_assert_uint_eq(compare(&b, &c), 17);
	close_file();
}
END_TEST

/* A part of a storage, as a row-parallel view would be, and one row's worth of it. */
START_TEST(parts_of_storages_are_compared_by_their_elements)
{
	struct mfs_stored a, b;

	fill();
	a = matrix(1, BYTES);
	b = matrix(1 + BYTES, BYTES);
	a.shape[0] = b.shape[0] = ROWS / 2;
	a.shape[1] = b.shape[1] = 3;
	a.origin = b.origin = (ROWS / 2) * COLUMNS + 2;
	ck_assert_uint_eq(compare(&a, &b), MFS_SAME);
	b.origin++;
	ck_assert_uint_eq(compare(&a, &b), 0);
	a.shape[0] = b.shape[0] = 0;
	ck_assert_uint_eq(compare(&a, &b), MFS_SAME);
	a.shape[0] = b.shape[0] = 1ull << 60;
	a.shape[1] = b.shape[1] = 0;
	ck_assert_uint_eq(compare(&a, &b), MFS_SAME);
	close_file();
}
END_TEST

/* Other types and shapes; a vector; one row that is told to be 2^31: each differs at once. */
START_TEST(what_is_never_the_same)
{
	struct mfs_stored a, b;

	fill();
	a = matrix(1, BYTES);
	b = a;
	b.dtype = MFS_F16;
	ck_assert_uint_eq(compare(&a, &b), 0);
	b = a;
	b.shape[0]--;
	ck_assert_uint_eq(compare(&a, &b), 0);
	a.ndim = 1;
	ck_assert_uint_eq(compare(&a, &a), 0);
	a.ndim = 2;
	a.shape[0] = 1ull << 31;
	a.stride[0] = 0;
	ck_assert_uint_eq(compare(&a, &a), 0);
	close_file();
}
END_TEST

START_TEST(a_file_that_has_changed)
{
	struct mfs_stored a, b;
	uint64_t row;

	fill();
	a = matrix(1, BYTES);
	b = matrix(1 + BYTES, BYTES);
	unit_write(unit_tmpdir(), "file", bytes, sizeof(bytes) - 9);
	unit_fails(mfs_stored_compare(ckpt, &a, &b, &row, &err), &err, -ESTALE, "file");
	close_file();
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("stored");
	TCase *c = unit_case(s, "compare", the_same_in_any_order);

	tcase_add_test(c, the_first_row_that_differs);
	tcase_add_test(c, parts_of_storages_are_compared_by_their_elements);
	tcase_add_test(c, what_is_never_the_same);
	tcase_add_test(c, a_file_that_has_changed);
	return s;
}
