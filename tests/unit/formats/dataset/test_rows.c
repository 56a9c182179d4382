/* Rows of tokens: formats/dataset/rows/rows.h, rows_indexed.h and slices. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/dataset/rows/row_ranges.h"
#include "formats/dataset/rows/rows.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/dataset/files/rows_files.h"
#include "formats/io/fileset.h"
#include "tests/unit/fake_idx.h"

#define ROWS 300

static struct mfs_error err;

/* What a test says of its rows, without any code of ours: lengths, and the tokens of all of
 * them. */
struct truth {
	uint64_t rows;
	int32_t lengths[2 * ROWS + 16];
	uint64_t starts[2 * ROWS + 17];
	uint16_t *tokens; /* of all rows, one after the other */
};

static void add_row(struct truth *t, int32_t length, const uint16_t *tokens)
{
	t->tokens = realloc(t->tokens, (t->starts[t->rows] + (uint64_t)length + 1) * 2);
	if (length)
		memcpy(t->tokens + t->starts[t->rows], tokens, (size_t)length * 2);
	t->lengths[t->rows] = length;
	t->starts[t->rows + 1] = t->starts[t->rows] + (uint64_t)length;
	t->rows++;
}

static const char *write_pair(const char *name, const struct fake_idx *f, const void *bin,
			      size_t bin_size)
{
	static char paths[4][512];
	static unsigned next;
	char *path = paths[next++ % 4], file[64];
	struct mfs_buf idx = {0};

	fake_idx(&idx, f);
	snprintf(file, sizeof(file), "%s.idx", name);
	unit_write(unit_tmpdir(), file, idx.data, idx.len);
	snprintf(file, sizeof(file), "%s.bin", name);
	unit_write(unit_tmpdir(), file, bin_size ? bin : "", bin_size);
	mfs_buf_release(&idx);
	snprintf(path, sizeof(paths[0]), "%s/%s", unit_tmpdir(), name);
	return path;
}

/* Random lengths, some of them 0; the dataset's part of the truth is rows [from, rows). */
static const char *write_random(const char *name, struct truth *t, unsigned rows)
{
	static int32_t lengths[ROWS];
	const uint64_t from = t->starts[t->rows];
	uint16_t row[40];

	for (unsigned i = 0; i < rows; i++) {
		lengths[i] = rand() % 4 ? rand() % 40 : 0;
		for (int k = 0; k < lengths[i]; k++)
			row[k] = (uint16_t)rand();
		add_row(t, lengths[i], row);
	}
	return write_pair(name,
			  &(struct fake_idx){.sequences = rows, .code = 8, .lengths = lengths},
			  t->tokens + from, (t->starts[t->rows] - from) * 2);
}

static struct mfs_indexed_dataset *open_all(const char *const *prefixes, size_t count)
{
	struct mfs_indexed_dataset *d;

	unit_ok(mfs_indexed_dataset_open(prefixes, count, &d, &err), &err);
	return d;
}

static void check_starts(const struct mfs_rows *r, const struct truth *t, uint64_t skip)
{
	uint64_t got[ROWS * 2 + 17];

	for (unsigned k = 0; k < 200; k++) {
		const uint64_t first = (uint64_t)rand() % (r->rows + 1);
		const uint64_t count = (uint64_t)rand() % (r->rows + 2 - first);

		unit_ok(mfs_rows_starts(r, first, count, got, &err), &err);
		for (uint64_t i = 0; i < count; i++)
			ck_assert_uint_eq(got[i], t->starts[skip + first + i] - t->starts[skip]);
	}
}

static void check_find(const struct mfs_rows *r, const struct truth *t, uint64_t skip)
{
	const uint64_t *starts = t->starts + skip;
	uint64_t row = 0, got, from;

	for (uint64_t k = 0; k < r->tokens; k++) {
		while (starts[row + 1] - starts[0] <= k)
			row++;
		unit_ok(mfs_rows_find(r, k, &got, &err), &err);
		ck_assert_uint_eq(got, row);
	}
	for (unsigned k = 0; k < 400; k++) {
		const uint64_t at = (uint64_t)rand() % (r->tokens + 1);

		from = (uint64_t)rand() % (r->rows + 1);
		unit_ok(mfs_rows_lower_bound(r, from, at, &got, &err), &err);
		for (row = from; row < r->rows && starts[row] - starts[0] < at;)
			row++;
		ck_assert_uint_eq(got, row);
	}
}

static void check_tokens(const struct mfs_rows *r, const struct truth *t, uint64_t skip)
{
	const uint16_t *tokens = t->tokens + t->starts[skip];
	uint16_t *got = malloc(r->tokens * 2 + 1);
	int64_t wide[64];

	for (unsigned k = 0; k < 200; k++) {
		const uint64_t first = (uint64_t)rand() % (r->tokens + 1);
		const uint64_t count = (uint64_t)rand() % (r->tokens + 1 - first);

		unit_ok(mfs_rows_read(r, first, count, got, &err), &err);
		ck_assert_mem_eq(got, tokens + first, count * 2);
		unit_ok(mfs_rows_read_int64(r, first, count > 64 ? 64 : count, wide, &err), &err);
		for (uint64_t i = 0; i < count && i < 64; i++)
			ck_assert_int_eq(wide[i], tokens[first + i]);
	}
	free(got);
}

/* Extents in a row cover every token, and their files hold them. */
static void check_extents(const struct mfs_rows *r, const struct truth *t, uint64_t skip)
{
	const uint16_t *tokens = t->tokens + t->starts[skip];
	uint8_t got[4096];

	for (uint64_t k = 0; k < r->tokens;) {
		uint64_t max = 1 + (uint64_t)rand() % (r->tokens - k);
		struct mfs_bin_extent e;

		max = max > 2048 ? 2048 : max;
		unit_ok(mfs_rows_extent(r, k, max, &e, &err), &err);
		ck_assert(e.len && e.len % 2 == 0 && e.len / 2 <= max);
		unit_ok(mfs_fileset_read(e.set, e.file, e.offset, got, e.len, &err), &err);
		ck_assert_mem_eq(got, tokens + k, e.len);
		k += e.len / 2;
	}
}

static void check_lengths(const struct mfs_rows *r, const struct truth *t, uint64_t skip)
{
	int32_t rows[64], got[64];

	if (!r->rows)
		return;
	for (unsigned i = 0; i < 64; i++)
		rows[i] = rand() % (int32_t)r->rows;
	unit_ok(mfs_rows_gather_lengths(r, rows, 64, got, &err), &err);
	for (unsigned i = 0; i < 64; i++)
		ck_assert_int_eq(got[i], t->lengths[skip + (uint64_t)rows[i]]);
	rows[63] = (int32_t)r->rows;
	unit_fails(mfs_rows_gather_lengths(r, rows, 64, got, &err), &err, -EINVAL, NULL);
	for (uint64_t at = 0, n; at < r->rows; at += n) {
		n = 1 + (uint64_t)rand() % 64;
		n = n < r->rows - at ? n : r->rows - at;
		unit_ok(mfs_rows_lengths(r, at, n, got, &err), &err);
		ck_assert_mem_eq(got, t->lengths + skip + at, 4 * n);
	}
	unit_fails(mfs_rows_lengths(r, r->rows, 1, got, &err), &err, -EINVAL, NULL);
}

static void check_all(const struct mfs_rows *r, const struct truth *t, uint64_t skip, uint64_t rows)
{
	ck_assert_uint_eq(r->rows, rows);
	ck_assert_uint_eq(r->tokens, t->starts[skip + rows] - t->starts[skip]);
	ck_assert_int_eq(r->dtype, MFS_U16);
	ck_assert_uint_eq(r->token_size, 2);
	ck_assert_uint_eq(r->bad.count, 0);
	check_starts(r, t, skip);
	check_find(r, t, skip);
	check_tokens(r, t, skip);
	check_extents(r, t, skip);
	check_lengths(r, t, skip);
	unit_ok(mfs_rows_check(r, &err), &err);
	mfs_rows_drop(r);
}

static void check_ranges(const struct mfs_rows *r)
{
	uint64_t start;
	uint8_t token[8];
	struct mfs_bin_extent e;

	unit_fails(mfs_rows_start(r, r->rows + 1, &start, &err), &err, -EINVAL, "rows");
	unit_fails(mfs_rows_starts(r, 1, UINT64_MAX, &start, &err), &err, -EINVAL, r->name);
	unit_fails(mfs_rows_find(r, r->tokens, &start, &err), &err, -EINVAL, "tokens");
	unit_fails(mfs_rows_read(r, r->tokens, 1, token, &err), &err, -EINVAL, "tokens");
	unit_fails(mfs_rows_extent(r, r->tokens, 1, &e, &err), &err, -EINVAL, "tokens");
	unit_fails(mfs_rows_column(r, r->column_count, 0, 1, token, &err), &err, -EINVAL,
		   "columns");
}

START_TEST(one_dataset_is_rows)
{
	struct truth t = {0};
	const char *prefix = write_random("one", &t, ROWS);
	struct mfs_indexed_dataset *d = open_all(&prefix, 1);
	struct mfs_rows *r, *slice;

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	ck_assert_str_eq(r->name, prefix);
	ck_assert_uint_eq(r->column_count, 0);
	check_all(r, &t, 0, ROWS);
	check_ranges(r);
	unit_ok(mfs_rows_slice(r, 17, 200, &slice, &err), &err);
	check_all(slice, &t, 17, 183);
	check_ranges(slice);
	mfs_rows_free(slice);
	unit_ok(mfs_rows_slice(r, 300, 300, &slice, &err), &err);
	ck_assert_uint_eq(slice->rows + slice->tokens, 0);
	mfs_rows_free(slice);
	unit_fails(mfs_rows_slice(r, 3, 2, &slice, &err), &err, -EINVAL, "[3, 2)");
	unit_fails(mfs_rows_slice(r, 3, 301, &slice, &err), &err, -EINVAL, "301");
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	free(t.tokens);
}
END_TEST

/* Prefixes as one dataset, empty ones among them; a slice across their seam. */
START_TEST(several_datasets_are_one_list_of_rows)
{
	static const int32_t zeros[] = {0, 0, 0};
	struct truth t = {0};
	const char *prefixes[5];
	struct mfs_indexed_dataset *d;
	struct mfs_rows *r, *slice;

	prefixes[0] = write_pair("none", &(struct fake_idx){.code = 8}, "", 0);
	prefixes[1] = write_random("first", &t, 130);
	for (unsigned i = 0; i < 3; i++)
		add_row(&t, 0, NULL);
	prefixes[2] = write_pair(
		"zeros", &(struct fake_idx){.sequences = 3, .code = 8, .lengths = zeros}, "", 0);
	prefixes[3] = write_random("second", &t, 170);
	prefixes[4] = prefixes[0];
	d = open_all(prefixes, 5);
	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	check_all(r, &t, 0, 303);
	check_ranges(r);
	unit_ok(mfs_rows_slice(r, 100, 240, &slice, &err), &err);
	check_all(slice, &t, 100, 140);
	mfs_rows_free(slice);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	free(t.tokens);
}
END_TEST

/* Gaps between sequences, in another order than in the .bin; one piece of it is used twice. */
START_TEST(as_written)
{
	static int32_t lengths[ROWS];
	static int64_t pointers[ROWS];
	uint16_t bin[5000];
	struct truth t = {0};
	const char *prefix;
	struct mfs_indexed_dataset *d;
	struct mfs_rows *r, *slice;

	for (unsigned i = 0; i < 5000; i++)
		bin[i] = (uint16_t)rand();
	for (unsigned i = 0; i < ROWS; i++) {
		lengths[i] = rand() % 5 ? rand() % 50 : 0;
		pointers[i] = rand() % 4900 * 2;
		add_row(&t, lengths[i], bin + pointers[i] / 2);
	}
	prefix = write_pair(
		"gaps",
		&(struct fake_idx){
			.sequences = ROWS, .code = 8, .lengths = lengths, .pointers = pointers},
		bin, sizeof(bin));
	d = open_all(&prefix, 1);
	ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers, MFS_POINTERS_AS_WRITTEN);
	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	check_all(r, &t, 0, ROWS);
	check_ranges(r);
	unit_ok(mfs_rows_slice(r, 63, 193, &slice, &err), &err);
	check_all(slice, &t, 63, 130);
	mfs_rows_free(slice);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	free(t.tokens);
}
END_TEST

/* The overflowed pointers of numpy 2: rows are where the lengths put them. */
START_TEST(overflowed_pointers_are_repaired)
{
	static int32_t lengths[ROWS];
	static int64_t pointers[ROWS];
	static uint16_t bin[ROWS * 7];
	struct truth t = {0};
	const char *prefix;
	struct mfs_indexed_dataset *d;
	struct mfs_rows *r;

	for (unsigned i = 0; i < ROWS; i++) {
		lengths[i] = 7;
		for (unsigned k = 0; k < 7; k++)
			bin[i * 7 + k] = (uint16_t)(i * 7 + k);
		add_row(&t, 7, bin + i * 7);
		pointers[i] = (int64_t)i * 14 - (i > 100 ? 1ll << 32 : 0);
	}
	prefix = write_pair(
		"overflowed",
		&(struct fake_idx){
			.sequences = ROWS, .code = 8, .lengths = lengths, .pointers = pointers},
		bin, sizeof(bin));
	d = open_all(&prefix, 1);
	ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers, MFS_POINTERS_REPAIRED);
	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	check_all(r, &t, 0, ROWS);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	free(t.tokens);
}
END_TEST

/* A .bin that ends inside of its third row costs what lies after its end, to the token. */
START_TEST(short_bin)
{
	static const int32_t lengths[] = {3, 0, 5, 0, 2};
	static const uint16_t bin[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
	const struct fake_idx f = {.sequences = 5, .code = 8, .lengths = lengths};
	const char *prefixes[] = {write_pair("short", &f, bin, 2 * 6 + 1),
				  write_pair("whole", &f, bin, sizeof(bin)),
				  write_pair("gone", &f, bin, 0)};
	struct mfs_indexed_dataset *d = open_all(prefixes, 3);
	struct mfs_rows *r, *slice;
	struct mfs_bin_extent e;
	uint16_t got[10];

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	ck_assert_uint_eq(r->tokens, 30);
	ck_assert_uint_eq(r->bad.count, 2);
	ck_assert_uint_eq(r->bad.list[0].first, 2);
	ck_assert_uint_eq(r->bad.list[0].end, 5);
	ck_assert_uint_eq(r->bad.list[1].first, 10);
	ck_assert_uint_eq(r->bad.list[1].end, 15);
	unit_ok(mfs_rows_read(r, 0, 6, got, &err), &err);
	ck_assert_mem_eq(got, bin, 12);
	unit_fails(mfs_rows_read(r, 0, 7, got, &err), &err, -EIO, "short.bin");
	unit_fails(mfs_rows_read(r, 9, 10, got, &err), &err, -EIO, "13 bytes");
	unit_ok(mfs_rows_read(r, 10, 10, got, &err), &err);
	ck_assert_mem_eq(got, bin, 20);
	unit_fails(mfs_rows_read(r, 20, 1, got, &err), &err, -EIO, "gone.bin");
	unit_ok(mfs_rows_extent(r, 1, 20, &e, &err), &err);
	ck_assert_uint_eq(e.len, 10);
	ck_assert_int_eq(mfs_rows_extent(r, 6, 20, &e, NULL), -ENODATA);
	unit_ok(mfs_rows_slice(r, 3, 12, &slice, &err), &err);
	ck_assert_uint_eq(slice->bad.count, 2);
	ck_assert_uint_eq(slice->bad.list[0].end, 2);
	ck_assert_uint_eq(slice->bad.list[1].first, 7);
	ck_assert_uint_eq(slice->bad.list[1].end, 9);
	mfs_rows_free(slice);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
}
END_TEST

/* One that ends between rows costs none of those before, an empty one at its end included. */
START_TEST(short_bin_of_whole_rows)
{
	static const int32_t lengths[] = {3, 0, 5, 0, 2};
	static const uint16_t bin[] = {1, 2, 3};
	const char *prefix = write_pair(
		"three", &(struct fake_idx){.sequences = 5, .code = 8, .lengths = lengths}, bin,
		sizeof(bin));
	struct mfs_indexed_dataset *d = open_all(&prefix, 1);
	struct mfs_rows *r;

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	ck_assert_uint_eq(r->bad.count, 1);
	ck_assert_uint_eq(r->bad.list[0].first, 2);
	ck_assert_uint_eq(r->bad.list[0].end, 5);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
}
END_TEST

/* Rows that lie outside of a .bin, one by one; neighbours are one run, empty rows lie nowhere. */
START_TEST(rows_outside_of_a_bin_are_known_one_by_one)
{
	static const int32_t lengths[] = {2, 2, 0, 2, 2, 2};
	static const int64_t pointers[] = {0, 9, -5, 4, -2, 1ll << 62};
	static const uint16_t bin[] = {1, 2, 3, 4, 5};
	const struct fake_idx f = {
		.sequences = 6, .code = 8, .lengths = lengths, .pointers = pointers};
	const char *prefix = write_pair("outside", &f, bin, sizeof(bin));
	struct mfs_indexed_dataset *d = open_all(&prefix, 1);
	struct mfs_rows *r;
	uint16_t got[8];

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	ck_assert_uint_eq(r->bad.count, 2);
	ck_assert_uint_eq(r->bad.list[0].first, 1);
	ck_assert_uint_eq(r->bad.list[0].end, 2);
	ck_assert_uint_eq(r->bad.list[1].first, 4);
	ck_assert_uint_eq(r->bad.list[1].end, 6);
	unit_ok(mfs_rows_read(r, 4, 2, got, &err), &err);
	ck_assert_uint_eq(got[1], 4);
	unit_fails(mfs_rows_read(r, 2, 1, got, &err), &err, -EIO, "outside.bin");
	unit_fails(mfs_rows_read(r, 5, 2, got, &err), &err, -EIO, "byte -2");
	unit_fails(mfs_rows_read(r, 9, 1, got, &err), &err, -EIO, "outside.bin");
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
}
END_TEST

/* More runs of unreadable rows than views can keep apart. */
START_TEST(outside_everywhere)
{
	static int32_t lengths[10000];
	static int64_t pointers[10000];
	const struct fake_idx f = {
		.sequences = 10000, .code = 8, .lengths = lengths, .pointers = pointers};
	struct mfs_indexed_dataset *d;
	struct mfs_rows *r;
	const char *prefix;

	for (unsigned i = 0; i < 10000; i++) {
		lengths[i] = 1;
		pointers[i] = i % 2 ? 100 : 0;
	}
	prefix = write_pair("everywhere", &f, "abcd", 4);
	d = open_all(&prefix, 1);
	unit_fails(mfs_rows_indexed(d, &r, &err), &err, -ENOTSUP, "everywhere");
	mfs_indexed_dataset_free(d);
}
END_TEST

static struct mfs_indexed_dataset *in_memory(struct mfs_buf *b, const struct fake_idx *f,
					     uint64_t bin)
{
	struct mfs_indexed_dataset *d;

	fake_idx(b, f);
	unit_ok(mfs_indexed_dataset_memory(b->data, b->len, bin, "memory", &d, &err), &err);
	return d;
}

/* What opening the dataset did not look at: one pointer among many, a length of its own mind. */
START_TEST(lengths_and_pointers_that_contradict_are_found)
{
	static int32_t lengths[ROWS];
	static int64_t pointers[ROWS];
	struct fake_idx f = {
		.sequences = ROWS, .code = 8, .lengths = lengths, .pointers = pointers};
	struct mfs_indexed_dataset *d;
	struct mfs_buf b = {0};
	struct mfs_rows *r;

	for (unsigned i = 0; i < ROWS; i++) {
		lengths[i] = 5;
		pointers[i] = i * 10;
	}
	pointers[31] += 2;
	d = in_memory(&b, &f, ROWS * 10);
	ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers, MFS_POINTERS_CONTIGUOUS);
	unit_fails(mfs_rows_indexed(d, &r, &err), &err, -EINVAL, "sequence 31 ");
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
	pointers[31] -= 2;
	lengths[77] = -1;
	d = in_memory(&b, &f, ROWS * 10);
	unit_fails(mfs_rows_indexed(d, &r, &err), &err, -EINVAL, "sequence 77 ");
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

/* A large dataset is believed, until somebody asks for the part that contradicts itself. */
START_TEST(a_large_dataset_is_looked_at_where_it_is_read)
{
	const unsigned n = (1u << 20) + 1;
	int32_t *lengths = malloc(n * sizeof(*lengths));
	int64_t *pointers = malloc(n * sizeof(*pointers));
	struct fake_idx f = {.sequences = n, .code = 4, .lengths = lengths, .pointers = pointers};
	struct mfs_indexed_dataset *d;
	struct mfs_buf b = {0};
	struct mfs_rows *r;
	uint64_t starts[3], at;
	int32_t token;

	for (unsigned i = 0; i < n; i++) {
		lengths[i] = 1000000;
		pointers[i] = (int64_t)i * 4000000;
	}
	pointers[31] -= 8000000;
	pointers[61] += 2;
	pointers[41] = -4;
	pointers[51] = INT64_MAX - 3;
	d = in_memory(&b, &f, (uint64_t)n * 4000000 - 12);
	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	ck_assert_uint_eq(r->tokens, (uint64_t)n * 1000000);
	ck_assert_uint_eq(r->bad.count, 1);
	ck_assert_uint_eq(r->bad.list[0].first, n - 1);
	ck_assert_uint_eq(r->bad.list[0].end, n);
	unit_ok(mfs_rows_starts(r, 28, 3, starts, &err), &err);
	ck_assert_uint_eq(starts[2], 30000000);
	unit_fails(mfs_rows_starts(r, 29, 3, starts, &err), &err, -EIO, "sequence 31 ");
	unit_fails(mfs_rows_start(r, 41, starts, &err), &err, -EIO, "memory.idx: sequence 41 ");
	unit_fails(mfs_rows_start(r, 51, starts, &err), &err, -EIO, "sequence 51 ");
	unit_fails(mfs_rows_start(r, 61, starts, &err), &err, -EIO, "sequence 61 ");
	unit_ok(mfs_rows_find(r, r->tokens - 1, &at, &err), &err);
	ck_assert_uint_eq(at, n - 1);
	unit_fails(mfs_rows_read(r, 0, 1, &token, &err), &err, -ENODATA, "was not opened");
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
	free(lengths);
	free(pointers);
}
END_TEST

START_TEST(modes_are_a_column)
{
	static const int32_t lengths[] = {3, 0, 5, 1, 2};
	static const int8_t modes[] = {0, 1, 0, -1, 1};
	struct fake_idx f = {.sequences = 5, .code = 8, .lengths = lengths, .modes = modes};
	struct mfs_buf b = {0};
	struct mfs_indexed_dataset *d = in_memory(&b, &f, 22);
	struct mfs_rows *r, *slice;
	int8_t got[5];

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	ck_assert_uint_eq(r->column_count, 1);
	ck_assert_str_eq(r->columns[0].name, "mode");
	ck_assert_int_eq(r->columns[0].dtype, MFS_I8);
	unit_ok(mfs_rows_column(r, 0, 0, 5, got, &err), &err);
	ck_assert_mem_eq(got, modes, 5);
	unit_fails(mfs_rows_column(r, 0, 3, 3, got, &err), &err, -EINVAL, "rows");
	unit_ok(mfs_rows_slice(r, 2, 4, &slice, &err), &err);
	unit_ok(mfs_rows_column(slice, 0, 0, 2, got, &err), &err);
	ck_assert_mem_eq(got, modes + 2, 2);
	mfs_rows_free(slice);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	mfs_buf_release(&b);
}
END_TEST

START_TEST(a_file_that_was_replaced_is_stale)
{
	static const int32_t lengths[] = {3, 4};
	static const uint16_t bin[] = {1, 2, 3, 4, 5, 6, 7};
	const struct fake_idx f = {.sequences = 2, .code = 8, .lengths = lengths};
	const char *prefix = write_pair("live", &f, bin, sizeof(bin));
	struct mfs_indexed_dataset *d = open_all(&prefix, 1);
	char path[600];
	struct mfs_rows *r;
	uint16_t got[7];
	uint64_t start;

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	unit_ok(mfs_rows_read(r, 0, 7, got, &err), &err);
	snprintf(path, sizeof(path), "%s.bin", prefix);
	ck_assert_int_eq(truncate(path, 6), 0);
	unit_fails(mfs_rows_read(r, 0, 1, got, &err), &err, -ESTALE, "live.bin");
	unit_fails(mfs_rows_check(r, &err), &err, -ESTALE, "live.bin");
	unit_ok(mfs_rows_start(r, 1, &start, &err), &err);
	snprintf(path, sizeof(path), "%s.idx", prefix);
	ck_assert_int_eq(truncate(path, 60), 0);
	unit_fails(mfs_rows_start(r, 1, &start, &err), &err, -ESTALE, "live.idx");
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
}
END_TEST

/* A dataset of one dtype, its rows of 700 tokens each: 5 times token, then special, then token
 * again. */
static struct mfs_rows *rows_with(uint8_t code, int64_t token, int64_t special,
				  struct mfs_indexed_dataset **ret_d)
{
	static const int32_t lengths[] = {700, 700, 0, 700};
	const unsigned size = mfs_dtype_size(mfs_idx_dtype(code));
	const struct fake_idx f = {.sequences = 4, .code = code, .lengths = lengths};
	uint8_t bin[2100 * 8];
	const char *prefix;
	struct mfs_rows *r;

	for (unsigned i = 0; i < 2100; i++)
		memcpy(bin + i * size, i == 1405 ? &special : &token, size);
	prefix = write_pair("tokens", &f, bin, 2100ul * size);
	*ret_d = open_all(&prefix, 1);
	unit_ok(mfs_rows_indexed(*ret_d, &r, &err), &err);
	return r;
}

/* Of every integer type: the largest token of a vocabulary, the first after it, a negative one. */
START_TEST(a_token_beyond_the_vocabulary_is_found)
{
	static const struct {
		uint8_t code;
		int64_t token;
		uint64_t size;
		bool outside;
	} cases[] = {
		{1, 99, 100, false},
		{1, 100, 100, true},
		{1, 255, 100, true},
		{1, 255, 256, false},
		{1, 255, 1000, false},
		{2, 99, 100, false},
		{2, 100, 100, true},
		{2, -1, 100, true},
		{2, -1, 1000, true},
		{2, 127, 1000, false},
		{3, 30000, 30001, false},
		{3, 30000, 30000, true},
		{3, -2, 70000, true},
		{8, 65535, 65535, true},
		{8, 65535, 65536, false},
		{8, 40000, 1ull << 40, false},
		{4, 131071, 131072, false},
		{4, 131072, 131072, true},
		{4, -1, 131072, true},
		{4, -1, 1ull << 40, true},
		{4, INT32_MAX, 1ull << 31, false},
		{5, 1ll << 33, (1ull << 33) + 1, false},
		{5, 1ll << 33, 1ull << 33, true},
		{5, -1, UINT64_MAX, true},
		{5, INT64_MAX, UINT64_MAX, false},
	};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(cases); i++) {
		struct mfs_indexed_dataset *d;
		struct mfs_rows *r = rows_with(cases[i].code, 7, cases[i].token, &d);
		char sentence[64];
		int64_t tokens[2100];

		unit_ok(mfs_rows_set_vocab(r, cases[i].size, &err), &err);
		unit_ok(mfs_rows_read(r, 0, 1405, tokens, &err), &err);
		unit_ok(mfs_rows_read(r, 1406, 694, tokens, &err), &err);
		snprintf(sentence, sizeof(sentence), "row 3 holds token %lld,",
			 (long long)cases[i].token);
		if (cases[i].outside) {
			unit_fails(mfs_rows_read(r, 0, 2100, tokens, &err), &err, -EIO, sentence);
			unit_fails(mfs_rows_read(r, 1405, 1, tokens, &err), &err, -EIO, sentence);
		} else {
			unit_ok(mfs_rows_read_int64(r, 0, 2100, tokens, &err), &err);
			ck_assert_int_eq(tokens[1405], cases[i].token);
		}
		mfs_rows_free(r);
		mfs_indexed_dataset_free(d);
	}
}
END_TEST

/* Everything else is as in rows that nobody compares, but that no file holds what was looked at. */
START_TEST(vocab_is_transparent)
{
	struct truth t = {0};
	const char *prefix = write_random("seen", &t, ROWS);
	struct mfs_indexed_dataset *d = open_all(&prefix, 1);
	struct mfs_rows *r;
	struct mfs_bin_extent e;

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	unit_fails(mfs_rows_set_vocab(r, 0, &err), &err, -EINVAL, "seen");
	unit_ok(mfs_rows_set_vocab(r, 65536, &err), &err);
	check_starts(r, &t, 0);
	check_find(r, &t, 0);
	check_tokens(r, &t, 0);
	check_lengths(r, &t, 0);
	check_ranges(r);
	ck_assert_int_eq(mfs_rows_extent(r, 0, 1, &e, NULL), -ENODATA);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	r = rows_with(7, 0, 0, &d);
	unit_fails(mfs_rows_set_vocab(r, 100, &err), &err, -ENOTSUP, "float32");
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
	free(t.tokens);
}
END_TEST

/* A pass over all tokens finds the rows that hold one outside, and leaves those alone that cannot
 * be read. */
/* rows of up to 2000 tokens: several pieces of a pass, and rows across their borders */
#define SCANNED 2500

static void check_scan(const struct mfs_indexed_dataset *d, const uint8_t *bad, unsigned threads)
{
	struct mfs_rows *r, *slice;
	uint8_t found[SCANNED] = {0};

	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	ck_assert_uint_eq(r->bad.count, 1);
	unit_ok(mfs_rows_set_vocab(r, 60000, &err), &err);
	unit_ok(mfs_rows_find_bad(r, threads, &err), &err);
	for (size_t i = 0; i < r->bad.count; i++) {
		ck_assert_uint_lt(r->bad.list[i].first, r->bad.list[i].end);
		ck_assert_uint_le(r->bad.list[i].end, SCANNED);
		if (i)
			ck_assert_uint_gt(r->bad.list[i].first, r->bad.list[i - 1].end);
		memset(found + r->bad.list[i].first, 1, r->bad.list[i].end - r->bad.list[i].first);
	}
	ck_assert_mem_eq(found, bad, SCANNED);
	unit_ok(mfs_rows_slice(r, 1, SCANNED, &slice, &err), &err);
	ck_assert_uint_eq(slice->bad.count, r->bad.count);
	mfs_rows_free(slice);
	mfs_rows_free(r);
}

START_TEST(vocab_scan)
{
	static int32_t lengths[SCANNED];
	static uint8_t bad[SCANNED];
	static uint16_t bin[SCANNED * 2000];
	struct mfs_indexed_dataset *d;
	const char *prefix;
	size_t tokens = 0, cut = 0;

	for (unsigned i = 0; i < SCANNED; i++) {
		lengths[i] = rand() % 5 ? rand() % 2000 : 0;
		/* The last rows lie past the end of the .bin, from the middle of one. */
		if (i == SCANNED - 40) {
			lengths[i] = 1500;
			cut = tokens + 700;
		}
		bad[i] = i >= SCANNED - 40;
		for (int k = 0; k < lengths[i]; k++)
			bin[tokens + (size_t)k] = (uint16_t)(rand() % 60000);
		if (lengths[i] && !bad[i] && (i == 1 || rand() % 6 == 0)) {
			bad[i] = 1;
			bin[tokens + (size_t)(rand() % lengths[i])] = 60000;
			bin[tokens + (size_t)(rand() % lengths[i])] = 65535;
		}
		tokens += (size_t)lengths[i];
	}
	prefix = write_pair("scanned",
			    &(struct fake_idx){.sequences = SCANNED, .code = 8, .lengths = lengths},
			    bin, cut * 2);
	d = open_all(&prefix, 1);
	for (unsigned threads = 0; threads < 6; threads++)
		check_scan(d, bad, threads);
	mfs_indexed_dataset_free(d);
}
END_TEST

/* Bad rows that stand together, between rows that can be read and rows without tokens. */
START_TEST(vocab_scan_of_runs)
{
	enum { RUNS_ROWS = 40000 };
	static int32_t lengths[RUNS_ROWS];
	static uint8_t bad[RUNS_ROWS], found[RUNS_ROWS];
	static uint16_t bin[RUNS_ROWS * 10];
	const struct fake_idx f = {.sequences = RUNS_ROWS, .code = 8, .lengths = lengths};
	struct mfs_indexed_dataset *d;
	struct mfs_rows *r;
	const char *prefix;
	size_t tokens = 0;

	for (unsigned i = 0, left = 0, in_bad = 1; i < RUNS_ROWS; i++, left--) {
		if (!left) {
			in_bad = !in_bad;
			left = 1 + (unsigned)rand() % 300;
		}
		lengths[i] = in_bad && rand() % 20 ? 1 + rand() % 9 : rand() % 10;
		bad[i] = in_bad && lengths[i];
		if (bad[i])
			bin[tokens + (size_t)(rand() % lengths[i])] = 100;
		tokens += (size_t)lengths[i];
	}
	prefix = write_pair("runs", &f, bin, 2 * tokens);
	d = open_all(&prefix, 1);
	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	unit_ok(mfs_rows_set_vocab(r, 100, &err), &err);
	unit_ok(mfs_rows_find_bad(r, 3, &err), &err);
	for (size_t i = 0; i < r->bad.count; i++)
		memset(found + r->bad.list[i].first, 1, r->bad.list[i].end - r->bad.list[i].first);
	ck_assert_mem_eq(found, bad, sizeof(bad));
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
}
END_TEST

/* Starts of a damaged file may be in any order. */
static int wild_starts(const struct mfs_rows *r, uint64_t first, uint64_t count, uint64_t *ret,
		       struct mfs_error *e)
{
	(void)e;
	for (uint64_t i = first; i < first + count; i++, ret++)
		*ret = i == r->rows ? r->tokens : i * 7919 * 7919 % r->tokens;
	return 0;
}

static int wild_read(const struct mfs_rows *r, uint64_t first, uint64_t count, void *ret,
		     struct mfs_error *e)
{
	ck_assert_uint_le(first + count, r->tokens);
	if (first % 3 == 0)
		return mfs_fail(e, -EIO, "a token that cannot be read");
	memset(ret, 0x7f, count);
	return 0;
}

START_TEST(scan_of_wild_starts)
{
	static const struct mfs_rows_ops ops = {.starts = wild_starts, .read = wild_read};
	struct mfs_rows r = {.ops = &ops,
			     .name = "wild",
			     .dtype = MFS_I8,
			     .token_size = 1,
			     .rows = 5000,
			     .tokens = 300000};
	int rc;

	unit_ok(mfs_rows_set_vocab(&r, 100, &err), &err);
	rc = mfs_rows_find_bad(&r, 2, &err);
	ck_assert(rc == 0 || rc == -ENOTSUP);
	mfs_row_ranges_release(&r.bad);
}
END_TEST

/* Hardly a token is inside: that is not a list of rows any more. */
START_TEST(vocab_scan_of_another)
{
	static int32_t lengths[20000];
	static uint16_t bin[20000];
	const struct fake_idx f = {.sequences = 20000, .code = 8, .lengths = lengths};
	struct mfs_indexed_dataset *d;
	struct mfs_rows *r;
	const char *prefix;

	for (unsigned i = 0; i < 20000; i++) {
		lengths[i] = 1;
		bin[i] = i % 2 ? 100 : 5;
	}
	prefix = write_pair("another", &f, bin, sizeof(bin));
	d = open_all(&prefix, 1);
	unit_ok(mfs_rows_indexed(d, &r, &err), &err);
	unit_ok(mfs_rows_set_vocab(r, 100, &err), &err);
	unit_fails(mfs_rows_find_bad(r, 3, &err), &err, -ENOTSUP, "vocabulary of 100");
	ck_assert_uint_eq(r->bad.count, 0);
	unit_ok(mfs_rows_set_vocab(r, 3, &err), &err);
	unit_ok(mfs_rows_find_bad(r, 3, &err), &err);
	ck_assert_uint_eq(r->bad.count, 1);
	ck_assert_uint_eq(r->bad.list[0].end, 20000);
	mfs_rows_free(r);
	mfs_indexed_dataset_free(d);
}
END_TEST

/* Ranges that are added anywhere, against a flag for each row. */
START_TEST(ranges_of_rows_are_united)
{
	struct mfs_row_ranges r = {0};
	uint8_t want[500] = {0};

	for (unsigned k = 0; k < 400; k++) {
		const uint64_t first = (uint64_t)rand() % 499;
		const uint64_t end = first + 1 + (uint64_t)rand() % (k % 50 == 0 ? 499 - first : 2);
		uint8_t found[500] = {0};

		ck_assert_int_eq(mfs_row_ranges_add(&r, first, end), 0);
		memset(want + first, 1, end - first);
		for (size_t i = 0; i < r.count; i++) {
			if (i)
				ck_assert_uint_gt(r.list[i].first, r.list[i - 1].end);
			memset(found + r.list[i].first, 1, r.list[i].end - r.list[i].first);
		}
		ck_assert_mem_eq(found, want, sizeof(want));
		for (uint64_t row = 0; row < 500; row++) {
			const uint64_t to = row + 1 + (uint64_t)rand() % 3;
			bool all = to <= 500;

			for (uint64_t i = row; all && i < to; i++)
				all = want[i];
			ck_assert_int_eq(mfs_row_ranges_have(&r, row, to), all);
		}
		if (k % 100 == 99) {
			mfs_row_ranges_release(&r);
			memset(want, 0, sizeof(want));
		}
	}
	for (uint64_t i = 0; i < MFS_ROW_RANGES_MAX; i++)
		ck_assert_int_eq(mfs_row_ranges_add(&r, 2 * i, 2 * i + 1), 0);
	ck_assert_int_eq(mfs_row_ranges_add(&r, 1 << 20, (1 << 20) + 1), -ENOSPC);
	ck_assert_int_eq(mfs_row_ranges_add(&r, 0, 10), 0);
	ck_assert_uint_eq(r.count, MFS_ROW_RANGES_MAX - 5);
	mfs_row_ranges_release(&r);
}
END_TEST

/* A file of tokens is the .bin itself where they lie in runs, and computed where there are too
 * many. */
START_TEST(tokens_of_a_file)
{
	struct truth t = {0};
	const char *prefix = write_random("whole", &t, ROWS), *gaps;
	static int64_t pointers[200];

	for (unsigned i = 0; i < 200; i++)
		pointers[i] = (int64_t)t.starts[199 - i] * 2;
	gaps = write_pair(
		"gaps",
		&(struct fake_idx){
			.sequences = 200, .code = 8, .lengths = t.lengths, .pointers = pointers},
		t.tokens, t.starts[ROWS] * 2);
	for (unsigned k = 0; k < 2; k++) {
		struct mfs_indexed_dataset *d = open_all(k ? &gaps : &prefix, 1);
		struct mfs_vfile *f;
		struct mfs_rows *r;
		uint16_t *want, *got;
		size_t n;

		ck_assert_int_eq(mfs_indexed_dataset_info(d)->pointers,
				 k ? MFS_POINTERS_AS_WRITTEN : MFS_POINTERS_CONTIGUOUS);
		unit_ok(mfs_rows_indexed(d, &r, &err), &err);
		unit_ok(mfs_vfile_new(&f, &err), &err);
		unit_ok(mfs_rows_add_tokens(r, 10, r->tokens - 20, f, &err), &err);
		want = malloc(r->tokens * 2);
		got = malloc(r->tokens * 2);
		unit_ok(mfs_rows_read(r, 10, r->tokens - 20, want, &err), &err);
		unit_ok(mfs_vfile_pread(f, 0, got, r->tokens * 2, &n, &err), &err);
		ck_assert_uint_eq(n, (r->tokens - 20) * 2);
		ck_assert_mem_eq(got, want, n);
		free(want);
		free(got);
		mfs_vfile_free(f);
		mfs_rows_free(r);
		mfs_indexed_dataset_free(d);
	}
	free(t.tokens);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("rows");

	unit_case(s, "one prefix", one_dataset_is_rows);
	unit_case(s, "several prefixes", several_datasets_are_one_list_of_rows);
	unit_case(s, "as written", as_written);
	unit_case(s, "repaired", overflowed_pointers_are_repaired);
	unit_case(s, "short bin", short_bin);
	unit_case(s, "short bin of whole rows", short_bin_of_whole_rows);
	unit_case(s, "outside", rows_outside_of_a_bin_are_known_one_by_one);
	unit_case(s, "outside everywhere", outside_everywhere);
	unit_case(s, "contradictions", lengths_and_pointers_that_contradict_are_found);
	unit_case(s, "large", a_large_dataset_is_looked_at_where_it_is_read);
	unit_case(s, "modes", modes_are_a_column);
	unit_case(s, "replaced", a_file_that_was_replaced_is_stale);
	unit_case(s, "vocabulary", a_token_beyond_the_vocabulary_is_found);
	unit_case(s, "vocabulary transparent", vocab_is_transparent);
	unit_case(s, "vocabulary scan", vocab_scan);
	unit_case(s, "vocabulary scan of runs", vocab_scan_of_runs);
	unit_case(s, "scan of wild starts", scan_of_wild_starts);
	unit_case(s, "scan of another vocabulary", vocab_scan_of_another);
	unit_case(s, "ranges", ranges_of_rows_are_united);
	unit_case(s, "tokens of a file", tokens_of_a_file);
	return s;
}
