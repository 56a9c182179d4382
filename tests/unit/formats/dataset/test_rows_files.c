/* Rows as plain arrays and as JSON lines: formats/dataset/files/rows_files.h, rows_jsonl.h,
 * elements.h. */
#include <stdio.h>

#include "formats/base/array.h"
#include "formats/base/buf.h"
#include "formats/base/bytes.h"
#include "formats/dataset/files/elements.h"
#include "formats/dataset/files/rows_files.h"
#include "formats/dataset/rows/rows_indexed.h"
#include "formats/dataset/files/jsonl.h"
#include "tests/unit/fake_idx.h"
#include "tests/unit/fake_rows.h"

#define ROWS 2500

static struct mfs_error err;

static struct fake_rows *random_rows(enum mfs_dtype dtype, unsigned longest)
{
	uint64_t lengths[ROWS];

	for (unsigned i = 0; i < ROWS; i++)
		lengths[i] = rand() % 5 ? (uint64_t)rand() % longest : 0;
	return fake_rows_new(dtype, lengths, ROWS);
}

/* ---- .npy ---- */

/* numpy/lib/format.py, version 1.0: the data begin at a multiple of 64, after a dict as text. */
static void check_npy(struct mfs_vfile *f, const char *descr, uint64_t count, const void *data,
		      uint64_t len)
{
	uint8_t *bytes = fake_slurp(f, &err);
	const size_t header = mfs_le16(bytes + 8) + 10u;
	char *text = strndup((char *)bytes + 10, header - 10), want[128];

	ck_assert_mem_eq(bytes, "\x93NUMPY\1\0", 8);
	ck_assert_uint_eq(header % 64, 0);
	snprintf(want, sizeof(want), "{'descr': '%s', 'fortran_order': False, 'shape': (%llu,), }",
		 descr, (unsigned long long)count);
	ck_assert_mem_eq(text, want, strlen(want));
	ck_assert_uint_eq(strspn(text + strlen(want), " "), header - 10 - strlen(want) - 1);
	ck_assert_int_eq(text[header - 11], '\n');
	ck_assert_uint_eq(mfs_vfile_size(f), header + len);
	ck_assert_mem_eq(bytes + header, data, len);
	fake_check_preads(f, bytes, 200, &err);
	free(text);
	free(bytes);
	mfs_vfile_free(f);
}

START_TEST(arrays_have_numpys_headers)
{
	static const struct {
		enum mfs_dtype dtype;
		const char *descr;
	} types[] = {{MFS_U8, "|u1"},  {MFS_I8, "|i1"},	 {MFS_I16, "<i2"}, {MFS_U16, "<u2"},
		     {MFS_I32, "<i4"}, {MFS_I64, "<i8"}, {MFS_F32, "<f4"}, {MFS_F64, "<f8"}};
	struct mfs_vfile *f;

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++) {
		struct fake_rows *r = random_rows(types[i].dtype, 60);

		fake_add_column(r, "mode", MFS_I8);
		fake_add_column(r, "weight", types[i].dtype);
		unit_ok(mfs_npy_tokens(&r->rows, &f, &err), &err);
		check_npy(f, types[i].descr, r->rows.tokens, r->tokens,
			  r->rows.tokens * r->rows.token_size);
		unit_ok(mfs_npy_offsets(&r->rows, &f, &err), &err);
		check_npy(f, "<i8", ROWS + 1, r->starts, 8 * (ROWS + 1));
		unit_ok(mfs_npy_column(&r->rows, 0, &f, &err), &err);
		check_npy(f, "|i1", ROWS, r->values[0], ROWS);
		unit_ok(mfs_npy_column(&r->rows, 1, &f, &err), &err);
		check_npy(f, types[i].descr, ROWS, r->values[1],
			  (uint64_t)ROWS * r->rows.token_size);
		mfs_rows_free(&r->rows);
	}
}
END_TEST

/* The fixture: tokens are runs of its .bin. */
START_TEST(passed_through)
{
	const char *prefix = unit_fixture("data/tales_text_document");
	struct mfs_indexed_dataset *d;
	struct mfs_rows *rows;
	struct mfs_vfile *f;
	struct mfs_gather g;
	size_t bin_len, idx_len;
	uint8_t *bin = unit_slurp(unit_fixture("data/tales_text_document.bin"), &bin_len);
	uint8_t *idx = unit_slurp(unit_fixture("data/tales_text_document.idx"), &idx_len);

	unit_ok(mfs_indexed_dataset_open(&prefix, 1, &d, &err), &err);
	unit_ok(mfs_rows_indexed(d, &rows, &err), &err);
	unit_ok(mfs_npy_tokens(rows, &f, &err), &err);
	check_npy(f, "<u2", bin_len / 2, bin, bin_len);
	unit_ok(mfs_npy_documents(d, &f, &err), &err);
	check_npy(f, "<i8", 241, idx + 34 + 12 * 240, 8 * 241);
	unit_ok(mfs_raw_tokens(rows, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), bin_len);
	/* One piece of a mapping, not a copy. */
	ck_assert_int_eq(mfs_gather_init(&g, bin_len, 4), 0);
	unit_ok(mfs_vfile_gather(f, 0, bin_len, &g, &err), &err);
	ck_assert_uint_eq(g.count, 1);
	ck_assert_uint_eq(g.scratch_used, 0);
	ck_assert_mem_eq(g.iov[0].iov_base, bin, bin_len);
	mfs_gather_release(&g);
	mfs_vfile_free(f);
	mfs_rows_free(rows);
	mfs_indexed_dataset_free(d);
	free(bin);
	free(idx);
}
END_TEST

START_TEST(no_rows_are_empty_files)
{
	struct fake_rows *r = fake_rows_new(MFS_U16, NULL, 0);
	struct mfs_vfile *f;

	unit_ok(mfs_npy_tokens(&r->rows, &f, &err), &err);
	check_npy(f, "<u2", 0, "", 0);
	unit_ok(mfs_npy_offsets(&r->rows, &f, &err), &err);
	check_npy(f, "<i8", 1, r->starts, 8);
	unit_ok(mfs_raw_tokens(&r->rows, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), 0);
	mfs_vfile_free(f);
	unit_ok(mfs_rows_jsonl(&r->rows, 0, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), 0);
	mfs_vfile_free(f);
	mfs_rows_free(&r->rows);
}
END_TEST

/* Bytes of tokens that no file can have, of which 64 bits hold the last ones. */
START_TEST(too_large)
{
	struct fake_rows *r = fake_rows_new(MFS_I64, (const uint64_t[]){(1ull << 61) + 1}, 1);
	struct mfs_vfile *f;

	unit_fails(mfs_npy_tokens(&r->rows, &f, &err), &err, -EINVAL, "too large");
	unit_fails(mfs_raw_tokens(&r->rows, &f, &err), &err, -EINVAL, "too large");
	mfs_rows_free(&r->rows);
}
END_TEST

/* A row that cannot be read costs no other byte. */
START_TEST(bad_rows)
{
	static const uint64_t lengths[] = {5, 3, 0, 4};
	struct fake_rows *r = fake_rows_new(MFS_I32, lengths, 4);
	struct mfs_vfile *f;
	uint8_t got[64];
	size_t len;

	ck_assert(!mfs_row_ranges_add(&r->rows.bad, 1, 2));
	unit_ok(mfs_raw_tokens(&r->rows, &f, &err), &err);
	for (uint64_t off = 0; off < 48; off++) {
		if (off >= 20 && off < 32) {
			unit_fails(mfs_vfile_pread(f, off, got, 1, &len, &err), &err, -EIO, "bad");
			continue;
		}
		unit_ok(mfs_vfile_pread(f, off, got, 1, &len, &err), &err);
		ck_assert_int_eq(got[0], r->tokens[off]);
	}
	unit_fails(mfs_vfile_pread(f, 0, got, 48, &len, &err), &err, -EIO, "bad");
	mfs_vfile_free(f);
	mfs_rows_free(&r->rows);
}
END_TEST

/* ---- JSON lines ---- */

static int64_t value_at(enum mfs_dtype dtype, const uint8_t *p)
{
	switch (dtype) {
	case MFS_U8:
		return *p;
	case MFS_I8:
		return (int8_t)*p;
	case MFS_U16:
		return mfs_le16(p);
	case MFS_I16:
		return (int16_t)mfs_le16(p);
	case MFS_U32:
		return mfs_le32(p);
	case MFS_I32:
		return (int32_t)mfs_le32(p);
	default:
		return (int64_t)mfs_le64(p);
	}
}

static void print_rows(struct mfs_buf *b, const struct fake_rows *r, int width,
		       const int *column_widths)
{
	const struct mfs_rows *rows = &r->rows;

	for (uint64_t i = 0; i < rows->rows; i++) {
		mfs_buf_adds(b, "{\"input_ids\": [");
		for (uint64_t t = r->starts[i]; t < r->starts[i + 1]; t++)
			mfs_buf_printf(
				b, "%c%*lld", t == r->starts[i] ? ' ' : ',', width,
				(long long)value_at(rows->dtype, r->tokens + t * rows->token_size));
		mfs_buf_adds(b, "]");
		for (size_t c = 0; c < rows->column_count; c++) {
			const enum mfs_dtype dtype = rows->columns[c].dtype;

			mfs_buf_printf(b, ", \"%s\": %*lld", rows->columns[c].name,
				       column_widths[c],
				       (long long)value_at(
					       dtype, r->values[c] + i * mfs_dtype_size(dtype)));
		}
		mfs_buf_adds(b, "}\n");
	}
}

static void check_jsonl(const struct fake_rows *r, uint64_t vocab, int width, const int *columns)
{
	struct mfs_buf want = {0};
	struct mfs_vfile *f;
	uint8_t *bytes;

	print_rows(&want, r, width, columns);
	unit_ok(mfs_rows_jsonl(&r->rows, vocab, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), want.len);
	bytes = fake_slurp(f, &err);
	ck_assert_mem_eq(bytes, want.data, want.len);
	fake_check_preads(f, bytes, 400, &err);
	free(bytes);
	mfs_vfile_free(f);
	mfs_buf_release(&want);
}

START_TEST(lines_have_their_width_and_tokens)
{
	static const struct {
		enum mfs_dtype dtype;
		int width;
	} types[] = {{MFS_U8, 3},   {MFS_I8, 4},   {MFS_U16, 5}, {MFS_I16, 6},
		     {MFS_U32, 10}, {MFS_I32, 11}, {MFS_I64, 20}};
	static const int widths[] = {4, 6};

	for (size_t i = 0; i < MFS_ARRAY_SIZE(types); i++) {
		struct fake_rows *r = random_rows(types[i].dtype, i % 2 ? 5 : 300);

		check_jsonl(r, 0, types[i].width, NULL);
		fake_add_column(r, "mode", MFS_I8);
		fake_add_column(r, "dataset_id", MFS_I16);
		check_jsonl(r, 0, types[i].width, widths);
		mfs_rows_free(&r->rows);
	}
}
END_TEST

START_TEST(jsonl_extremes)
{
	static const int64_t ends[] = {INT64_MIN, INT64_MAX, 0, -1};
	static const uint64_t lengths[] = {4, 0, 0};
	struct fake_rows *r = fake_rows_new(MFS_I64, lengths, 3);
	struct mfs_vfile *f;
	uint8_t *bytes;
	size_t len;
	char byte;

	memcpy(r->tokens, ends, sizeof(ends));
	unit_ok(mfs_rows_jsonl(&r->rows, 0, &f, &err), &err);
	bytes = fake_slurp(f, &err);
	ck_assert_uint_eq(mfs_vfile_size(f), 102 + 18 + 18);
	ck_assert_mem_eq(bytes,
			 "{\"input_ids\": [ -9223372036854775808, 9223372036854775807,"
			 "                   0,                  -1]}\n{\"input_ids\": []}\n"
			 "{\"input_ids\": []}\n",
			 102 + 18 + 18);
	free(bytes);
	mfs_vfile_free(f);
	/* Four digits: the vocabulary's, which these do not keep to, at their places alone. */
	unit_ok(mfs_rows_jsonl(&r->rows, 10000, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), 3 * 18 + 4 * 5);
	unit_fails(mfs_vfile_pread(f, 15, &byte, 1, &len, &err), &err, -EIO, "4 digits");
	unit_fails(mfs_vfile_pread(f, 24, &byte, 1, &len, &err), &err, -EIO, "4 digits");
	unit_ok(mfs_vfile_pread(f, 14, &byte, 1, &len, &err), &err);
	unit_ok(mfs_vfile_pread(f, 25, &byte, 1, &len, &err), &err);
	mfs_vfile_free(f);
	mfs_rows_free(&r->rows);
}
END_TEST

START_TEST(jsonl_vocabulary)
{
	uint64_t lengths[ROWS];
	struct fake_rows *r;

	for (unsigned i = 0; i < ROWS; i++)
		lengths[i] = i % 7;
	r = fake_rows_new(MFS_U8, lengths, ROWS);
	check_jsonl(r, 1000, 3, NULL);
	check_jsonl(r, 257, 3, NULL);
	check_jsonl(r, 1u << 30, 3, NULL);
	memset(r->tokens, 9, r->rows.tokens);
	check_jsonl(r, 10, 1, NULL);
	check_jsonl(r, 11, 2, NULL);
	mfs_rows_free(&r->rows);
}
END_TEST

START_TEST(jsonl_bad_row)
{
	static const uint64_t lengths[] = {2, 2, 2};
	struct fake_rows *r = fake_rows_new(MFS_U8, lengths, 3);
	struct mfs_vfile *f;
	const uint64_t line = 17 + 2 * 4 + 1;
	char byte;
	size_t len;

	ck_assert(!mfs_row_ranges_add(&r->rows.bad, 1, 2));
	unit_ok(mfs_rows_jsonl(&r->rows, 0, &f, &err), &err);
	for (uint64_t off = 0; off < 3 * line; off++) {
		if (off >= line + 15 && off < line + 15 + 8)
			unit_fails(mfs_vfile_pread(f, off, &byte, 1, &len, &err), &err, -EIO, NULL);
		else
			unit_ok(mfs_vfile_pread(f, off, &byte, 1, &len, &err), &err);
	}
	mfs_vfile_free(f);
	mfs_rows_free(&r->rows);
}
END_TEST

START_TEST(jsonl_refused)
{
	static const uint64_t lengths[] = {2, 2};
	struct fake_rows *r = fake_rows_new(MFS_F32, lengths, 2);
	struct mfs_vfile *f;

	unit_fails(mfs_rows_jsonl(&r->rows, 0, &f, &err), &err, -ENOTSUP, "float32");
	r->rows.dtype = MFS_I32;
	fake_add_column(r, "loss", MFS_F32);
	unit_fails(mfs_rows_jsonl(&r->rows, 0, &f, &err), &err, -ENOTSUP, "loss");
	r->rows.column_count = 0;
	r->rows.rows = 1ull << 60;
	unit_fails(mfs_rows_jsonl(&r->rows, 0, &f, &err), &err, -EINVAL, "larger");
	r->rows.rows = 2;
	mfs_rows_free(&r->rows);
}
END_TEST

/* Starts that are not what they were when sizes were computed. */
START_TEST(jsonl_moved)
{
	struct fake_rows *r = random_rows(MFS_U16, 30);
	uint64_t *kept = malloc((ROWS + 1) * sizeof(*kept));
	struct mfs_vfile *f;
	uint8_t *got;
	unsigned failed = 0;

	memcpy(kept, r->starts, (ROWS + 1) * sizeof(*kept));
	unit_ok(mfs_rows_jsonl(&r->rows, 0, &f, &err), &err);
	got = malloc(mfs_vfile_size(f));
	for (unsigned i = 0; i < 300; i++) {
		size_t len;
		int rc;

		memcpy(r->starts, kept, (ROWS + 1) * sizeof(*kept));
		for (unsigned k = 0; k < 5; k++)
			r->starts[(unsigned)rand() % (ROWS + 1)] =
				(uint64_t)rand() % (r->rows.tokens + 1);
		rc = mfs_vfile_pread(f, (uint64_t)rand() % mfs_vfile_size(f), got,
				     mfs_vfile_size(f), &len, &err);
		ck_assert(!rc || rc == -EIO || rc == -EINVAL);
		failed += rc != 0;
	}
	ck_assert_uint_gt(failed, 0);
	free(got);
	free(kept);
	mfs_vfile_free(f);
	mfs_rows_free(&r->rows);
}
END_TEST

/* ---- elements ---- */

static int get_squares(const void *object, uint64_t first, uint64_t count, void *ret,
		       struct mfs_error *e)
{
	uint64_t *to = ret;

	(void)e;
	ck_assert_uint_eq((uintptr_t)ret % 8, 0);
	ck_assert_uint_gt(count, 0);
	ck_assert_uint_le(first + count, *(const uint64_t *)object);
	for (uint64_t i = 0; i < count; i++)
		to[i] = (first + i) * (first + i);
	return 0;
}

START_TEST(elements_are_read_at_any_offset)
{
	const uint64_t count = 20000;
	const struct mfs_elements e = {8, get_squares, &count};
	uint64_t *want = malloc(count * 8);
	uint8_t *got = malloc(count * 8 + 8);

	for (uint64_t i = 0; i < count; i++)
		want[i] = i * i;
	for (unsigned i = 0; i < 500; i++) {
		const uint64_t off = (uint64_t)rand() % (count * 8);
		const uint64_t most = i % 2 ? 40 : count * 8;
		const uint64_t len = most < count * 8 - off ? most : count * 8 - off;
		const unsigned shift = (unsigned)rand() % 8;

		unit_ok(mfs_elements_read(&e, off, got + shift, len, &err), &err);
		ck_assert_mem_eq(got + shift, (uint8_t *)want + off, len);
	}
	unit_ok(mfs_elements_read(&e, count * 8, got, 0, &err), &err);
	free(want);
	free(got);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("rows_files");
	TCase *c = unit_case(s, "npy", arrays_have_numpys_headers);

	tcase_add_test(c, passed_through);
	tcase_add_test(c, no_rows_are_empty_files);
	tcase_add_test(c, bad_rows);
	unit_case(s, "too large", too_large);
	c = unit_case(s, "jsonl", lines_have_their_width_and_tokens);
	tcase_add_test(c, jsonl_extremes);
	tcase_add_test(c, jsonl_vocabulary);
	tcase_add_test(c, jsonl_bad_row);
	tcase_add_test(c, jsonl_refused);
	tcase_add_test(c, jsonl_moved);
	unit_case(s, "elements", elements_are_read_at_any_offset);
	return s;
}
