/* Rows as text: formats/dataset/text, and as JSON lines (formats/dataset/files/text_lines.h). */
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

#include "formats/base/buf.h"
#include "formats/dataset/files/arrow_image.h"
#include "formats/dataset/files/parquet_image.h"
#include "formats/dataset/files/text_lines.h"
#include "formats/dataset/text/row_text.h"
#include "formats/tokenizer/read/tokenizer_open.h"
#include "tests/unit/fake_rows.h"

#define ROWS 2600 /* of three blocks */
#define LONG 30000

static struct mfs_error err;

struct fixture {
	struct mfs_tokenizer *tok;
	struct mfs_named_tokens *names;
	struct fake_rows *rows;
	struct mfs_text_lengths *lengths;
	struct mfs_row_text *text;
};

/* Ids of the tokenizer, and two that it has not. */
static struct fake_rows *new_rows(const struct mfs_tokenizer *tok)
{
	uint64_t lengths[ROWS];
	struct fake_rows *f;
	uint16_t *tokens;

	for (unsigned i = 0; i < ROWS; i++)
		lengths[i] = rand() % 5 ? (uint64_t)rand() % 9 : 0;
	lengths[1500] = LONG;
	f = fake_rows_new(MFS_U16, lengths, ROWS);
	tokens = (uint16_t *)f->tokens;
	for (uint64_t i = 0; i < f->rows.tokens; i++)
		tokens[i] = (uint16_t)(tokens[i] % (mfs_tokenizer_size(tok) + 2));
	return f;
}

static void measure(struct fixture *x, const char *dir, uint64_t key)
{
	const struct mfs_text_store store = {.dir = dir, .key = key};

	unit_ok(mfs_text_lengths_open(&x->rows->rows, x->names, &store, 3, &x->lengths, &err),
		&err);
	unit_ok(mfs_row_text_new(&x->rows->rows, x->names, x->lengths, &x->text, &err), &err);
}

static void begin(struct fixture *x, const char *tokenizer)
{
	char path[128];

	snprintf(path, sizeof(path), "tests/fixtures/tokenizers/%s", tokenizer);
	unit_ok(mfs_tokenizer_open(path, &x->tok, &err), &err);
	unit_ok(mfs_named_tokens_new(x->tok, &x->names, &err), &err);
	x->rows = new_rows(x->tok);
}

static void forget_lengths(struct fixture *x)
{
	mfs_row_text_free(x->text);
	mfs_text_lengths_free(x->lengths);
}

static void end(struct fixture *x)
{
	forget_lengths(x);
	mfs_rows_free(&x->rows->rows);
	mfs_named_tokens_free(x->names);
	mfs_tokenizer_free(x->tok);
}

/* The text of a row, decoded token by token. */
static void add_row(const struct fixture *x, uint64_t row, struct mfs_buf *to)
{
	const uint16_t *tokens = (const uint16_t *)x->rows->tokens;
	struct mfs_named_decoder *d;

	unit_ok(mfs_named_decoder_new(x->names, &d, &err), &err);
	for (uint64_t i = x->rows->starts[row]; i < x->rows->starts[row + 1]; i++)
		unit_ok(mfs_named_decode(d, &(int64_t){tokens[i]}, 1, to, &err), &err);
	unit_ok(mfs_named_decode_end(d, to, &err), &err);
	mfs_named_decoder_free(d);
}

static void check_lines(struct fixture *x)
{
	struct mfs_buf want = {0}, row = {0};
	struct mfs_vfile *f;

	for (uint64_t i = 0; i < ROWS; i++) {
		row.len = 0;
		add_row(x, i, &row);
		mfs_buf_adds(&want, "{\"text\": ");
		mfs_buf_add_json_bytes(&want, row.data, row.len);
		mfs_buf_adds(&want, "}\n");
	}
	unit_ok(mfs_text_lines(x->text, ROWS, &f, &err), &err);
	ck_assert_uint_eq(mfs_vfile_size(f), want.len);
	fake_check_preads(f, (const uint8_t *)want.data, 200, &err);
	mfs_vfile_free(f);
	mfs_buf_release(&want);
	mfs_buf_release(&row);
}

START_TEST(lines_of_text)
{
	static const char *const tokenizers[] = {"byte_level.json", "wordpiece.json",
						 "sentencepiece_bpe.json",
						 "models/unigram_bytes.model"};
	struct fixture x;

	begin(&x, tokenizers[_i]);
	measure(&x, NULL, 0);
	check_lines(&x);
	end(&x);
}
END_TEST

/* As a column of Parquet has them. */
START_TEST(lengths_stand_before_texts)
{
	const struct mfs_text_layout l = {.form = MFS_TEXT_PLAIN, .has_length = true};
	struct mfs_buf want = {0}, row = {0};
	struct fixture x;
	uint64_t at;
	char *got;

	begin(&x, "byte_level.json");
	measure(&x, NULL, 0);
	for (uint64_t i = 0; i < ROWS; i++) {
		const uint32_t len = (row.len = 0, add_row(&x, i, &row), (uint32_t)row.len);

		unit_ok(mfs_row_text_at(x.text, &l, i, &at, &err), &err);
		ck_assert_uint_eq(at, want.len);
		mfs_buf_add(&want, &len, sizeof(len));
		mfs_buf_add(&want, row.data, row.len);
	}
	unit_ok(mfs_row_text_at(x.text, &l, ROWS, &at, &err), &err);
	ck_assert_uint_eq(at, want.len);
	got = malloc(at);
	unit_ok(mfs_row_text_read(x.text, &l, 0, got, at, &err), &err);
	ck_assert_mem_eq(got, want.data, at);
	free(got);
	mfs_buf_release(&want);
	mfs_buf_release(&row);
	end(&x);
}
END_TEST

/* ---- columns: what they hold is for pyarrow to say (tests/interop/test_data_columns.py) ---- */

/* Any part of a file is what the whole has there. */
static void check_parts(struct mfs_vfile *f)
{
	uint8_t *whole = fake_slurp(f, &err);

	fake_check_preads(f, whole, 200, &err);
	free(whole);
	mfs_vfile_free(f);
}

START_TEST(columns_of_text)
{
	struct mfs_arrow_config arrow = {.batch = 4096};
	struct mfs_parquet_config parquet = {.group = 4000, .group_rows = 700, .page = 64};
	struct mfs_parquet_image *p;
	struct mfs_arrow_image *a;
	struct mfs_vfile *f;
	struct fixture x;

	begin(&x, "byte_level.json");
	measure(&x, NULL, 0);
	arrow.text = parquet.text = x.text;
	unit_ok(mfs_arrow_image_new(&x.rows->rows, &arrow, &a, &err), &err);
	ck_assert_uint_gt(mfs_arrow_image_batches(a), 3);
	unit_ok(mfs_arrow_image_file(a, 0, &f, &err), &err);
	check_parts(f);
	mfs_arrow_image_free(a);
	unit_ok(mfs_parquet_image_new(&x.rows->rows, &parquet, &p, &err), &err);
	unit_ok(mfs_parquet_image_file(p, 0, &f, &err), &err);
	check_parts(f);
	mfs_parquet_image_free(p);
	end(&x);
}
END_TEST

/* The bytes of a file that cannot be read, page by page. */
static unsigned bad_pages(struct mfs_vfile *f)
{
	uint8_t page[4096];
	unsigned bad = 0;
	size_t len;

	for (uint64_t at = 0; at < mfs_vfile_size(f); at += sizeof(page)) {
		const int rc = mfs_vfile_pread(f, at, page, sizeof(page), &len, &err);

		ck_assert(!rc || rc == -EIO);
		bad += rc != 0;
	}
	mfs_vfile_free(f);
	return bad;
}

/* Rows that cannot be read stand apart: of a batch the tokens and the texts' offsets, of a row
 * group the tokens and the texts. */
START_TEST(columns_of_unreadable_rows)
{
	struct mfs_arrow_config arrow = {0};
	struct mfs_parquet_config parquet = {0};
	struct mfs_parquet_image *p;
	struct mfs_arrow_image *a;
	struct mfs_vfile *f;
	struct fixture x;

	begin(&x, "byte_level.json");
	ck_assert_int_eq(mfs_row_ranges_add(&x.rows->rows.bad, 1, 20), 0);
	measure(&x, NULL, 0);
	arrow.text = parquet.text = x.text;
	unit_ok(mfs_arrow_image_new(&x.rows->rows, &arrow, &a, &err), &err);
	unit_ok(mfs_arrow_image_file(a, 0, &f, &err), &err);
	ck_assert_uint_eq(bad_pages(f), 2);
	mfs_arrow_image_free(a);
	unit_ok(mfs_parquet_image_new(&x.rows->rows, &parquet, &p, &err), &err);
	unit_ok(mfs_parquet_image_file(p, 0, &f, &err), &err);
	ck_assert_uint_eq(bad_pages(f), 2);
	mfs_parquet_image_free(p);
	mfs_row_ranges_release(&x.rows->rows.bad);
	end(&x);
}
END_TEST

/* ---- where lengths are kept ---- */

/* The only file in dir. */
static int open_kept(const char *dir)
{
	char pattern[512];
	glob_t found;
	int fd;

	snprintf(pattern, sizeof(pattern), "%s/text-*.lengths", dir);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	ck_assert_uint_eq(found.gl_pathc, 1);
	fd = open(found.gl_pathv[0], O_RDWR);
	ck_assert_int_ge(fd, 0);
	globfree(&found);
	return fd;
}

/* Flips a byte of it, counted from its beginning, or if negative from its end. */
static void damage(const char *dir, off_t at)
{
	const int fd = open_kept(dir);
	uint8_t byte;

	at = at < 0 ? lseek(fd, at, SEEK_END) : at;
	ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

/* What was measured once is not measured again, unless its file is damaged. */
START_TEST(lengths_are_kept)
{
	const char *dir = unit_tmpdir();
	struct fixture x;
	uint8_t *tokens;

	begin(&x, "byte_level.json");
	measure(&x, dir, 7);
	check_lines(&x);
	forget_lengths(&x);

	tokens = x.rows->tokens;
	x.rows->tokens = NULL;
	measure(&x, dir, 7);
	forget_lengths(&x);
	x.rows->tokens = tokens;

	damage(dir, -1);
	measure(&x, dir, 7);
	check_lines(&x);
	end(&x);
}
END_TEST

/* Sums of blocks are checked when a file is opened, and lengths of rows when they are used. */
START_TEST(lengths_of_others_are_not_believed)
{
	const char *dir = unit_tmpdir();
	struct mfs_vfile *f;
	struct fixture x;
	uint8_t byte;
	size_t len;

	begin(&x, "byte_level.json");
	measure(&x, dir, 7);
	forget_lengths(&x);
	damage(dir, 64 + 8 * 1024 + 4);
	measure(&x, dir, 7);
	unit_ok(mfs_text_lines(x.text, ROWS, &f, &err), &err);
	unit_ok(mfs_vfile_pread(f, 0, &byte, 1, &len, &err), &err);
	unit_fails(mfs_vfile_pread(f, mfs_vfile_size(f) / 2, &byte, 1, &len, &err), &err, -EIO,
		   "not those that were measured");
	mfs_vfile_free(f);
	end(&x);
}
END_TEST

/* A hash is no proof of who has written a file: sums that no rows could have are measured anew. */
START_TEST(sums_that_shrink_are_not_believed)
{
	const char *dir = unit_tmpdir();
	struct fixture x;
	uint64_t sums[8], hash;
	int fd;

	begin(&x, "byte_level.json");
	measure(&x, dir, 7);
	forget_lengths(&x);
	fd = open_kept(dir);
	ck_assert_int_eq(pread(fd, sums, sizeof(sums), 64 + 8 * ROWS), sizeof(sums));
	sums[2] = sums[4] + 1;
	hash = XXH3_64bits(sums, sizeof(sums));
	ck_assert_int_eq(pwrite(fd, sums, sizeof(sums), 64 + 8 * ROWS), sizeof(sums));
	ck_assert_int_eq(pwrite(fd, &hash, sizeof(hash), 56), sizeof(hash));
	close(fd);
	measure(&x, dir, 7);
	check_lines(&x);
	end(&x);
}
END_TEST

START_TEST(rows_that_cannot_be_read)
{
	struct mfs_vfile *f;
	struct fixture x;
	char line[4096];
	size_t len;

	begin(&x, "byte_level.json");
	ck_assert_int_eq(mfs_row_ranges_add(&x.rows->rows.bad, 3, 5), 0);
	measure(&x, NULL, 0);
	unit_ok(mfs_text_lines(x.text, ROWS, &f, &err), &err);
	unit_ok(mfs_vfile_pread(f, mfs_vfile_size(f) - 3, line, 3, &len, &err), &err);
	ck_assert_mem_eq(line, "\"}\n", 3);
	unit_fails(mfs_vfile_pread(f, 0, line, sizeof(line), &len, &err), &err, -EIO,
		   "row 3 cannot be read");
	mfs_vfile_free(f);
	mfs_row_ranges_release(&x.rows->rows.bad);
	end(&x);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("row_text");
	TCase *lines = tcase_create("lines");

	tcase_add_loop_test(lines, lines_of_text, 0, 4);
	suite_add_tcase(s, lines);
	unit_case(s, "with lengths", lengths_stand_before_texts);
	unit_case(s, "columns", columns_of_text);
	unit_case(s, "columns of unreadable rows", columns_of_unreadable_rows);
	unit_case(s, "kept", lengths_are_kept);
	unit_case(s, "hostile", lengths_of_others_are_not_believed);
	unit_case(s, "hostile sums", sums_that_shrink_are_not_believed);
	unit_case(s, "unreadable", rows_that_cannot_be_read);
	return s;
}
