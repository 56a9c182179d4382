/*
 * HF datasets as rows: formats/dataset/rows/hf_dataset.h, arrow_rows.h, rows_eod.h,
 * rows_permuted.h. Fixtures were written by `datasets` (tests/fixtures/data/hf_dataset/README.md,
 * which says what each row is), single files by pyarrow for the fuzz target
 * (tests/fuzz/make_arrow_seeds.py).
 */
#define _GNU_SOURCE
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/base/array.h"
#include "formats/base/bytes.h"
#include "formats/dataset/rows/arrow_rows.h"
#include "formats/dataset/rows/hf_dataset.h"
#include "formats/io/fileset.h"
#include "formats/io/guard.h"

static struct mfs_error err;

static const char *fixture(const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "data/hf_dataset/%s", name);
	return unit_fixture(path);
}

static struct mfs_rows *open_with(const char *path, const char *split,
				  const struct mfs_hf_dataset_options *opt)
{
	struct mfs_rows *r;

	unit_ok(mfs_guard_install(), &err);
	unit_ok(mfs_hf_dataset_open(path, split, opt, &r, &err), &err);
	return r;
}

static struct mfs_rows *open_rows(const char *path, const char *split)
{
	return open_with(path, split, NULL);
}

/* ---- what rows are ---- */

static uint64_t length_of(uint64_t number)
{
	return number * 7 % 11;
}

static int64_t token_of(uint64_t number, uint64_t k)
{
	return (int64_t)((number * 131 + k * 17) % 1000);
}

/* Checks that row i is row numbers[i] of the fixtures' rule, -1: empty; with eod after it if that
 * is not negative. Reads whole rows, and tokens at odd places. */
static void check_rows(const struct mfs_rows *r, const int64_t *numbers, uint64_t count,
		       int64_t eod)
{
	int64_t want[1000], got[1000];
	uint64_t starts[100], n = 0;

	ck_assert_uint_eq(r->rows, count);
	unit_ok(mfs_rows_starts(r, 0, count + 1, starts, &err), &err);
	for (uint64_t i = 0; i < count; i++) {
		const uint64_t number = (uint64_t)numbers[i];

		ck_assert_uint_eq(starts[i], n);
		for (uint64_t k = 0; numbers[i] >= 0 && k < length_of(number); k++)
			want[n++] = token_of(number, k);
		if (eod >= 0)
			want[n++] = eod;
	}
	ck_assert_uint_eq(starts[count], n);
	ck_assert_uint_eq(r->tokens, n);
	for (uint64_t step = 1; step <= n; step = step * 3 + 1)
		for (uint64_t t = 0; t < n; t += step) {
			unit_ok(mfs_rows_read_int64(r, t, mfs_min_u64(step, n - t), got + t, &err),
				&err);
			for (uint64_t k = t; k < t + step && k < n; k++)
				ck_assert_int_eq(got[k], want[k]);
		}
}

/* What the other functions say of rows is what starts say. */
static void check_lookups(const struct mfs_rows *r)
{
	for (uint64_t i = 0; i < r->rows; i++) {
		const int32_t number = (int32_t)i;
		uint64_t ends[2], start, row;
		int32_t length;

		unit_ok(mfs_rows_starts(r, i, 2, ends, &err), &err);
		unit_ok(mfs_rows_gather_starts(r, &number, 1, &start, &err), &err);
		unit_ok(mfs_rows_gather_lengths(r, &number, 1, &length, &err), &err);
		ck_assert_uint_eq(start, ends[0]);
		ck_assert_uint_eq((uint64_t)length, ends[1] - ends[0]);
		for (uint64_t t = ends[0]; t < ends[1]; t++) {
			unit_ok(mfs_rows_find(r, t, &row, &err), &err);
			ck_assert_uint_eq(row, i);
		}
	}
}

/* Checks that bytes of extents are the tokens that are read. */
static void check_extents(const struct mfs_rows *r)
{
	uint8_t want[8000], got[8000];
	struct mfs_bin_extent e;

	unit_ok(mfs_rows_read(r, 0, r->tokens, want, &err), &err);
	for (uint64_t t = 0; t < r->tokens; t += e.len / r->token_size) {
		unit_ok(mfs_rows_extent(r, t, r->tokens - t, &e, &err), &err);
		ck_assert_uint_gt(e.len, 0);
		ck_assert_uint_eq(e.len % r->token_size, 0);
		ck_assert_uint_le(t + e.len / r->token_size, r->tokens);
		unit_ok(mfs_fileset_read(e.set, e.file, e.offset, got, e.len, &err), &err);
		ck_assert_mem_eq(got, want + t * r->token_size, e.len);
		/* One token of it, and no more than is asked for. */
		unit_ok(mfs_rows_extent(r, t, 1, &e, &err), &err);
		ck_assert_uint_eq(e.len, r->token_size);
		unit_ok(mfs_rows_extent(r, t, r->tokens - t, &e, &err), &err);
	}
}

/* first, first+1, ...; every 13th from 5 on is null if nulls. */
static void count_up(int64_t *numbers, uint64_t count, int64_t first, bool nulls)
{
	for (uint64_t i = 0; i < count; i++)
		numbers[i] = nulls && i % 13 == 5 ? -1 : first + (int64_t)i;
}

START_TEST(a_saved_dataset_has_its_rows)
{
	struct mfs_rows *r = open_rows(fixture("saved"), NULL);
	int64_t numbers[40];

	count_up(numbers, 40, 0, true);
	ck_assert_int_eq(r->dtype, MFS_I32);
	ck_assert_uint_eq(r->token_size, 4);
	ck_assert_uint_eq(r->row_length, 0);
	ck_assert_str_eq(r->name, fixture("saved"));
	ck_assert_uint_eq(r->set_count, 1);
	ck_assert_uint_eq(mfs_fileset_count(r->sets[0]), 3);
	check_rows(r, numbers, 40, -1);
	check_lookups(r);
	check_extents(r);
	unit_ok(mfs_rows_check(r, &err), &err);
	mfs_rows_drop(r);
	check_rows(r, numbers, 40, -1);
	mfs_rows_free(r);
}
END_TEST

START_TEST(other_column)
{
	struct mfs_rows *r =
		open_with(fixture("saved"), NULL,
			  &(struct mfs_hf_dataset_options){.column = "attention_mask"});
	int64_t one;

	ck_assert_int_eq(r->dtype, MFS_I8);
	unit_ok(mfs_rows_read_int64(r, r->tokens - 1, 1, &one, &err), &err);
	ck_assert_int_eq(one, 1);
	mfs_rows_free(r);
}
END_TEST

START_TEST(each_split_has_its_own_rows)
{
	struct mfs_arena arena = {0};
	const char *const *splits;
	int64_t numbers[30];
	struct mfs_rows *r;
	uint32_t count;

	unit_ok(mfs_hf_dataset_splits(fixture("dict"), &arena, &splits, &count, &err), &err);
	ck_assert_uint_eq(count, 2);
	ck_assert_str_eq(splits[0], "train");
	ck_assert_str_eq(splits[1], "validation");
	r = open_rows(fixture("dict"), "train");
	ck_assert_int_eq(r->dtype, MFS_U16);
	count_up(numbers, 20, 0, false);
	check_rows(r, numbers, 20, -1);
	mfs_rows_free(r);
	r = open_rows(fixture("dict"), "validation");
	count_up(numbers, 5, 20, false);
	check_rows(r, numbers, 5, -1);
	mfs_rows_free(r);
	unit_fails(mfs_hf_dataset_open(fixture("dict"), "test", NULL, &r, &err), &err, -ENOENT,
		   "no split 'test'");
	unit_fails(mfs_hf_dataset_open(fixture("dict"), NULL, NULL, &r, &err), &err, -ENOENT,
		   "in splits");

	unit_ok(mfs_hf_dataset_splits(fixture("cache"), &arena, &splits, &count, &err), &err);
	ck_assert_uint_eq(count, 1);
	r = open_rows(fixture("cache"), splits[0]);
	ck_assert_int_eq(r->dtype, MFS_I64);
	count_up(numbers, 30, 0, false);
	check_rows(r, numbers, 30, -1);
	check_extents(r);
	mfs_rows_free(r);

	unit_ok(mfs_hf_dataset_splits(fixture("saved"), &arena, &splits, &count, &err), &err);
	ck_assert_uint_eq(count, 0);
	mfs_arena_release(&arena);
}
END_TEST

START_TEST(indices_choose_and_order_rows)
{
	static const int64_t numbers[] = {16, 12, 18, 8, 3, 13, 15, 10, 6, 1, 2, 11};
	const struct mfs_hf_dataset_options eod = {.has_eod = true, .eod = 7};
	struct mfs_rows *r = open_rows(fixture("indices"), NULL);

	ck_assert_uint_eq(r->set_count, 2);
	check_rows(r, numbers, 12, -1);
	check_lookups(r);
	check_extents(r);
	unit_ok(mfs_rows_check(r, &err), &err);
	mfs_rows_free(r);
	r = open_with(fixture("indices"), NULL, &eod);
	check_rows(r, numbers, 12, 7);
	mfs_rows_free(r);
}
END_TEST

START_TEST(an_eod_ends_each_row)
{
	struct mfs_hf_dataset_options opt = {.has_eod = true, .eod = 65535};
	struct mfs_bin_extent e;
	int64_t numbers[40];
	struct mfs_rows *r;

	r = open_with(fixture("dict"), "train", &opt);
	count_up(numbers, 20, 0, false);
	check_rows(r, numbers, 20, 65535);
	check_lookups(r);
	ck_assert_int_eq(mfs_rows_extent(r, 0, 1, &e, &err), -ENODATA);
	mfs_rows_free(r);
	opt.eod = 0;
	r = open_with(fixture("saved"), NULL, &opt);
	count_up(numbers, 40, 0, true);
	check_rows(r, numbers, 40, 0);
	mfs_rows_free(r);
	opt.eod = 65536;
	unit_fails(mfs_hf_dataset_open(fixture("dict"), "train", &opt, &r, &err), &err, -EINVAL,
		   "uint16, which cannot hold the end token 65536");
	opt.eod = -1;
	unit_fails(mfs_hf_dataset_open(fixture("dict"), "train", &opt, &r, &err), &err, -EINVAL,
		   "cannot hold the end token -1");
	opt.eod = (int64_t)1 << 31;
	unit_fails(mfs_hf_dataset_open(fixture("saved"), NULL, &opt, &r, &err), &err, -EINVAL,
		   "int32, which cannot hold");
}
END_TEST

/* ---- single files ---- */

/* A seed of the fuzz target, copied to a file of another name below unit_tmpdir(). */
static const char *copy_seed(const char *seed, const char *name)
{
	static char path[600];
	uint8_t *bytes;
	size_t len;

	snprintf(path, sizeof(path), "tests/fuzz/%s", seed);
	bytes = unit_slurp(path, &len);
	unit_write(unit_tmpdir(), name, bytes, len);
	free(bytes);
	snprintf(path, sizeof(path), "%s/%s", unit_tmpdir(), name);
	return path;
}

static void check_text(const struct mfs_rows *r, const char *want)
{
	char text[400] = "";
	uint64_t starts[20];
	int64_t tokens[100];
	size_t at = 0;

	unit_ok(mfs_rows_starts(r, 0, r->rows + 1, starts, &err), &err);
	unit_ok(mfs_rows_read_int64(r, 0, r->tokens, tokens, &err), &err);
	for (uint64_t i = 0; i < r->rows; i++) {
		at += (size_t)sprintf(text + at, "%s[", i ? " " : "");
		for (uint64_t t = starts[i]; t < starts[i + 1]; t++)
			at += (size_t)sprintf(text + at, "%s%lld", t > starts[i] ? " " : "",
					      (long long)tokens[t]);
		at += (size_t)sprintf(text + at, "]");
	}
	ck_assert_str_eq(text, want);
}

#define FIVE "[1 2 3] [] [4] [5 6 7 8] [9]"

static const struct {
	const char *seed;
	enum mfs_dtype dtype;
	const char *rows;
} files[] = {
	{"ok-int8", MFS_I8, FIVE},
	{"ok-uint8", MFS_U8, FIVE},
	{"ok-int16", MFS_I16, FIVE},
	{"ok-uint16", MFS_U16, FIVE},
	{"ok-int32", MFS_I32, FIVE},
	{"ok-uint32", MFS_I32, FIVE},
	{"ok-int64", MFS_I64, FIVE},
	{"ok-uint64", MFS_I64, FIVE},
	{"ok-large-list", MFS_I64, FIVE},
	{"ok-several-batches", MFS_I32, FIVE},
	{"ok-file", MFS_I32, FIVE},
	{"ok-file-schema-without-size", MFS_I32, FIVE},
	{"ok-file-blank-in-front-version-4", MFS_I32, FIVE},
	{"ok-file-blank-in-front-no-batch", MFS_I32, ""},
	{"ok-legacy-framing", MFS_I32, FIVE},
	{"ok-behind-all-types", MFS_U16, FIVE},
	{"ok-fixed-size-list", MFS_I32, "[1 2] [3 4] [5 6]"},
	{"ok-fixed-size-list-nulls", MFS_I32, "[] [1 2] [] [5 6] []"},
	{"ok-fixed-size-list-null-first", MFS_I32, "[] [1 2] [3 4]"},
	{"ok-no-batch", MFS_I32, ""},
	{"ok-empty-batch", MFS_I32, ""},
	{"ok-empty-rows", MFS_I32, "[] [] []"},
	{"ok-nulls", MFS_I32, "[] [1 2] [] [3]"},
	{"ok-nulls-with-elements", MFS_I32, "[1 2] [] [] [7] []"},
	{"ok-first-offset-not-0", MFS_I32, "[3] [] [4] [5 6 7 8] [9]"},
	{"ok-last-offset-before-the-end", MFS_I32, "[1 2 3] [] [4] [5 6 7] [8]"},
	{"ok-another-name", MFS_U16, "[1 2]"},
	{"ok-labels-too", MFS_I32, "[8]"},
};

START_TEST(arrow_files_of_each_type_are_read)
{
	const bool narrowed = strstr(files[_i].seed, "uint32") || strstr(files[_i].seed, "uint64");
	char seed[100];
	struct mfs_rows *r;
	struct mfs_bin_extent e;

	snprintf(seed, sizeof(seed), "corpus/arrow/%s", files[_i].seed);
	r = open_rows(copy_seed(seed, "x.arrow"), NULL);
	ck_assert_int_eq(r->dtype, files[_i].dtype);
	check_text(r, files[_i].rows);
	check_lookups(r);
	ck_assert_uint_eq(r->row_length, strcmp(files[_i].seed, "ok-fixed-size-list") ? 0 : 2);
	if (narrowed)
		ck_assert_int_eq(mfs_rows_extent(r, 0, 1, &e, &err), -ENODATA);
	else
		check_extents(r);
	mfs_rows_free(r);
}
END_TEST

/* Of 1100 rows two thirds are null, in blocks of nulls of more than one read. */
START_TEST(many_nulls)
{
	struct mfs_rows *r = open_rows(copy_seed("corpus/arrow/ok-many-nulls", "x.arrow"), NULL);
	uint64_t starts[1101], at = 0;

	ck_assert_uint_eq(r->rows, 1100);
	unit_ok(mfs_rows_starts(r, 0, 1101, starts, &err), &err);
	for (uint64_t i = 0; i <= 1100; at += i % 3 ? 0 : i % 5, i++)
		ck_assert_uint_eq(starts[i], at);
	mfs_rows_free(r);
}
END_TEST

/* Changes bytes of a file that hold one pattern, the only ones, to others. */
static void change(const char *path, const void *from, const void *to, size_t len)
{
	size_t size;
	uint8_t *bytes = unit_slurp(path, &size), *at = memmem(bytes, size, from, len);
	int fd = open(path, O_WRONLY);

	ck_assert_ptr_nonnull(at);
	ck_assert_ptr_null(memmem(at + 1, size - (size_t)(at + 1 - bytes), from, len));
	ck_assert_int_eq(pwrite(fd, to, len, at - bytes), (ssize_t)len);
	close(fd);
	free(bytes);
}

START_TEST(id_too_large)
{
	static const uint32_t from[] = {5, 6, 7, 8}, to[] = {5, 6, 0x80000000, 8};
	const char *path = copy_seed("corpus/arrow/ok-uint32", "x.arrow");
	struct mfs_rows *r;
	int64_t tokens[9];

	change(path, from, to, sizeof(from));
	r = open_rows(path, NULL);
	unit_fails(mfs_rows_read_int64(r, 0, 9, tokens, &err), &err, -EIO,
		   "row 3 has a token id that int32 cannot hold");
	unit_fails(mfs_rows_read_int64(r, 6, 1, tokens, &err), &err, -EIO, "row 3");
	unit_ok(mfs_rows_read_int64(r, 0, 6, tokens, &err), &err);
	unit_ok(mfs_rows_read_int64(r, 7, 2, tokens, &err), &err);
	ck_assert_int_eq(tokens[0], 8);
	/* Such a row is outside of any vocabulary, and no end of the search for others. */
	unit_ok(mfs_rows_set_vocab(r, 9, &err), &err);
	unit_ok(mfs_rows_find_bad(r, 1, &err), &err);
	ck_assert_uint_eq(r->bad.count, 1);
	ck_assert_uint_eq(r->bad.list[0].first, 3);
	ck_assert_uint_eq(r->bad.list[0].end, 5); /* the last one is a 9 */
	mfs_rows_free(r);
}
END_TEST

/* A damaged list offset is an error of the rows on both sides of it and of no others. */
START_TEST(damaged_offset)
{
	static const int32_t from[] = {0, 3, 3, 4, 8, 9}, to[] = {0, 3, 3, 1 << 20, 8, 9};
	const char *path = copy_seed("corpus/arrow/ok-int32", "x.arrow");
	struct mfs_rows *r;
	uint64_t starts[6];
	int32_t number = 2, length;

	change(path, from, to, sizeof(from));
	r = open_rows(path, NULL);
	unit_fails(mfs_rows_starts(r, 0, 6, starts, &err), &err, -EIO,
		   "the list offset of row 3 is damaged");
	unit_fails(mfs_rows_gather_lengths(r, &number, 1, &length, &err), &err, -EIO, "row 3");
	unit_ok(mfs_rows_starts(r, 0, 3, starts, &err), &err);
	unit_ok(mfs_rows_starts(r, 4, 2, starts, &err), &err);
	ck_assert_uint_eq(starts[0], 8);
	mfs_rows_free(r);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
	const char *seed;
	int code;
	const char *sentence;
} refused[] = {
	{"text-column", -ENODATA, "text must be tokenised first; its columns are text: string"},
	{"text-called-input-ids", -ENOTSUP,
	 "column 'input_ids' is string, expected lists of token ids: text must be"},
	{"two-that-could-be", -ENODATA, "name it; its columns are a: list<int64>, b: list<int64>"},
	{"two-of-one-name", -ENODATA, "it has more than one column 'input_ids'"},
	{"dictionary", -ENOTSUP, "is string, dictionary-encoded"},
	{"item-null", -ENOTSUP, "one of the tokens is null"},
	{"offsets-last-outside", -EINVAL,
	 "record batch 0, column 'input_ids': list offsets point outside of its elements"},
	{"nulls-other-than-said", -EINVAL, "another number of nulls than it says"},
	{"no-end", -EINVAL, "x.arrow: it ends at byte"},
};

START_TEST(refused_files)
{
	struct mfs_rows *r;
	char seed[100];

	snprintf(seed, sizeof(seed), "reject/arrow/%s", refused[_i].seed);
	unit_fails(mfs_hf_dataset_open(copy_seed(seed, "x.arrow"), NULL, NULL, &r, &err), &err,
		   refused[_i].code, refused[_i].sentence);
}
END_TEST

START_TEST(refused_column)
{
	const struct mfs_hf_dataset_options opt = {.column = "tokens"}, text = {.column = "text"};
	struct mfs_rows *r;

	unit_fails(mfs_hf_dataset_open(fixture("saved"), NULL, &opt, &r, &err), &err, -ENODATA,
		   "no column 'tokens'; its columns are text: string, input_ids: list<int32>, "
		   "attention_mask: list<int8>");
	unit_fails(mfs_hf_dataset_open(fixture("saved"), NULL, &text, &r, &err), &err, -ENOTSUP,
		   "column 'text' is string");
}
END_TEST

static const char *in_tmp(const char *name)
{
	static char path[600];

	snprintf(path, sizeof(path), "%s/%s", unit_tmpdir(), name);
	return path;
}

static void write_text(const char *name, const char *text)
{
	unit_write(unit_tmpdir(), name, text, strlen(text));
}

START_TEST(directories_are_recognised_by_their_files)
{
	struct mfs_arena arena = {0};
	const char *const *splits;
	struct mfs_rows *r;
	uint32_t count;

	ck_assert(!mfs_hf_dataset_looks_like_one(unit_tmpdir()));
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENODATA,
		   "no *.arrow file");
	copy_seed("corpus/arrow/ok-int32", "cache-0123456789abcdef.arrow");
	ck_assert(!mfs_hf_dataset_looks_like_one(unit_tmpdir()));
	ck_assert(mfs_hf_dataset_looks_like_one(in_tmp("cache-0123456789abcdef.arrow")));
	copy_seed("corpus/arrow/ok-int32", "b.arrow");
	copy_seed("corpus/arrow/ok-several-batches", "a.arrow");
	ck_assert(mfs_hf_dataset_looks_like_one(unit_tmpdir()));
	r = open_rows(unit_tmpdir(), NULL);
	check_text(r, FIVE " " FIVE);
	ck_assert_str_eq(mfs_fileset_name(r->sets[0], 0), "a.arrow");
	mfs_rows_free(r);

	/* Files of several dtypes. */
	copy_seed("corpus/arrow/ok-int64", "c.arrow");
	unit_fails(
		mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -EINVAL,
		"c.arrow: column 'input_ids' has elements of int64, those of the files before it "
		"are int32");
	unlink(in_tmp("c.arrow"));
	copy_seed("corpus/arrow/ok-another-name", "c.arrow");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENODATA,
		   "c.arrow: it has no column 'input_ids'");
	unlink(in_tmp("c.arrow"));

	/* A dataset_info.json without splits says nothing. */
	write_text("dataset_info.json", "{\"features\": {}}");
	unit_ok(mfs_hf_dataset_splits(unit_tmpdir(), &arena, &splits, &count, &err), &err);
	ck_assert_uint_eq(count, 0);
	write_text("dataset_info.json", "[1]");
	unit_fails(mfs_hf_dataset_splits(unit_tmpdir(), &arena, &splits, &count, &err), &err,
		   -EINVAL, "dataset_info.json: not a JSON object");
	write_text("dataset_info.json", "{");
	unit_fails(mfs_hf_dataset_splits(unit_tmpdir(), &arena, &splits, &count, &err), &err,
		   -EINVAL, "not valid JSON");
	mfs_arena_release(&arena);
}
END_TEST

START_TEST(a_cache_is_one_dataset_a_split)
{
	struct mfs_arena arena = {0};
	const char *const *splits;
	struct mfs_rows *r;
	uint32_t count;

	write_text("dataset_info.json",
		   "{\"splits\": {\"train\": {\"num_examples\": 10}, \"test\": {\"num_examples\": "
		   "6}, \"gone\": {}}}");
	copy_seed("corpus/arrow/ok-int32", "a-b-train-00000-of-00002.arrow");
	copy_seed("corpus/arrow/ok-int32", "a-b-train-00001-of-00002.arrow");
	copy_seed("corpus/arrow/ok-int32", "a-b-test.arrow");
	copy_seed("corpus/arrow/ok-int32", "pretrain.arrow"); /* of no split */
	unit_ok(mfs_hf_dataset_splits(unit_tmpdir(), &arena, &splits, &count, &err), &err);
	ck_assert_uint_eq(count, 2);
	ck_assert_str_eq(splits[0], "train");
	ck_assert_str_eq(splits[1], "test");
	r = open_rows(unit_tmpdir(), "train");
	check_text(r, FIVE " " FIVE);
	mfs_rows_free(r);
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), "test", NULL, &r, &err), &err, -EINVAL,
		   "says 6 rows, 'a-b-test.arrow' has 5");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), "gone", NULL, &r, &err), &err, -ENOENT,
		   "no split 'gone'");
	unlink(in_tmp("a-b-train-00000-of-00002.arrow"));
	copy_seed("corpus/arrow/ok-int32", "a-b-train-00000-of-00003.arrow");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), "train", NULL, &r, &err), &err, -ENODATA,
		   "the one after it is missing");
	unlink(in_tmp("a-b-train-00000-of-00003.arrow"));
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), "train", NULL, &r, &err), &err, -ENODATA,
		   "the one before it is missing");
	copy_seed("corpus/arrow/ok-int32", "a-b-train-00000-of-00002.arrow");
	unlink(in_tmp("a-b-train-00001-of-00002.arrow"));
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), "train", NULL, &r, &err), &err, -ENODATA,
		   "the one after it is missing");
	mfs_arena_release(&arena);
}
END_TEST

/* The first half of one dataset and the second half of another make none. */
START_TEST(shards_of_two)
{
	struct mfs_rows *r;

	copy_seed("corpus/arrow/ok-int32", "a-00000-of-00002.arrow");
	copy_seed("corpus/arrow/ok-int32", "b-00001-of-00002.arrow");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENODATA,
		   "'a-00000-of-00002.arrow', and the one after it is missing");
	copy_seed("corpus/arrow/ok-int32", "a-00001-of-00002.arrow");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENODATA,
		   "'b-00001-of-00002.arrow', and the one before it is missing");
	copy_seed("corpus/arrow/ok-int32", "b-00000-of-00002.arrow");
	r = open_rows(unit_tmpdir(), NULL);
	ck_assert_uint_eq(r->rows, 20);
	mfs_rows_free(r);
}
END_TEST

START_TEST(state_json_names_the_files_in_order)
{
	struct mfs_rows *r;

	copy_seed("corpus/arrow/ok-int32", "a.arrow");
	copy_seed("corpus/arrow/ok-several-batches", "z.arrow");
	copy_seed("corpus/arrow/ok-int32", "other.arrow");
	write_text("state.json",
		   "{\"_data_files\": [{\"filename\": \"z.arrow\"}, {\"filename\": \"a.arrow\"}]}");
	r = open_rows(unit_tmpdir(), NULL);
	ck_assert_uint_eq(r->rows, 10);
	ck_assert_str_eq(mfs_fileset_name(r->sets[0], 0), "z.arrow");
	mfs_rows_free(r);
	write_text("state.json", "{\"_data_files\": []}");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENODATA,
		   "the dataset has no rows");
	write_text("state.json", "{\"_data_files\": {\"filename\": \"a.arrow\"}}");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -EINVAL,
		   "\"_data_files\" is not a list");
	write_text("state.json",
		   "{\"_data_files\": [{\"filename\": \"a.arrow\"}], \"_indices_data_files\": "
		   "{\"filename\": \"i.arrow\"}}");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -EINVAL,
		   "\"_indices_data_files\" is not a list");
	write_text("state.json", "{\"_data_files\": [{\"name\": \"a.arrow\"}]}");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -EINVAL,
		   "without \"filename\"");
	write_text("state.json",
		   "{\"_data_files\": [{\"filename\": \"a.arrow\", \"skip\": 2, \"take\": 1}]}");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENOTSUP,
		   "only some rows of 'a.arrow'");
	write_text("state.json", "{\"_data_files\": [{\"filename\": \"gone.arrow\"}]}");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENOENT,
		   "gone.arrow");
	write_text("state.json", "{\"_data_files\": [{\"filename\": \"../a.arrow\"}]}");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -EINVAL,
		   "../a.arrow");
	write_text("state.json",
		   "{\"_data_files\": [{\"filename\": \"a.arrow\"}], \"_indices_data_files\": "
		   "[{\"filename\": \"i.arrow\"}]}");
	copy_seed("corpus/arrow/ok-indices", "i.arrow");
	r = open_rows(unit_tmpdir(), NULL);
	check_text(r, "[9] [] [] [1 2 3]");
	mfs_rows_free(r);
	/* A number of no row. */
	change(in_tmp("i.arrow"), (const uint64_t[]){4, 1, 1}, (const uint64_t[]){5, 1, 1}, 24);
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -EINVAL,
		   "index 0 points to row 5, but there are 5 rows");
	copy_seed("corpus/arrow/ok-int32", "i.arrow");
	unit_fails(mfs_hf_dataset_open(unit_tmpdir(), NULL, NULL, &r, &err), &err, -ENODATA,
		   "no column 'indices'");
}
END_TEST

/* ---- files that change, and many readers ---- */

START_TEST(a_file_that_was_cut_is_stale)
{
	const char *path = copy_seed("corpus/arrow/ok-int32", "x.arrow");
	struct mfs_rows *r = open_rows(path, NULL);
	const int32_t number = 0;
	int64_t tokens[9];
	uint64_t v;
	int32_t length;

	unit_ok(mfs_rows_read_int64(r, 0, 9, tokens, &err), &err); /* mapped by now */
	ck_assert_int_eq(truncate(path, 100), 0);
	unit_fails(mfs_rows_check(r, &err), &err, -ESTALE, "x.arrow");
	unit_fails(mfs_rows_read_int64(r, 0, 9, tokens, &err), &err, -ESTALE, "x.arrow");
	unit_fails(mfs_rows_start(r, 0, &v, &err), &err, -ESTALE, "x.arrow");
	unit_fails(mfs_rows_find(r, 0, &v, &err), &err, -ESTALE, "x.arrow");
	unit_fails(mfs_rows_gather_starts(r, &number, 1, &v, &err), &err, -ESTALE, "x.arrow");
	unit_fails(mfs_rows_gather_lengths(r, &number, 1, &length, &err), &err, -ESTALE, "x.arrow");
	mfs_rows_free(r);
}
END_TEST

static void *read_much(void *arg)
{
	const struct mfs_rows *r = arg;
	struct mfs_error e = {0};
	int64_t tokens[50];
	uint64_t starts[21], row;
	long wrong = 0;

	for (uint64_t n = 0; n < 300; n++) {
		const uint64_t t = n * 7919 % (r->tokens - 50);

		wrong += mfs_rows_read_int64(r, t, 50, tokens, &e) != 0;
		wrong += mfs_rows_find(r, t, &row, &e) != 0;
		wrong += mfs_rows_starts(r, row / 2, 20, starts, &e) != 0;
		if (n % 64 == 0)
			mfs_rows_drop(r);
	}
	return (void *)wrong;
}

START_TEST(threads_read_the_same_rows)
{
	const struct mfs_hf_dataset_options opt = {.has_eod = _i == 1, .eod = 3};
	struct mfs_rows *r =
		open_with(fixture(_i == 2 ? "cache" : "saved"), _i == 2 ? "train" : NULL, &opt);
	pthread_t threads[4];
	void *wrong;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_much, r), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	mfs_rows_free(r);
}
END_TEST

Suite *mfs_suite(void)
{
	Suite *s = suite_create("hf_dataset");
	TCase *c = unit_case(s, "datasets", a_saved_dataset_has_its_rows);

	tcase_add_test(c, other_column);
	tcase_add_test(c, each_split_has_its_own_rows);
	tcase_add_test(c, indices_choose_and_order_rows);
	tcase_add_test(c, an_eod_ends_each_row);
	c = unit_case(s, "files", many_nulls);
	tcase_add_loop_test(c, arrow_files_of_each_type_are_read, 0, MFS_ARRAY_SIZE(files));
	tcase_add_test(c, id_too_large);
	tcase_add_test(c, damaged_offset);
	c = unit_case(s, "refused", refused_column);
	tcase_add_loop_test(c, refused_files, 0, MFS_ARRAY_SIZE(refused));
	tcase_add_test(c, directories_are_recognised_by_their_files);
	tcase_add_test(c, a_cache_is_one_dataset_a_split);
	tcase_add_test(c, shards_of_two);
	tcase_add_test(c, state_json_names_the_files_in_order);
	c = unit_case(s, "changing", a_file_that_was_cut_is_stale);
	tcase_add_loop_test(c, threads_read_the_same_rows, 0, 3);
	return s;
}
